package redisstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redisconn"
	"github.com/weirlimit/weir/internal/redistest"
)

// eventually waits until something is so. After 30 s it ends the test.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 30 s for %s", what)
		}
	}
}

// still is a clock that does not move.
func still() weir.Instant { return duelStart }

// remaining returns how many units a key has left.
func remaining(t testing.TB, s *Store, p *weir.Policy, key string) int64 {
	t.Helper()
	d, err := weir.Peek(context.Background(), s, p, key, 0)
	if err != nil {
		t.Fatalf("peek %s of %q: %v", key, p.Name(), err)
	}
	return d.Remaining
}

func wantLeft(t testing.TB, when string, s *Store, p *weir.Policy, key string, want int64) {
	t.Helper()
	if got := remaining(t, s, p, key); got != want {
		t.Errorf("%s: %s of %q has %d units left, want %d", when, key, p.Name(), got, want)
	}
}

// twoWays returns a policy for take.lua and one for do.lua, each of 100 units that
// hardly come back.
func twoWays(t testing.TB) []*weir.Policy {
	t.Helper()
	return []*weir.Policy{
		newPolicy(t, "gcra", weir.Limit{Rate: 100, Per: weir.Every(1000 * time.Hour)}),
		newPolicy(t, "fixed", weir.Limit{Rate: 100, Per: weir.Every(1000 * time.Hour), Algorithm: weir.FixedWindow}),
	}
}

