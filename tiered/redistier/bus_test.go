package redistier

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/tiered"
)

func TestValidate(t *testing.T) {
	for name, c := range map[string]Config{
		`redistier: Prefix "{a}:": must not have braces`: {Prefix: "{a}:"},
		"redistier: Every 1ms: must be between":          {Every: time.Millisecond},
		"redistier: Every 1h0m0s: must be":               {Every: time.Hour},
		"redisconn: Addrs[0]":                            {Redis: server("nowhere")},
	} {
		b, err := New(t.Context(), c)
		if err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("got %v, want %s", err, name)
		}
		if b != nil {
			b.Close()
		}
	}
}

// Nodes receive each other's messages, but not their own, nor those of another prefix or database.
func TestMessages(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	var all []*Bus
	var recorders []*recorder
	for range 3 {
		all = append(all, open(t, Config{Redis: server(addr)}))
	}
	second := server(addr)
	second.DB = 1
	all = append(all, open(t, Config{Redis: server(addr), Prefix: "other:"}), open(t, Config{Redis: second}))
	for _, b := range all {
		recorders = append(recorders, listen(t, b))
	}
	also := listen(t, all[1]) // the same bus
	messages := []tiered.Message{
		reset("a"), reset("\x00{}ü"),
		{Kind: tiered.PolicyChanged, Policy: "p"},
		{Kind: tiered.KeyDenied, Policy: "p", Key: "b", Limits: 1 << 63, Cost: 7, By: 2, Limit: 10, Remaining: 3, Until: weir.Now() + 1e9, ResetAt: weir.Now() + 2e9},
	}
	publish(t, all[0], messages...)
	for _, e := range []*recorder{recorders[1], recorders[2], also} {
		e.await(t, "b")
		got := e.all()
		last := &got[len(got)-1]
		last.Until, last.ResetAt = messages[3].Until, messages[3].ResetAt // TestClocksDiffer
		if diff := cmp.Diff(messages, got); diff != "" {
			t.Error(diff)
		}
	}
	publish(t, all[2], reset("c"))
	recorders[0].await(t, "c")
	recorders[1].await(t, "c")
	for i, want := range []int{1, 5, 4, 0, 0} {
		if got := recorders[i].all(); len(got) != want {
			t.Errorf("bus %d has received %v, want %d messages", i, got, want)
		}
	}
	if got, want := all[1].Stats(), (Stats{Received: 5, Subscriptions: 1}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	if got, want := all[0].Stats(), (Stats{Published: 4, Received: 1, Subscriptions: 1}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
}

// The messages of one call may need several payloads, and those that cannot be sent are reported.
func TestManyMessages(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	a, b := open(t, Config{Redis: server(addr)}), open(t, Config{Redis: server(addr)})
	e := listen(t, b)
	var messages []tiered.Message
	for i := range 5000 {
		messages = append(messages, reset(fmt.Sprint(strings.Repeat("k", 200), i)))
	}
	messages[17].Key = strings.Repeat("k", 257)
	messages[4000].Policy = ""
	err := a.Publish(t.Context(), messages)
	if err == nil || !strings.Contains(err.Error(), "policy name of a message has 0 bytes") {
		t.Errorf("error %v", err)
	}
	messages = slices.Delete(slices.Delete(messages, 4000, 4001), 17, 18)
	e.await(t, messages[len(messages)-1].Key)
	if diff := cmp.Diff(messages, e.all()); diff != "" {
		t.Error(diff)
	}
	if s := a.Stats(); s.Published != 4998 || s.Lost != 2 {
		t.Errorf("stats %+v, want 4,998 published and 2 lost", s)
	}
}

// A denial ends no later than it should, and hardly earlier, whatever the clocks say, and
// although the reader is far from Redis.
func TestClocksDiffer(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	relay := redistest.NewRelay(t, addr)
	relay.Delay(5 * time.Millisecond)
	for _, skew := range []time.Duration{5 * time.Second, 0, -5 * time.Second} {
		from := open(t, Config{Redis: server(addr), Every: 50 * time.Millisecond, Now: ahead(skew)})
		to := open(t, Config{Redis: server(relay.Addr()), Every: 50 * time.Millisecond, Now: ahead(-skew)})
		e := listen(t, to)
		least, most := time.Hour, -time.Hour
		for i := range 50 {
			known := longest(from) + longest(to)
			truth := weir.Now().Add(time.Second)
			key := fmt.Sprint(i)
			publish(t, from, tiered.Message{Kind: tiered.KeyDenied, Policy: "p", Key: key, Until: truth.Add(skew), ResetAt: truth.Add(skew + time.Second)})
			w := e.await(t, key)
			early := truth.Add(-skew).Sub(w.Until)
			least, most = min(least, early), max(most, early)
			bound := max(known, longest(from)+longest(to)) + 20*time.Millisecond
			if early < 0 || early > bound {
				t.Errorf("clocks differ by %v: a denial ends %v early, want 0 to %v", 2*skew, early, bound)
			}
			if early := truth.Add(time.Second - skew).Sub(w.ResetAt); early < 0 || early > bound {
				t.Errorf("clocks differ by %v: the reset comes %v early, want 0 to %v", 2*skew, early, bound)
			}
			time.Sleep(2 * time.Millisecond)
		}
		t.Logf("clocks differ by %v: denials end %v to %v early", 2*skew, least, most)
		if s := to.Stats(); s.Lost != 0 {
			t.Errorf("stats %+v, want nothing lost", s)
		}
	}
}

// longest returns how long the longest of the round trips took by which a bus knows Redis's
// clock. What is lost is no more, so on a busy machine a test may not want less.
func longest(b *Bus) (most time.Duration) {
	b.clock.mu.Lock()
	defer b.clock.mu.Unlock()
	for _, r := range b.clock.readings {
		most = max(most, r.after.Sub(r.before))
	}
	return most
}

// beaten returns when a bus sent its last heartbeat that was answered, by its clock.
func beaten(b *Bus) weir.Instant {
	b.clock.mu.Lock()
	defer b.clock.mu.Unlock()
	return b.clock.readings[len(b.clock.readings)-1].before
}

// Denials are dropped, and nothing else, while a clock is unknown or contradicts the sender's.
func TestClockIsUnknown(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	a, b := open(t, Config{Redis: server(addr), Every: time.Minute}), open(t, Config{Redis: server(addr), Every: time.Minute})
	e := listen(t, b)
	denial := tiered.Message{Kind: tiered.KeyDenied, Policy: "p", Key: "k", Until: weir.Now() + 1e9}

	r := a.clock.readings[0]
	r.time = r.time.Add(time.Second)
	a.clock.add(r) // as if Redis's clock had been set
	publish(t, a, denial, reset("1"))
	e.await(t, "1")
	if s := b.Stats(); s.Lost != 1 || len(e.all()) != 1 {
		t.Errorf("a denial from the future: %+v, received %v; want it lost", s, e.all())
	}
	a.clock.forget()
	if err := a.Publish(t.Context(), []tiered.Message{denial, reset("2")}); !errors.Is(err, ErrNoClock) {
		t.Errorf("error %v, want ErrNoClock", err)
	}
	e.await(t, "2")
	if err := a.heartbeat(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.clock.forget()
	publish(t, a, denial, reset("3"))
	e.await(t, "3")
	if a, b := a.Stats(), b.Stats(); a.Lost != 1 || b.Lost != 2 || len(e.all()) != 3 {
		t.Errorf("stats %+v and %+v, received %v; want 1 and 2 lost", a, b, e.all())
	}
}

// Nodes are counted, and no longer when they have left or died.
func TestNodes(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	const every = 500 * time.Millisecond
	c := Config{Redis: server(redis.Addr()), Every: every}
	a := open(t, c)
	if got := a.Nodes(); got != 1 {
		t.Errorf("alone: %d nodes", got)
	}
	b, d := open(t, c), open(t, c)
	if got := d.Nodes(); got != 3 {
		t.Errorf("the third counts %d nodes", got)
	}
	awaitNodes(t, 3, a, b, d)

	b.Close()
	left := time.Now()
	awaitNodes(t, 2, a, d)
	t.Logf("after Close: noticed %v later", time.Since(left).Round(time.Millisecond))

	d.still() // it dies
	d.beating.Wait()
	awaitNodes(t, 1, a)
	took := weir.Now().Sub(beaten(d))
	t.Logf("after its last heartbeat: noticed %v later", took.Round(time.Millisecond))
	if took < silence(every)-10*time.Millisecond || took > silence(every)+every+5*time.Second { // the clocks are adjusted
		t.Errorf("a node that died was noticed after %v, want about %v", took, silence(every))
	}
	if ttl := redis.MustDo("PTTL", "weir:nodes").Text; strings.HasPrefix(ttl, "-") {
		t.Errorf("the set of nodes stays for ever: PTTL %s", ttl)
	}
	a.Close()
	if got := redis.MustDo("EXISTS", "weir:nodes").Text; got != "0" {
		t.Error("the set of nodes is there although all have left")
	}
}

// A count is the last one. After trouble it falls only when two heartbeats' time is over.
func TestCountAfterTrouble(t *testing.T) {
	b := &Bus{config: Config{Every: time.Second}}
	start := time.Now()
	for _, step := range []struct {
		after   time.Duration
		trouble bool
		count   int64
		want    int
	}{
		{0, false, 3, 3},
		{1000, false, 2, 2},
		{2000, false, 5, 5},
		{9000, true, 1, 5}, // the server was unavailable, and has lost its data
		{9100, false, 2, 5},
		{9200, false, 6, 6},
		{10999, false, 4, 6},
		{11000, false, 4, 4},
		{12000, false, 1, 1},
	} {
		b.uncertain.Store(step.trouble)
		b.counted(step.count, start.Add(step.after*time.Millisecond))
		if got := b.Nodes(); got != step.want {
			t.Errorf("after %d ms, at a count of %d: %d nodes, want %d", step.after, step.count, got, step.want)
		}
	}
}

// A node whose last heartbeat is in the future, by another server's clock, expires like others.
func TestNodesOfAnotherClock(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.MustDo("ZADD", "weir:nodes", "9e15", "old")
	b := open(t, Config{Redis: server(redis.Addr()), Every: 50 * time.Millisecond})
	if got := b.Nodes(); got != 2 {
		t.Errorf("%d nodes at first, want 2", got)
	}
	awaitNodes(t, 1, b)
}

// Other payloads on the channel are counted, and that is all.
func TestDamagedMessages(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a, b := open(t, Config{Redis: server(redis.Addr())}), open(t, Config{Redis: server(redis.Addr())})
	e := listen(t, b)
	bad := []string{"", "hello", "\x01", strings.Repeat("\xff", 100), "\x02" + encoded(reset("k"))[1:], encoded(reset("k")) + "\x02", strings.Repeat("x", maxPayloadBytes+1)}
	for _, text := range bad {
		if got := redis.MustDo("PUBLISH", "weir:tier", text).Text; got != "2" {
			t.Errorf("%d bytes were received by %s clients, want 2", len(text), got)
		}
	}
	publish(t, a, reset("good"))
	e.await(t, "good")
	if s := b.Stats(); s.Damaged != int64(len(bad)) || s.Received != 1 || len(e.all()) != 1 || e.nils.Load() != 1 {
		t.Errorf("stats %+v, received %v, want %d damaged and 1 received", s, e.all(), len(bad))
	}
}

// stop ends a listener, Close the others, and they receive nothing afterwards.
func TestStop(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	a, b := open(t, Config{Redis: server(addr)}), open(t, Config{Redis: server(addr)})
	var first, second recorder
	stop := b.Listen(first.receive)
	stopSecond := b.Listen(second.receive)
	publish(t, a, reset("1"))
	first.await(t, "1")
	stop()
	stop()
	publish(t, a, reset("2"))
	second.await(t, "2")
	if got := first.all(); len(got) != 1 {
		t.Errorf("after stop: %v", got)
	}
	b.Close()
	b.Close()
	stopSecond()
	publish(t, a, reset("3"))
	b.Listen(func([]tiered.Message) { t.Error("a listener after Close is called") })()
	if got := second.all(); len(got) != 2 {
		t.Errorf("after Close: %v", got)
	}
	if err := b.Publish(t.Context(), []tiered.Message{reset("4")}); !errors.Is(err, ErrClosed) {
		t.Errorf("publish after Close: %v", err)
	}
}

// A listener that blocks delays no other, and receives nil for the messages it missed.
func TestSlowListener(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	a, b := open(t, Config{Redis: server(addr), Every: 50 * time.Millisecond}), open(t, Config{Redis: server(addr), Every: 50 * time.Millisecond})
	hold, slow := make(chan struct{}), recorder{}
	defer b.Listen(func(messages []tiered.Message) { <-hold; slow.receive(messages) })()
	fast := listen(t, b)
	messages := make([]tiered.Message, 1000)
	for i := range messages {
		messages[i] = reset("k")
	}
	for range maxQueued/len(messages) + 1 {
		publish(t, a, messages...)
	}
	publish(t, a, reset("last"))
	fast.await(t, "last")
	held := weir.Now()
	eventually(t, "a heartbeat meanwhile", func() bool { return beaten(b) > held })
	close(hold)
	slow.await(t, "last")
	if got := len(slow.all()); got > maxQueued/2 || slow.nils.Load() < 1 || b.Stats().Lost == 0 {
		t.Errorf("the slow one has received %d messages, %d nils; stats %+v", got, slow.nils.Load(), b.Stats())
	}
	if b.Stats().FailedHeartbeats != 0 {
		t.Errorf("heartbeats failed: %+v", b.Stats())
	}
}

// How long messages take.
func TestLatency(t *testing.T) {
	addr := redistest.Start(t).Addr()
	a, b := open(t, Config{Redis: server(addr)}), open(t, Config{Redis: server(addr)})
	received := make(chan weir.Instant, 1)
	defer b.Listen(func(messages []tiered.Message) {
		if messages != nil {
			received <- weir.Now()
		}
	})()
	var took []time.Duration
	for i := range 1000 {
		began := weir.Now()
		publish(t, a, reset(fmt.Sprint(i)))
		took = append(took, (<-received).Sub(began))
	}
	slices.Sort(took)
	t.Logf("from Publish to receive, 1,000 messages one by one: p50 %v, p99 %v, slowest %v", took[500], took[990], took[999])
}

// leastRights returns the rights that doc.go lists.
func leastRights(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rights, ok := strings.CutPrefix(line, "//\t~weir:*"); ok {
			return "~weir:*" + " " + strings.TrimSpace(rights)
		}
	}
	t.Fatal("doc.go lists no rights")
	return ""
}

// The rights that doc.go lists suffice.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.MustDo(append([]string{"ACL", "SETUSER", "weir", "on", ">secret", "resetkeys", "resetchannels"}, strings.Fields(leastRights(t))...)...)
	to := server(redis.Addr())
	to.Username, to.Password = "weir", secret.New("secret")
	c := Config{Redis: to, Every: 200 * time.Millisecond} // so that a busy machine's are not silent for too long
	a, b := open(t, c), open(t, c)
	e := listen(t, b)
	publish(t, a, reset("k"))
	e.await(t, "k")
	redis.MustDo("ZADD", "weir:nodes", "9e15", "old")
	awaitNodes(t, 3, a)
	awaitNodes(t, 2, a)
	a.Close()
	if got := redis.MustDo("ZCARD", "weir:nodes").Text; got != "1" {
		t.Errorf("after Close: %s nodes", got)
	}

	for _, right := range []string{"subscribe", "zadd"} {
		redis.MustDo("ACL", "SETUSER", "weir", "-"+right)
		if c, err := New(t.Context(), Config{Redis: to}); err == nil {
			t.Errorf("New without the right to %s: no error", right)
			c.Close()
		}
		redis.MustDo("ACL", "SETUSER", "weir", "+"+right)
	}
	redis.MustDo("ACL", "SETUSER", "weir", "-publish")
	if err := b.Publish(t.Context(), []tiered.Message{reset("k")}); err == nil || b.Stats().Lost != 1 {
		t.Errorf("publish without the right: error %v, stats %+v", err, b.Stats())
	}
}
