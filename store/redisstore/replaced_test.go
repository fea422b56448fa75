package redisstore

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// reports is what OnReplaced was called with.
type reports struct {
	mu   sync.Mutex // guards the field below
	list []Replacement
}

func (r *reports) add(one Replacement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, one)
}

// limit returns the limit by which a store decides for those who bring p.
func limit(t *testing.T, s *Store, p *weir.Policy) int64 {
	t.Helper()
	d, err := s.Take(context.Background(), p, "alice", 0)
	if err != nil {
		t.Fatal(err)
	}
	return d.Limit
}

// versions returns policies of one name with limits of 10, 20 and so on per hour.
func versions(t *testing.T, n int) (list []*weir.Policy) {
	t.Helper()
	for i := range n {
		list = append(list, newPolicy(t, "api", weir.Limit{Rate: int64(10 * (i + 1)), Per: weir.Every(time.Hour)}))
	}
	return list
}

func mustSet(t *testing.T, s *Store, old, new *weir.Policy) {
	t.Helper()
	if err := s.Set(context.Background(), old, new); err != nil {
		t.Fatal(err)
	}
}

// pushed waits until a store knows that the record has changed.
func pushed(t *testing.T, s *Store) {
	t.Helper()
	eventually(t, "a push from the server", s.historyOf("api").stale.Load)
}

// wantReports closes a store, which waits for its reports, and compares them.
func wantReports(t *testing.T, s *Store, r *reports, want ...string) {
	t.Helper()
	s.Close()
	var got []string
	for _, one := range r.list {
		got = append(got, fmt.Sprintf("%s: %s: %d → %d, before start %v",
			one.Requested.Name(), limitsText(one.Requested), one.Old.Limits()[0].Rate, one.InForce.Limits()[0].Rate, one.BeforeStart))
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("reported:\n%s\nwant:\n%s", g, w)
	}
}

// A process that is deployed with limits that were replaced is decided by the replacement,
// and that is reported once. Set(p, p) puts the limits in force again, everywhere.
func TestRedeployedOldLimits(t *testing.T) {
	redis := redistest.Start(t)
	v := versions(t, 2)
	var first, second, third reports
	prefix := "redeployed:"
	a := open(t, Config{Redis: server(redis.Addr()), Prefix: prefix, OnReplaced: first.add})
	limit(t, a, v[0])
	before := timeOf(t, redis)
	mustSet(t, a, v[0], v[1])
	after := timeOf(t, redis)

	b := open(t, Config{Redis: server(redis.Addr()), Prefix: prefix, OnReplaced: second.add})
	again := versions(t, 1)[0] // the same limits, in another object
	for _, p := range []*weir.Policy{v[0], again, v[0], again} {
		if got := limit(t, b, p); got != 20 {
			t.Errorf("whoever brings limits that were replaced gets %d, want 20", got)
		}
	}
	mustSet(t, b, v[0], v[0])
	pushed(t, a)
	for i, s := range []*Store{a, b} {
		for j, p := range v {
			if got := limit(t, s, p); got != 10 {
				t.Errorf("store %d gives %d to who brings version %d, want 10: it was put in force again", i, got, j+1)
			}
		}
	}
	c := open(t, Config{Redis: server(redis.Addr()), Prefix: prefix, OnReplaced: third.add})
	if got := limit(t, c, v[0]); got != 10 {
		t.Errorf("a process that starts then gets %d, want 10", got)
	}
	wantReports(t, b, &second, "api: 10 per 1h0m0s (gcra): 10 → 20, before start true")
	if at := second.list[0].Since.UnixMicro(); at < before || at > after {
		t.Errorf("in force since %d, want %d to %d", at, before, after)
	}
	wantReports(t, a, &first,
		"api: 10 per 1h0m0s (gcra): 20 → 10, before start false",
		"api: 20 per 1h0m0s (gcra): 20 → 10, before start false")
	wantReports(t, c, &third)
}