// A server that forgets its scripts all the time costs nobody an error or a unit.
func TestScriptsAreForgotten(t *testing.T) {
	redis := redistest.Start(t)
	s := open(t, Config{Redis: server(redis.Addr()), Now: still})
	policies := []*weir.Policy{
		newPolicy(t, "gcra", weir.Limit{Rate: 1_000_000, Per: weir.Every(1000 * time.Hour)}),
		newPolicy(t, "fixed", weir.Limit{Rate: 1_000_000, Per: weir.Every(1000 * time.Hour), Algorithm: weir.FixedWindow}),
	}
	var (
		taken   [2]atomic.Int64
		slowest atomic.Int64
		ended   = time.Now().Add(1500 * time.Millisecond)
		all     sync.WaitGroup
	)
	for g := range 16 {
		all.Go(func() {
			for time.Now().Before(ended) {
				start := time.Now()
				d, err := s.Take(context.Background(), policies[g%2], "k", 1)
				if err != nil || !d.Allowed {
					t.Errorf("take from %s: %v, error %v", policies[g%2].Name(), d, err)
					return
				}
				taken[g%2].Add(1)
				slowest.Store(max(slowest.Load(), int64(time.Since(start))))
			}
		})
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	flushes := 0
	for time.Now().Before(ended) {
		if _, err := redis.Do("SCRIPT", "FLUSH"); err != nil {
			t.Error(err)
		}
		flushes++
		<-tick.C
	}
	all.Wait()
	stats := s.Stats()
	t.Logf("%d flushes, %d calls by text, %d decisions, the slowest took %v", flushes, stats.Scripts, stats.Decisions, time.Duration(slowest.Load()))
	if stats.Scripts == 0 || stats.Unknown != 0 {
		t.Errorf("after %d flushes: %+v; want some scripts, and nothing unknown", flushes, stats)
	}
	for i, p := range policies {
		wantLeft(t, fmt.Sprintf("after %d takes and %d flushes", taken[i].Load(), flushes), s, p, "k", 1_000_000-taken[i].Load())
	}
}

// calls returns how many scripts the server has executed.
func calls(redis *redistest.Server) int64 {
	return redis.CommandCalls("evalsha") + redis.CommandCalls("eval")
}

// A reply that is lost after the charge is an unknown outcome: it was charged once, and
// nothing is sent again.
func TestReplyIsLost(t *testing.T) {
	redis := redistest.Start(t)
	relay := redistest.NewRelay(t, redis.Addr())
	for _, p := range twoWays(t) {
		prefix := fmt.Sprintf("lost%d:", prefixes.Add(1))
		s := open(t, Config{Redis: server(relay.Addr()), Prefix: prefix, Now: still})
		direct := open(t, Config{Redis: server(redis.Addr()), Prefix: prefix, Now: still})
		wantLeft(t, "at the start", direct, p, "k", 100)
		if _, err := s.Take(context.Background(), p, "other", 1); err != nil { // the server knows all scripts
			t.Fatal(err)
		}

		before := calls(redis)
		relay.DropReplies(1, "EVALSHA")
		d, err := s.Take(context.Background(), p, "k", 3)
		if !errors.Is(err, weir.ErrUnknown) {
			t.Errorf("%s: take whose reply is lost: %v, error %v; want ErrUnknown", p.Name(), d, err)
		}
		if got := calls(redis) - before; got != 1 || relay.Dropped() == 0 {
			t.Errorf("%s: take whose reply is lost: the server executed %d scripts, want 1", p.Name(), got)
		}
		wantLeft(t, "after a take of 3 whose reply was lost", direct, p, "k", 97)
		wantUnknown(t, p.Name()+": after a take whose reply was lost", s, 1)
		if d, err := s.Take(context.Background(), p, "k", 1); err != nil || d.Remaining != 96 {
			t.Errorf("%s: the take behind it: %v, error %v; want 96 left", p.Name(), d, err)
		}
	}
}

// When the reply to a combined call is lost, each caller's outcome is unknown.
func TestReplyOfManyIsLost(t *testing.T) {
	redis := redistest.Start(t)
	relay := redistest.NewRelay(t, redis.Addr())
	for _, p := range twoWays(t) {
		prefix := fmt.Sprintf("lost%d:", prefixes.Add(1))
		s := open(t, Config{Redis: server(relay.Addr()), Prefix: prefix, Now: still})
		direct := open(t, Config{Redis: server(redis.Addr()), Prefix: prefix, Now: still})
		if _, err := s.Take(context.Background(), p, "other", 1); err != nil {
			t.Fatal(err)
		}
		const callers = 40
		before := calls(redis)
		relay.DropReplies(1, "EVALSHA")
		for i, r := range together(t, s, repeat(callers, weir.Charge{Policy: p, Key: "k", Cost: 2})...) {
			if !errors.Is(r.err, weir.ErrUnknown) {
				t.Errorf("%s: caller %d of %d whose common reply is lost: %v, error %v; want ErrUnknown", p.Name(), i, callers, r.decision, r.err)
			}
		}
		if got := calls(redis) - before; got != 1 {
			t.Errorf("%s: %d callers in one call: the server executed %d scripts, want 1", p.Name(), callers, got)
		}
		wantUnknown(t, p.Name()+": after a call of 40 takes whose reply was lost", s, callers)
		wantLeft(t, "after a call of 40 takes of 2 whose reply was lost", direct, p, "k", 100-2*callers)
	}
}

// wantUnknown checks how many outcomes are counted as unknown. A sender answers first,
// and counts then.
func wantUnknown(t *testing.T, when string, s *Store, want int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d unknown outcomes, %s", want, when), func() bool { return s.Stats().Unknown >= want })
	if got := s.Stats(); got.Unknown != want || got.Refunded != 0 {
		t.Errorf("%s: %+v, want %d unknown and nothing given back", when, got, want)
	}
}

func repeat(n int, c weir.Charge) (list []weir.Charge) {
	for range n {
		list = append(list, c)
	}
	return list
}

// A caller that leaves while its call is in flight gets an error that the outcome is
// unknown, and what it took is given back.
func TestCallerLeaves(t *testing.T) {
	redis := redistest.Start(t)
	relay := redistest.NewRelay(t, redis.Addr())
	for _, p := range twoWays(t) {
		charges := []weir.Charge{{Policy: p, Key: "a", Cost: 3}, {Policy: p, Key: "b", Cost: 5}}
		for _, c := range []struct {
			name string
			ask  func(context.Context, *Store) error
		}{
			{"take", func(ctx context.Context, s *Store) error {
				_, err := s.Take(ctx, p, "a", 3)
				return err
			}},
			{"take each", func(ctx context.Context, s *Store) error {
				return s.Do(ctx, &weir.Batch{Op: weir.TakeEach, Charges: charges})
			}},
			{"take all", func(ctx context.Context, s *Store) error {
				return s.Do(ctx, &weir.Batch{Op: weir.TakeAll, Charges: charges})
			}},
			{"reserve", func(ctx context.Context, s *Store) error {
				return s.Do(ctx, &weir.Batch{Op: weir.ReserveAll, Charges: charges})
			}},
		} {
			t.Run(p.Name()+" "+c.name, func(t *testing.T) {
				prefix := fmt.Sprintf("leaves%d:", prefixes.Add(1))
				s := open(t, Config{Redis: server(relay.Addr()), Prefix: prefix, Now: still})
				direct := open(t, Config{Redis: server(redis.Addr()), Prefix: prefix, Now: still})
				remaining(t, s, p, "a") // it is connected, and knows the policy
				err := leaveOnTheWay(t, s, relay, c.ask)
				if !errors.Is(err, weir.ErrUnknown) || !errors.Is(err, context.Canceled) {
					t.Errorf("got error %v, want ErrUnknown and context.Canceled", err)
				}
				eventually(t, "the units to be back", func() bool {
					return remaining(t, direct, p, "a") == 100 && remaining(t, direct, p, "b") == 100 && s.Stats().Refunded > 0
				})
				if got := s.Stats(); got.Refunded != 1 || got.Unknown != 1 || got.Timeouts != 1 {
					t.Errorf("got %+v, want 1 unknown, 1 that left, and 1 given back", got)
				}
			})
		}
	}
}

// leaveOnTheWay asks over a relay that holds up everything, and leaves when the request
// has been sent. Then the relay lets it pass.
func leaveOnTheWay(t *testing.T, s *Store, relay *redistest.Relay, ask func(context.Context, *Store) error) error {
	t.Helper()
	relay.Block()
	defer relay.Unblock()
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	sent, answer := s.Stats().Commands, make(chan error, 1)
	go func() { answer <- ask(ctx, s) }()
	eventually(t, "the request to be sent", func() bool { return s.Stats().Commands > sent })
	leave()
	return <-answer
}

// A caller that leaves before its call was sent has changed nothing, and knows it.
func TestCallerLeavesInTheQueue(t *testing.T) {
	redis := redistest.Start(t)
	relay := redistest.NewRelay(t, redis.Addr())
	p := twoWays(t)[0]
	s := open(t, Config{Redis: server(relay.Addr()), Prefix: "queue:", Now: still})
	remaining(t, s, p, "k")
	relay.Block()
	defer relay.Unblock()
	first, sent := make(chan error, 1), s.Stats().Commands
	go func() {
		_, err := s.Take(context.Background(), p, "other", 1)
		first <- err
	}()
	eventually(t, "a sender to wait for its reply", func() bool { return s.Stats().Commands > sent })
	ctx, leave := context.WithCancel(context.Background())
	answer := make(chan error, 1)
	go func() {
		_, err := s.Take(ctx, p, "k", 5)
		answer <- err
	}()
	eventually(t, "the request to be queued", func() bool {
		q := s.queues[0]
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.waiting) == 1
	})
	leave()
	if err := <-answer; !errors.Is(err, context.Canceled) || errors.Is(err, weir.ErrUnknown) {
		t.Errorf("a caller that left before its call was sent: got error %v, want context.Canceled and not ErrUnknown", err)
	}
	relay.Unblock()
	if err := <-first; err != nil {
		t.Errorf("a caller that waited: %v", err)
	}
	wantLeft(t, "after a take", s, p, "other", 99)
	wantLeft(t, "after a take that never left", s, p, "k", 100)
	if got := s.Stats(); got.Unknown != 0 || got.Refunded != 0 || got.Timeouts != 1 {
		t.Errorf("got %+v, want 1 that left and nothing unknown", got)
	}
}

// What is given back to a caller that left is never more than that caller still
// occupies: others may have taken what came back meanwhile.
func TestUndoKeepsTheBound(t *testing.T) {
	redis := redistest.Start(t)
	ten := weir.Limit{Rate: 10, Per: weir.Every(10 * time.Second)}
	using := func(a weir.Algorithm) weir.Limit { l := ten; l.Algorithm = a; return l }
	other := weir.Limit{Name: "other", Rate: 10, Per: weir.Every(10 * time.Second)}
	lending := ten
	lending.Classes = weir.ClassesOf(weir.Class{Name: "a", Guaranteed: 10})
	for name, l := range map[string]weir.Limit{
		"gcra": ten, "gcra-by-do.lua": other, "lending": lending, "fixed": using(weir.FixedWindow), "anchored": using(weir.AnchoredWindow),
		"sliding": using(weir.SlidingWindow), "log": using(weir.SlidingLog),
	} {
		for _, after := range []time.Duration{0, time.Second, 4 * time.Second, 5 * time.Second, 9 * time.Second, 11 * time.Second, 25 * time.Second} {
			var clock atomic.Int64
			clock.Store(int64(duelStart))
			s := open(t, Config{Redis: server(redis.Addr()), Now: func() weir.Instant { return weir.Instant(clock.Load()) }})
			p := newPolicy(t, "p", l)
			charged := s.nowMicros()
			if d, err := s.Take(context.Background(), p, "k", 5); err != nil || !d.Allowed {
				t.Fatalf("%s: take 5 of 10: %v, error %v", name, d, err)
			}
			clock.Add(int64(after))
			before := remaining(t, s, p, "k")
			if _, err := s.Take(context.Background(), p, "k", before); err != nil {
				t.Fatal(err)
			}
			undo(t, s, p, "k", 5, charged)
			left := remaining(t, s, p, "k")
			if before+left > 10 {
				t.Errorf("%s, 5 of 10 are taken, and undone %v later: meanwhile others took %d, and %d are left: more than 10 at once", name, after, before, left)
			}
			if after == 0 && left != 5 {
				t.Errorf("%s, 5 of 10 are taken, and undone at once: %d are left, want 5", name, left)
			}
			clock.Add(int64(time.Second))
			if now := remaining(t, s, p, "k"); (name == "gcra" || name == "lending") && now < left+1 {
				t.Errorf("%s, 5 of 10 are taken, and undone %v later: %d are left, and a second later %d", name, after, left, now)
			}
		}
	}
}

// undo gives back as a sender does for a caller that has left.
func undo(t *testing.T, s *Store, p *weir.Policy, key string, units, charged int64) {
	t.Helper()
	n, err := s.resolve(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	c := &call{op: opRefund, until: weir.Now().Add(s.timeout), charges: []charge{{key: rowKey(n.rows, key), n: n, cost: units, at: charged}}}
	if err := s.send(context.Background(), c); err != nil {
		t.Fatalf("undo %d units of %s: %v", units, key, err)
	}
}

// A server that hangs holds nobody up for long, and costs no goroutines. When it is
// back, so are decisions.
func TestServerHangs(t *testing.T) {
	const timeout = 50 * time.Millisecond
	redis := redistest.Start(t)
	to := server(redis.Addr())
	to.Timeout = 300 * time.Millisecond // then the connection is closed
	s := open(t, Config{Redis: to, Prefix: "hangs:", Timeout: timeout, Now: still})
	patient := open(t, Config{Redis: server(redis.Addr()), Prefix: "hangs:", Now: still})
	p := newPolicy(t, "p", weir.Limit{Rate: 1_000_000, Per: weir.Every(1000 * time.Hour)})
	eventually(t, "the first take", func() bool {
		_, err := s.Take(context.Background(), p, "k", 1)
		return err == nil
	})
	redis.Pause()
	before := runtime.NumGoroutine()
	const workers, each = 100, 20
	var (
		took           [workers * each]time.Duration
		most, answered atomic.Int64
		all            sync.WaitGroup
	)
	for w := range workers {
		all.Go(func() {
			for i := range each {
				start := time.Now()
				if _, err := s.Take(context.Background(), p, "k", 1); err == nil {
					answered.Add(1)
				}
				took[w*each+i] = time.Since(start)
				most.Store(max(most.Load(), int64(runtime.NumGoroutine())))
			}
		})
	}
	all.Wait()
	slices.Sort(took[:])
	half, over := took[len(took)/2]-timeout, took[len(took)-1]-timeout
	t.Logf("%d calls to a server that hangs: half came back within %v after their timeout, the slowest after %v; %d goroutines at most, %d before, %d callers",
		workers*each, half, over, most.Load(), before, workers)
	if half > 500*time.Millisecond || over > 5*time.Second { // the machine may hold up a hundred at once
		t.Errorf("half of the calls to a server that hangs came back within %v after their timeout of %v, the slowest after %v", half, timeout, over)
	}
	if extra := most.Load() - int64(before) - workers; extra > 20 {
		t.Errorf("%d calls to a server that hangs: %d goroutines more than the %d callers", workers*each, extra, workers)
	}
	if answered.Load() > 0 {
		t.Errorf("%d of %d calls to a server that hangs were decided", answered.Load(), workers*each)
	}
	redis.Resume()
	resumed := time.Now()
	eventually(t, "a decision after the server is back", func() bool {
		_, err := s.Take(context.Background(), p, "k", 1)
		return err == nil
	})
	t.Logf("the first decision came %v after the server was back: %+v", time.Since(resumed).Round(time.Millisecond), s.Stats())
	if used, sent := 1_000_000-remaining(t, patient, p, "k"), s.Stats().Unknown+2; used > sent {
		t.Errorf("%d units are used, but only %d calls can have been sent", used, sent)
	}
}

// Beyond MaxInFlight calls are rejected at once, and nothing is charged.
func TestServerHangsAndQueueIsFull(t *testing.T) {
	redis := redistest.Start(t)
	s := open(t, Config{Redis: server(redis.Addr()), Now: still, Timeout: 2 * time.Second, MaxInFlight: 10})
	p := twoWays(t)[0]
	eventually(t, "the first take", func() bool {
		_, err := s.Take(context.Background(), p, "k", 1)
		return err == nil
	})
	redis.Pause()
	const callers = 200
	var busy, late atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			start := time.Now()
			_, err := s.Take(context.Background(), p, "k", 1)
			switch {
			case errors.Is(err, errBusy) && time.Since(start) > time.Second:
				t.Errorf("errBusy came after %v, want it at once", time.Since(start))
			case errors.Is(err, errBusy) && !errors.Is(err, weir.ErrUnknown):
				busy.Add(1)
			case errors.Is(err, errTimeout):
				late.Add(1)
			default:
				t.Errorf("take from a server that hangs: error %v, want errBusy or errTimeout", err)
			}
		})
	}
	all.Wait()
	t.Logf("%d callers, 10 in flight: %d were rejected, %d timed out", callers, busy.Load(), late.Load())
	if got := s.Stats(); got.Busy != busy.Load() || busy.Load() < callers-3*10 || got.Unknown > late.Load() {
		t.Errorf("%d callers, 10 in flight and as many with each of two senders: %d were rejected, %d timed out: %+v", callers, busy.Load(), late.Load(), got)
	}
	redis.Resume()
	eventually(t, "a decision after the server is back", func() bool {
		_, err := s.Take(context.Background(), p, "other", 1)
		return err == nil
	})
	eventually(t, "what was taken for those who left to be back", func() bool { return remaining(t, s, p, "k") == 99 })
}