// Each change by others is reported once, however many calls come at once, and own ones are not.
func TestReportedOnce(t *testing.T) {
	redis := redistest.Start(t)
	v := versions(t, 12)
	var own, others reports
	const prefix = "once:"
	a := open(t, Config{Redis: server(redis.Addr()), Prefix: prefix, OnReplaced: own.add})
	b := open(t, Config{Redis: server(redis.Addr()), Prefix: prefix, OnReplaced: others.add})
	callers := func() {
		var all sync.WaitGroup
		for _, s := range []*Store{a, b} {
			for i := range 32 {
				all.Go(func() {
					if _, err := s.Take(context.Background(), v[0], fmt.Sprint(i), 0); err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
	}
	callers()
	var want []string
	for i := 1; i < len(v); i++ {
		mustSet(t, a, v[i-1], v[i])
		pushed(t, b)
		callers() // of which one loads the record
		for _, s := range []*Store{a, b} {
			if got := limit(t, s, v[0]); got != int64(10*(i+1)) {
				t.Errorf("limit %d after change %d", got, i)
			}
		}
		want = append(want, fmt.Sprintf("api: 10 per 1h0m0s (gcra): %d → %d, before start false", 10*i, 10*(i+1)))
	}
	wantReports(t, a, &own)
	wantReports(t, b, &others, want...)
}

// A hook may change limits itself, and holds up no decision meanwhile.
func TestHookMaySet(t *testing.T) {
	redis := redistest.Start(t)
	v := versions(t, 2)
	const prefix = "hook:"
	a := open(t, Config{Redis: server(redis.Addr()), Prefix: prefix})
	mustSet(t, a, v[0], v[1])
	var b *Store
	goOn, ended := make(chan struct{}), make(chan error, 1)
	b = open(t, Config{Redis: server(redis.Addr()), Prefix: prefix, OnReplaced: func(r Replacement) {
		<-goOn
		ended <- b.Set(context.Background(), r.Requested, r.Requested)
	}})
	if got := limit(t, b, v[0]); got != 20 {
		t.Errorf("limit %d while the hook runs, want 20", got)
	}
	close(goOn)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if got := limit(t, b, v[0]); got != 10 {
		t.Errorf("limit %d after the hook has set it, want 10", got)
	}
}

// A change whose reply was lost is the Store's own all the same: the record has its id.
func TestOwnChangeWithoutReply(t *testing.T) {
	redis := redistest.Start(t)
	v := versions(t, 2)
	var r reports
	s := open(t, Config{Redis: server(redis.Addr()), Prefix: "lost:", OnReplaced: r.add})
	limit(t, s, v[0])
	body, err := changeText(v[0], v[1], s.id)
	if err != nil {
		t.Fatal(err)
	}
	redis.MustDo("RPUSH", s.setKey("api"), "1 1000000 "+body)
	pushed(t, s)
	if got := limit(t, s, v[0]); got != 20 {
		t.Errorf("limit %d, want 20", got)
	}
	wantReports(t, s, &r)
}

// Without a hook it is logged.
func TestReplacedIsLogged(t *testing.T) {
	var text bytes.Buffer
	was := slog.Default()
	defer slog.SetDefault(was)
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	redis := redistest.Start(t)
	v := versions(t, 2)
	a := open(t, Config{Redis: server(redis.Addr()), Prefix: "logged:"})
	mustSet(t, a, v[0], v[1])
	b, err := New(t.Context(), Config{Redis: server(redis.Addr()), Prefix: "logged:", Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	limit(t, b, v[0])
	b.Close()
	line := text.String()
	for _, want := range []string{"level=WARN", "policy=api", `requested="10 per 1h0m0s (gcra)"`, `in_force="20 per 1h0m0s (gcra)"`, "since=20"} {
		if strings.Count(line, want) != 1 {
			t.Errorf("want %s once: %s", want, line)
		}
	}
}