// A server that has become a replica charges nothing, returns an error, and is used again later.
func TestServerBecomesReadOnly(t *testing.T) {
	redis := redistest.Start(t)
	s := open(t, Config{Redis: server(redis.Addr()), Now: still})
	for _, p := range twoWays(t) {
		if _, err := s.Take(context.Background(), p, "k", 1); err != nil {
			t.Fatal(err)
		}
		redis.MustDo("REPLICAOF", "127.0.0.1", "1")
		d, err := s.Take(context.Background(), p, "k", 1)
		if err == nil || errors.Is(err, weir.ErrUnknown) || !strings.Contains(err.Error(), "READONLY") {
			t.Errorf("%s: take from a replica: %v, error %v; want READONLY, and not ErrUnknown", p.Name(), d, err)
		}
		redis.MustDo("REPLICAOF", "NO", "ONE")
		if d, err := s.Take(context.Background(), p, "k", 1); err != nil || d.Remaining != 98 {
			t.Errorf("%s: take when it is a primary again: %v, error %v; want 98 left", p.Name(), d, err)
		}
	}
}

// A server that is full takes nothing and says so; when it has room, decisions are
// back.
func TestServerIsFull(t *testing.T) {
	redis := redistest.Start(t)
	s := open(t, Config{Redis: server(redis.Addr()), Now: still})
	for _, p := range twoWays(t) {
		if _, err := s.Take(context.Background(), p, "k", 1); err != nil {
			t.Fatal(err)
		}
		redis.MustDo("CONFIG", "SET", "maxmemory", "1")
		for _, key := range []string{"k", "new"} {
			d, err := s.Take(context.Background(), p, key, 1)
			if err == nil || errors.Is(err, weir.ErrUnknown) || !strings.Contains(err.Error(), "OOM") {
				t.Errorf("%s: take %s from a full server: %v, error %v; want OOM, and not ErrUnknown", p.Name(), key, d, err)
			}
		}
		wantLeft(t, "while the server is full", s, p, "k", 99)
		redis.MustDo("CONFIG", "SET", "maxmemory", "0")
		wantLeft(t, "after takes from a full server", s, p, "new", 100)
		if d, err := s.Take(context.Background(), p, "k", 1); err != nil || d.Remaining != 98 {
			t.Errorf("%s: take when there is room again: %v, error %v; want 98 left", p.Name(), d, err)
		}
	}
}

// A server that has lost everything forgives one burst. What was set is put back by
// whoever knows it, and was in force all the time.
func TestServerLosesEverything(t *testing.T) {
	redis := redistest.Start(t)
	s := open(t, Config{Redis: server(redis.Addr()), Prefix: "lose:", Now: still})
	for _, p := range twoWays(t) {
		limit := p.Limits()[0]
		limit.Rate, limit.Burst = 10, 10
		fewer := newPolicy(t, p.Name(), limit)
		if err := s.Set(context.Background(), p, fewer); err != nil {
			t.Fatal(err)
		}
		drain := func(when string) {
			for taken := range 100 {
				d, err := s.Take(context.Background(), p, "k", 1)
				if err != nil || d.Limit != 10 {
					t.Fatalf("%s: %s: take %d: %s, error %v; want it decided by the limit of 10", p.Name(), when, taken, show(d), err)
				}
				if !d.Allowed {
					if taken != 10 {
						t.Errorf("%s: %s: got %d units, want 10", p.Name(), when, taken)
					}
					return
				}
			}
		}
		drain("at first")
		redis.MustDo("FLUSHALL")
		drain("after everything was lost")
		eventually(t, "what was set to be put back", func() bool {
			if _, err := s.Take(context.Background(), p, "k", 1); err != nil {
				t.Fatalf("%s: after everything was lost: %v", p.Name(), err)
			}
			return redis.MustDo("LLEN", s.setKey(p.Name())).Text == "1"
		})
		another := open(t, Config{Redis: server(redis.Addr()), Prefix: "lose:", Now: still})
		if d, err := another.Take(context.Background(), p, "k", 1); err != nil || d.Allowed || d.Limit != 10 {
			t.Errorf("%s: take by a process that was not there: %s, error %v; want it refused by the limit of 10", p.Name(), show(d), err)
		}
		if ttl := redis.MustDo("PTTL", s.setKey(p.Name())).Text; strings.HasPrefix(ttl, "-") {
			t.Errorf("%s: what was put back stays for ever: PTTL %s", p.Name(), ttl)
		}
	}
}

// What one process sets, the others follow, also for keys that were not used
// since, and as of the instant at which it was set.
func TestOthersFollowASet(t *testing.T) {
	redis := redistest.Start(t)
	for _, name := range []string{"", "other"} { // take.lua serves the first
		var clock atomic.Int64
		clock.Store(int64(duelStart))
		c := Config{Redis: server(redis.Addr()), Prefix: "follow" + name + ":", Now: func() weir.Instant { return weir.Instant(clock.Load()) }}
		setter, follower := open(t, c), open(t, c)
		old := newPolicy(t, "p", weir.Limit{Name: name, Rate: 10, Per: weir.Every(10 * time.Second)})
		slow := newPolicy(t, "p", weir.Limit{Name: name, Rate: 10, Per: weir.Every(20 * time.Second), Burst: 20})
		for _, key := range []string{"a", "b"} {
			if d, err := follower.Take(context.Background(), old, key, 5); err != nil || d.Remaining != 5 {
				t.Fatalf("take 5 of 10: %v, error %v", d, err)
			}
		}
		clock.Add(int64(time.Second)) // 4 of 10 are in use
		if err := setter.Set(context.Background(), old, slow); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the other process to hear of it", func() bool {
			d, err := follower.Take(context.Background(), old, "new", 0)
			if err != nil {
				t.Fatal(err)
			}
			return d.Limit == 20
		})
		clock.Add(int64(4 * time.Second)) // the 4 units took 8 s when it was set, so 2 are left
		wantLeft(t, "a key that was not used since", follower, old, "a", 18)
		if d, err := follower.Take(context.Background(), old, "b", 1); err != nil || d.Remaining != 17 || d.Limit != 20 {
			t.Errorf("take from a key that was not used since: %s, error %v; want 17 of 20 left", show(d), err)
		}
		wantLeft(t, "for the process that set it", setter, old, "b", 17)
	}
}

// A process that has missed a Set learns it from the first row that was written since.
func TestMissedSet(t *testing.T) {
	redis := redistest.Start(t)
	for _, name := range []string{"", "other"} {
		c := Config{Redis: server(redis.Addr()), Prefix: "missed" + name + ":", Now: still}
		setter, deaf := open(t, c), open(t, c)
		deaf.unwatch() // nobody tells it anything any more
		deaf.unwatch = func() {}
		old := newPolicy(t, "p", weir.Limit{Name: name, Rate: 10, Per: weir.Every(time.Hour)})
		less := newPolicy(t, "p", weir.Limit{Name: name, Rate: 4, Per: weir.Every(time.Hour)})
		if d, err := deaf.Take(context.Background(), old, "k", 1); err != nil || d.Limit != 10 {
			t.Fatalf("take: %s, error %v", show(d), err)
		}
		if err := setter.Set(context.Background(), old, less); err != nil {
			t.Fatal(err)
		}
		if d, err := setter.Take(context.Background(), less, "k", 1); err != nil || d.Remaining != 2 {
			t.Fatalf("take by the process that set it: %s, error %v", show(d), err)
		}
		for i, want := range []int64{1, 0, 0} {
			d, err := deaf.Take(context.Background(), old, "k", 1)
			if err != nil || d.Limit != 4 || d.Remaining != want || d.Allowed != (i < 2) {
				t.Errorf("take %d by a process that has missed the Set: %s, error %v; want %d of 4 left", i, show(d), err, want)
			}
		}
		b := weir.Batch{Op: weir.TakeAll, Charges: []weir.Charge{{Policy: old, Key: "k", Cost: 1}, {Policy: old, Key: "l", Cost: 1}}}
		if err := deaf.Do(context.Background(), &b); err != nil || b.Allowed() || b.Decisions[1].Limit != 4 {
			t.Errorf("take all by a process that has missed the Set: %+v, error %v; want it refused by the limit of 4", b.Decisions, err)
		}
	}
}

// So it does if only the burst was set, and from a batch.
func TestBatchAfterAMissedSet(t *testing.T) {
	redis := redistest.Start(t)
	c := Config{Redis: server(redis.Addr()), Prefix: "batch:", Now: still}
	setter, deaf := open(t, c), open(t, c)
	deaf.unwatch()
	deaf.unwatch = func() {}
	old := newPolicy(t, "p", weir.Limit{Rate: 10, Per: weir.Every(time.Hour)})
	less := newPolicy(t, "p", weir.Limit{Rate: 10, Per: weir.Every(time.Hour), Burst: 4})
	both := func() weir.Batch {
		b := weir.Batch{Op: weir.TakeAll, Charges: []weir.Charge{{Policy: old, Key: "k", Cost: 1}, {Policy: old, Key: "l", Cost: 1}}}
		if err := deaf.Do(context.Background(), &b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	if b := both(); !b.Allowed() || b.Decisions[0].Remaining != 9 {
		t.Fatalf("%+v", b.Decisions)
	}
	if err := setter.Set(context.Background(), old, less); err != nil {
		t.Fatal(err)
	}
	if d, err := setter.Take(context.Background(), less, "k", 3); err != nil || d.Remaining != 0 || !d.Allowed {
		t.Fatalf("take by the process that set it: %s, error %v", show(d), err)
	}
	if b := both(); b.Allowed() || b.Decisions[0].Limit != 4 {
		t.Errorf("take all by a process that has missed the Set: %+v; want it refused by the limit of 4", b.Decisions)
	}
	wantLeft(t, "what was refused", setter, less, "l", 3)
}

// A row out of which something was given back is still known as one of its limits, and
// so converted as of the instant at which they are replaced.
func TestUndoThenSet(t *testing.T) {
	redis := redistest.Start(t)
	var clock atomic.Int64
	clock.Store(int64(duelStart))
	s := open(t, Config{Redis: server(redis.Addr()), Now: func() weir.Instant { return weir.Instant(clock.Load()) }})
	p := newPolicy(t, "p", weir.Limit{Rate: 10, Per: weir.Every(10 * time.Second)})
	override := newPolicy(t, "p", weir.Limit{Rate: 10, Per: weir.Every(30 * time.Second)})
	slow := newPolicy(t, "p", weir.Limit{Rate: 10, Per: weir.Every(20 * time.Second), Burst: 20})
	if d, err := s.Take(context.Background(), p, "k", 5); err != nil || !d.Allowed {
		t.Fatalf("take 5 of 10: %v, error %v", d, err)
	}
	if err := s.Set(context.Background(), override, slow); err != nil { // does not concern p
		t.Fatal(err)
	}
	undo(t, s, p, "k", 1, s.nowMicros())
	wantLeft(t, "after a take of 5, of which 1 was given back", s, p, "k", 6)
	clock.Add(int64(time.Second)) // 3 of 10 are in use
	if err := s.Set(context.Background(), p, slow); err != nil {
		t.Fatal(err)
	}
	clock.Add(int64(4 * time.Second)) // the 3 took 6 s when it was set, so 1 is left
	wantLeft(t, "4 s after 3 of 10 became 3 of 20 of twice the length", s, p, "k", 19)
}

// Rows of a version whose record is lost, and known to nobody any more, are decided by
// what their callers bring. What is in use stays in use.
func TestRecordIsLost(t *testing.T) {
	redis := redistest.Start(t)
	for _, name := range []string{"", "other"} { // take.lua serves the first
		config := Config{Redis: server(redis.Addr()), Prefix: "norecord" + name + ":", Now: still}
		setter := open(t, config)
		p := newPolicy(t, "p", weir.Limit{Name: name, Rate: 10, Per: weir.Every(time.Hour)})
		less := newPolicy(t, "p", weir.Limit{Name: name, Rate: 9, Per: weir.Every(time.Hour)})
		if err := setter.Set(context.Background(), p, less); err != nil {
			t.Fatal(err)
		}
		if d, err := setter.Take(context.Background(), p, "k", 6); err != nil || d.Remaining != 3 {
			t.Fatalf("take 6 of 9: %s, error %v", show(d), err)
		}
		setter.Close()
		redis.MustDo("DEL", setter.setKey("p"))
		other := open(t, config)
		for want := int64(3); want >= 0; want-- {
			if d, err := other.Take(context.Background(), p, "k", 1); err != nil || !d.Allowed || d.Limit != 10 || d.Remaining != want {
				t.Errorf("take where 6 of 9 were used, by a process that knows only 10: %s, error %v; want %d left", show(d), err, want)
			}
		}
	}
}

// An error after which nothing can have been charged is not ErrUnknown.
func TestErrorsAfterWhichNothingIsCharged(t *testing.T) {
	redis := redistest.Start(t)
	ten := weir.Limit{Name: "other", Rate: 10, Per: weir.Every(time.Hour)}
	p := newPolicy(t, "p", ten)
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, setter *Store) *weir.Policy // returns what to take under
		want  error
	}{
		{"overfull", func(t *testing.T, setter *Store) *weir.Policy {
			small := ten
			small.Rate, small.Burst, small.MaxDebt = 5, 1, 1
			return newPolicy(t, "p", small)
		}, errOverfull},
		{"slots", func(t *testing.T, setter *Store) *weir.Policy {
			slots := newPolicy(t, "p", weir.Limit{Name: "other", Rate: 10, Algorithm: weir.Concurrency})
			if err := setter.Set(context.Background(), p, slots); err != nil {
				t.Fatal(err)
			}
			do(t, setter, &weir.Batch{Op: weir.ReserveAll, Charges: []weir.Charge{{Policy: p, Key: "k", Cost: 1}}})
			return p
		}, weir.ErrReserveOnly},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := Config{Redis: server(redis.Addr()), Prefix: strings.ReplaceAll(c.name, " ", "-") + ":", Now: still}
			setter, deaf := open(t, config), open(t, config)
			deaf.unwatch()
			deaf.unwatch = func() {}
			if d, err := deaf.Take(context.Background(), p, "k", 5); err != nil || !d.Allowed {
				t.Fatalf("take 5 of 10: %v, error %v", d, err)
			}
			under := c.spoil(t, setter)
			d, err := deaf.Take(context.Background(), under, "k", 1)
			if !errors.Is(err, c.want) || errors.Is(err, weir.ErrUnknown) {
				t.Errorf("take: %v, error %v; want %q, and not ErrUnknown", d, err, c.want)
			}
			debit := weir.Batch{Op: weir.DebitEach, Charges: []weir.Charge{{Policy: under, Key: "k", Cost: 1}}}
			if err := deaf.Do(context.Background(), &debit); !errors.Is(err, c.want) || errors.Is(err, weir.ErrUnknown) {
				t.Errorf("debit: error %v; want %q, and not ErrUnknown", err, c.want)
			}
			if got := deaf.Stats().Unknown; got != 0 {
				t.Errorf("take: %d outcomes are unknown, want none", got)
			}
		})
	}
	t.Run("record that cannot be read", func(t *testing.T) {
		relay := redistest.NewRelay(t, redis.Addr())
		s := open(t, Config{Redis: server(relay.Addr()), Now: still, Timeout: 100 * time.Millisecond})
		relay.Block()
		defer relay.Unblock()
		d, err := s.Take(context.Background(), p, "k", 1)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, weir.ErrUnknown) {
			t.Errorf("the first take under a policy, from a server that hangs: %v, error %v; want a timeout, and not ErrUnknown", d, err)
		}
	})
}

// After a failover with Sentinel, decisions are made by the new primary.
func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	s := open(t, Config{
		Redis:   Server{Addrs: sentinel.SentinelAddrs(), Sentinel: sentinel.MasterName()},
		Timeout: 200 * time.Millisecond,
	})
	failOver(t, sentinel, s, "requested", sentinel.Failover)
	if long {
		sentinel.WaitPromoted()
		sentinel.WaitInSync()
		failOver(t, sentinel, s, "killed", func() {
			sentinel.Primary().Kill()
			sentinel.WaitPromoted()
		})
	}
}

// failOver takes until the charge is on the replica, which promote makes the primary.
func failOver(t *testing.T, sentinel *redistest.Sentinel, s *Store, how string, promote func()) {
	t.Helper()
	p := newPolicy(t, how, weir.Limit{Rate: 100, Per: weir.Every(1000 * time.Hour)})
	eventually(t, "the first take", func() bool {
		_, err := s.Take(context.Background(), p, "before", 100)
		return err == nil
	})
	next := sentinel.Replica()
	sentinel.Primary().WaitReplica(next)
	promote()
	promoted := time.Now()
	errs := map[string]int{}
	for i := 0; ; i++ {
		key := fmt.Sprint("after", i)
		_, err := s.Take(context.Background(), p, key, 1)
		if err == nil && next.MustDo("EXISTS", rowKey(s.rowPrefix(p.Name()), key)).Text == "1" {
			break
		}
		if err != nil {
			errs[err.Error()]++
		}
		if time.Since(promoted) > 30*time.Second {
			t.Fatalf("%s: 30 s after the promotion, takes do not reach the new primary: %v", how, errs)
		}
		time.Sleep(time.Millisecond)
	}
	took := time.Since(promoted)
	t.Logf("%s: decisions reached the new primary %v after its promotion; errors meanwhile: %v", how, took.Round(time.Millisecond), errs)
	if long && took > 2*time.Second {
		t.Errorf("%s: decisions reached the new primary %v after its promotion, want 2 s at most", how, took)
	}
	eventually(t, "an answer about a key that was empty before", func() bool {
		d, err := s.Take(context.Background(), p, "before", 1)
		if d.Allowed {
			t.Errorf("%s: take from a key that was empty before: %v, error %v; want it refused", how, d, err)
		}
		return err == nil
	})
}

// In a cluster, charges on several slots are taken all or not at all, keys of slots with
// a master go on when another master dies, and the others come back with its replica.
func TestCluster(t *testing.T) {
	t.Parallel()
	nodeTimeout := time.Second
	cluster := redistest.StartCluster(t, redistest.NodeTimeout(nodeTimeout), redistest.Config("cluster-require-full-coverage", "no"))
	to := Server{Addrs: cluster.Addrs()}
	t.Run("all or nothing", func(t *testing.T) { clusterTakesAllOrNothing(t, to) })
	t.Run("reservations", func(t *testing.T) { clusterReserves(t, to) })
	t.Run("crossing", func(t *testing.T) { clusterCrosses(t, to) })
	t.Run("redirects", func(t *testing.T) { clusterRedirects(t, cluster, to) })
	t.Run("a master dies", func(t *testing.T) { clusterLosesAMaster(t, cluster, to, nodeTimeout) })
}

// shard returns which of three masters has a key, as redistest gives them slots.
func shard(key string) int { return int(redisconn.Slot(key)) * 3 / redisconn.Slots }

// keyOn returns a key of p that lies on a master, and is not among others.
func keyOn(s *Store, p *weir.Policy, master int, name string) string {
	for i := 0; ; i++ {
		key := fmt.Sprint(name, i)
		if shard(rowKey(s.rowPrefix(p.Name()), key)) == master {
			return key
		}
	}
}

// onThree returns charges of p on three masters, the last first.
func onThree(s *Store, p *weir.Policy, costs ...int64) (list []weir.Charge) {
	for i, cost := range costs {
		list = append(list, weir.Charge{Policy: p, Key: keyOn(s, p, 2-i, "k"), Cost: cost})
	}
	return list
}

func do(t *testing.T, s *Store, b *weir.Batch) *weir.Batch {
	t.Helper()
	if err := s.Do(context.Background(), b); err != nil {
		t.Fatalf("%s %v: %v", ops[b.Op], b.Charges, err)
	}
	return b
}

// wantEach checks what the keys of charges have left, in the end.
func wantEach(t *testing.T, when string, s *Store, charges []weir.Charge, want ...int64) {
	t.Helper()
	var got []int64
	defer func() {
		if t.Failed() {
			t.Logf("%s: %v units are left, want %v", when, got, want)
		}
	}()
	eventually(t, "what is left "+when, func() bool {
		got = got[:0]
		for _, c := range charges {
			got = append(got, remaining(t, s, c.Policy, c.Key))
		}
		return slices.Equal(got, want)
	})
}

func clusterTakesAllOrNothing(t *testing.T, to Server) {
	s := open(t, Config{Redis: to, Now: still})
	for _, p := range twoWays(t) {
		charges := onThree(s, p, 3, 4, 5)
		b := do(t, s, &weir.Batch{Op: weir.TakeAll, Charges: charges})
		for i, d := range b.Decisions {
			if want := 100 - charges[i].Cost; !d.Allowed || d.Remaining != want {
				t.Errorf("%s: take all, charge %d: got %s, want %d left", p.Name(), i, show(d), want)
			}
		}
		wantEach(t, "after a take of 3, 4 and 5", s, charges, 97, 96, 95)

		empty := []weir.Charge{{Policy: p, Key: charges[1].Key, Cost: 96}}
		do(t, s, &weir.Batch{Op: weir.TakeEach, Charges: empty})
		before := do(t, s, &weir.Batch{Op: weir.PeekEach, Charges: charges}).Decisions
		b = do(t, s, &weir.Batch{Op: weir.TakeAll, Charges: charges})
		for i, want := range []weir.Reason{weir.NotCharged, weir.Exhausted, weir.NotCharged} {
			if d := b.Decisions[i]; d.Allowed || d.Reason != want {
				t.Errorf("%s: take all where the second is empty, charge %d: got %s, want it not taken, reason %v", p.Name(), i, show(d), want)
			}
		}
		eventually(t, "everything to be as before, exactly", func() bool {
			return slices.Equal(do(t, s, &weir.Batch{Op: weir.PeekEach, Charges: charges}).Decisions, before)
		})

		b = do(t, s, &weir.Batch{Op: weir.TakeEach, Charges: charges})
		if !b.Decisions[0].Allowed || b.Decisions[1].Allowed || !b.Decisions[2].Allowed {
			t.Errorf("%s: take each where the second is empty: got %v", p.Name(), b.Decisions)
		}
		wantEach(t, "after a take of each", s, charges, 94, 0, 90)
		b = do(t, s, &weir.Batch{Op: weir.DebitEach, Charges: charges})
		for i, want := range []int64{91, 0, 85} {
			if d := b.Decisions[i]; !d.Allowed || d.Remaining != want {
				t.Errorf("%s: debit each, charge %d: got %s, want %d left", p.Name(), i, show(d), want)
			}
		}
		do(t, s, &weir.Batch{Op: weir.ResetEach, Charges: charges})
		wantEach(t, "after a reset", s, charges, 100, 100, 100)
	}
}

func clusterReserves(t *testing.T, to Server) {
	s := open(t, Config{Redis: to, Now: still})
	for _, p := range twoWays(t) {
		charges := onThree(s, p, 10, 20, 30)
		b := do(t, s, &weir.Batch{Op: weir.ReserveAll, Charges: charges})
		if !b.Allowed() {
			t.Fatalf("%s: reserve: %v", p.Name(), b.Decisions)
		}
		wantEach(t, "after a reservation", s, charges, 90, 80, 70)
		renewed := do(t, s, &weir.Batch{Op: weir.Renew, TTL: time.Hour, Charges: charges, Receipts: b.Receipts})
		for i, r := range renewed.Receipts {
			if want := duelStart.Add(time.Hour); r.Expiry != want {
				t.Errorf("%s: renew for an hour, charge %d: until %v, want %v", p.Name(), i, r.Expiry.Time(), want.Time())
			}
		}
		used := slices.Clone(charges)
		used[0].Cost, used[2].Cost = 0, 35
		settle := do(t, s, &weir.Batch{Op: weir.Settle, Charges: used, Receipts: b.Receipts})
		if want := []weir.Settled{{Refunded: 10}, {}, {Overrun: 5}}; !slices.Equal(settle.Settled, want) {
			t.Errorf("%s: settle 0 of 10, 20 of 20 and 35 of 30: got %+v, want %+v", p.Name(), settle.Settled, want)
		}
		wantEach(t, "after it was settled", s, charges, 100, 80, 65)
		again := do(t, s, &weir.Batch{Op: weir.Settle, Charges: used, Receipts: b.Receipts})
		if !slices.Equal(again.Settled, settle.Settled) {
			t.Errorf("%s: settle again: got %+v, want %+v as the first time", p.Name(), again.Settled, settle.Settled)
		}
		wantEach(t, "after it was settled again", s, charges, 100, 80, 65)
		charges[1].Cost = 81
		if refused := do(t, s, &weir.Batch{Op: weir.ReserveAll, Charges: charges}); refused.Allowed() {
			t.Errorf("%s: reserve 81 of 80: %v", p.Name(), refused.Decisions)
		}
		wantEach(t, "after a reservation that was refused", s, charges, 100, 80, 65)
	}
}

// clusterCrosses lets batches that want the same two keys, in either order, meet.
func clusterCrosses(t *testing.T, to Server) {
	s := open(t, Config{Redis: to, Now: still})
	for _, p := range twoWays(t) {
		ab := onThree(s, p, 1, 1)
		ba := []weir.Charge{ab[1], ab[0]}
		var admitted atomic.Int64
		var all sync.WaitGroup
		for g := range 10 {
			all.Go(func() {
				for range 25 {
					b := weir.Batch{Op: weir.TakeAll, Charges: [][]weir.Charge{ab, ba}[g%2]}
					if err := s.Do(context.Background(), &b); err != nil {
						t.Errorf("%s: take all: %v", p.Name(), err)
						return
					}
					if b.Allowed() {
						admitted.Add(1)
					}
				}
			})
		}
		all.Wait()
		t.Logf("%s: 250 crossing batches for 100: %d were admitted", p.Name(), admitted.Load())
		if got := admitted.Load(); got > 100 || got == 0 {
			t.Errorf("%s: 250 crossing batches for 100 units: %d were admitted", p.Name(), got)
		}
		wantEach(t, "after crossing batches", s, ab, 100-admitted.Load(), 100-admitted.Load())
	}
}

// clusterLosesAMaster asks for 100 keys all the time while the last master is killed.
func clusterLosesAMaster(t *testing.T, cluster *redistest.Cluster, to Server, nodeTimeout time.Duration) {
	s := open(t, Config{Redis: to, Now: still, Timeout: 2 * time.Second}) // nodes write to disk when a master dies, and stand still
	const dead = 2
	var watched []*watchedKey
	for _, p := range []*weir.Policy{policyOn(t, s, 0), policyOn(t, s, dead)} {
		for _, key := range clusterKeys(s, p) {
			watched = append(watched, &watchedKey{store: s, policy: p, key: key, shard: shard(rowKey(s.rowPrefix(p.Name()), key))})
		}
	}
	for _, w := range watched {
		eventually(t, "the first take of "+w.key, func() bool { return w.ask() == nil })
	}
	var all sync.WaitGroup
	var ended atomic.Bool
	for _, w := range watched {
		all.Go(func() { w.run(&ended) })
	}
	replica := cluster.ReplicaOf(cluster.Masters()[dead])
	cluster.Masters()[dead].Kill()
	killed := time.Now()
	across := onThree(s, twoWays(t)[0], 3, 3, 3)
	if err := s.Do(context.Background(), &weir.Batch{Op: weir.TakeAll, Charges: across}); err == nil {
		t.Error("take all, one charge being on a master that was just killed: no error")
	}
	wantEach(t, "where masters live, after a take of all that failed", s, across[1:], 100, 100)
	var promoted time.Time
	eventually(t, "all keys to be back", func() bool {
		if promoted.IsZero() && strings.Contains(replica.MustDo("INFO", "replication").Text, "role:master") {
			promoted = time.Now()
		}
		for _, w := range watched {
			if w.lastOK.Load() < killed.UnixNano() || w.shard == dead && w.failures.Load() == 0 {
				return false
			}
		}
		return true
	})
	took, behind := time.Since(killed), time.Since(promoted)
	ended.Store(true)
	all.Wait()
	var failures, slowest int64
	for _, w := range watched {
		if w.shard == dead {
			failures += w.failures.Load()
			continue
		}
		slowest = max(slowest, w.slowest.Load())
		if err := w.firstError.Load(); err != nil {
			t.Errorf("%s/%s on master %d, which lives: %d errors, the first %v", w.policy.Name(), w.key, w.shard, w.failures.Load(), *err)
		}
	}
	t.Logf("with a node timeout of %v all keys were back %v after the kill, %v after there was a new master, after %d errors; the slowest call to a master that lived took %v",
		nodeTimeout, took.Round(time.Millisecond), behind.Round(time.Millisecond), failures, time.Duration(slowest).Round(time.Millisecond))
	if long && took > nodeTimeout+2500*time.Millisecond {
		t.Errorf("the keys of a master that was killed were back after %v, want %v and 2.5 s at most", took, nodeTimeout)
	}
}

// clusterKeys returns 50 keys, some of which share a send queue although they lie on different
// masters.
func clusterKeys(s *Store, p *weir.Policy) (keys []string) {
	shared := s.queues[2*redisconn.Slots/3*ClusterPartitions/redisconn.Slots]
	for i := 0; len(keys) < 50; i++ {
		key := fmt.Sprint("k", i)
		if len(keys) < 40 || s.queueOf(rowKey(s.rowPrefix(p.Name()), key)) == shared {
			keys = append(keys, key)
		}
	}
	return keys
}

// policyOn returns a policy the record of whose Sets lies on a master.
func policyOn(t *testing.T, s *Store, master int) *weir.Policy {
	t.Helper()
	for i := 0; ; i++ {
		if name := fmt.Sprint("p", i); shard(s.setKey(name)) == master {
			return newPolicy(t, name, weir.Limit{Rate: 1_000_000, Per: weir.Every(1000 * time.Hour)})
		}
	}
}

// A watchedKey is used all the time.
type watchedKey struct {
	store      *Store
	policy     *weir.Policy
	key        string
	shard      int
	failures   atomic.Int64
	firstError atomic.Pointer[error]
	lastOK     atomic.Int64 // when the last call was made that was decided, in Unix ns
	slowest    atomic.Int64 // ns that a call took
}

func (w *watchedKey) ask() error {
	_, err := w.store.Take(context.Background(), w.policy, w.key, 1)
	return err
}

func (w *watchedKey) run(ended *atomic.Bool) {
	for !ended.Load() {
		start := time.Now()
		if err := w.ask(); err != nil {
			w.failures.Add(1)
			w.firstError.CompareAndSwap(nil, &err)
		} else {
			w.lastOK.Store(start.UnixNano())
		}
		w.slowest.Store(max(w.slowest.Load(), int64(time.Since(start))))
		time.Sleep(10 * time.Millisecond)
	}
}
