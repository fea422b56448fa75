package redisstore

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// atOnce makes calls while the server does not answer, until all of them wait, and then lets it go on.
// It returns how many commands they took. The calls must be under policies that the store knows.
func atOnce(t *testing.T, redis *redistest.Server, s *Store, calls ...func()) int64 {
	t.Helper()
	first := weir.Must(weir.NewPolicy("first", weir.PerSecond(1)))
	peek := func() { _, _ = weir.Peek(t.Context(), s, first, "k", 1) }
	peek()
	before := s.Stats().Commands
	redis.Pause()
	var all sync.WaitGroup
	all.Go(peek)
	eventually(t, "a call to be in flight, so that the others wait", func() bool { return s.Stats().Commands > before })
	for _, call := range calls {
		all.Go(call)
	}
	eventually(t, "all calls to wait", func() bool { return s.under.Load() > int64(len(calls)) })
	redis.Resume()
	all.Wait()
	return s.Stats().Commands - before - 1
}

// TestReservationsAreCombined: reservations and settlements of one key that wait at the same time are sent
// together, and each is decided by itself: one that does not fit stops no other.
func TestReservationsAreCombined(t *testing.T) {
	redis := redistest.Start(t)
	s := open(t, Config{Redis: server(redis.Addr()), Timeout: 30 * time.Second})
	classes := weir.ClassesOf(weir.Class{Name: "a", Guaranteed: 60}, weir.Class{Name: "b", Guaranteed: 40})
	p := weir.Must(weir.NewPolicy("p", weir.Limit{Rate: 100, Per: weir.Every(24 * time.Hour), Classes: classes}))
	know(t, s, p)
	const callers = 30
	got := make([]*weir.Reservation, callers)
	var calls []func()
	for i := range callers {
		view := weir.Must(p.Class([]string{"a", "b"}[i%2]))
		cost := int64(3 + i%2) // 45 of the 60, and 60 of the 40
		if i == 6 {
			cost = 61
		}
		calls = append(calls, func() {
			r, err := weir.Reserve(t.Context(), s, time.Minute, weir.Charge{Policy: view, Key: "k", Cost: cost})
			if err != nil {
				t.Errorf("reserve: %v", err)
			}
			got[i] = r
		})
	}
	if n := atOnce(t, redis, s, calls...); n > callers/3 {
		t.Errorf("%d reservations took %d commands", callers, n)
	}
	admitted := map[int]int{}
	for i, r := range got {
		if r.Decision.Allowed {
			admitted[i%2]++
		}
		if r.Decision.Allowed && i == 6 || i == 6 && r.Decision.Reason != weir.TooCostly {
			t.Errorf("61 of 60: %v", r.Decision)
		}
	}
	if admitted[0] != 14 || admitted[1] != 10 {
		t.Errorf("%d of the first class and %d of the second were admitted, want 14 of 3 units and 10 of 4", admitted[0], admitted[1])
	}

	calls = nil
	var back, over int64
	var mu sync.Mutex
	for i, r := range got {
		if !r.Decision.Allowed {
			continue
		}
		used := int64(i % 6)
		calls = append(calls, func() {
			out, err := r.Commit(t.Context(), used)
			cost := int64(3 + i%2)
			if want := (weir.Settled{Refunded: max(0, cost-used), Overrun: max(0, used-cost)}); err != nil || out[0] != want {
				t.Errorf("%d of %d used: %+v, error %v", used, cost, out, err)
			}
			mu.Lock()
			defer mu.Unlock()
			back, over = back+out[0].Refunded, over+out[0].Overrun
		})
	}
	if n := atOnce(t, redis, s, calls...); n > callers/3 {
		t.Errorf("%d settlements took %d commands", len(calls), n)
	}
	used := 14*3 + 10*4 - back + over
	whole := weir.Must(p.With(weir.Limit{Rate: 100, Per: weir.Every(24 * time.Hour)}))
	if d, err := weir.Peek(t.Context(), s, whole, "k", 0); err != nil || d.Remaining != 100-used {
		t.Errorf("%v, error %v, want %d left", d, err, 100-used)
	}
}

// TestCombinedErrorsAreOfOne: where one of several reservations cannot be decided, the others are.
func TestCombinedErrorsAreOfOne(t *testing.T) {
	redis := redistest.Start(t)
	s := open(t, Config{Redis: server(redis.Addr()), Timeout: 30 * time.Second})
	p := weir.Must(weir.NewPolicy("p", weir.Limit{Rate: 100, Per: weir.Every(24 * time.Hour)}))
	small := weir.Must(p.With(weir.Limit{Rate: 1, Per: weir.Every(24 * time.Hour), MaxDebt: 1})) // which cannot remember 50 units
	know(t, s, p, small)
	if d, err := s.Take(t.Context(), p, "k", 50); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	errs := make([]error, 6)
	var calls []func()
	for i := range errs {
		under := p
		if i == 3 {
			under = small
		}
		calls = append(calls, func() {
			var r *weir.Reservation
			if r, errs[i] = weir.Reserve(t.Context(), s, time.Minute, weir.Charge{Policy: under, Key: "k", Cost: 1}); errs[i] == nil && !r.Decision.Allowed {
				t.Errorf("reservation %d: %v", i, r.Decision)
			}
		})
	}
	atOnce(t, redis, s, calls...)
	for i, err := range errs {
		if (err != nil) != (i == 3) || err != nil && !errors.Is(err, weir.ErrInvalid) {
			t.Errorf("reservation %d: error %v", i, err)
		}
	}
}

// know lets a store look up what is in force for policies.
func know(t *testing.T, s *Store, policies ...*weir.Policy) {
	t.Helper()
	for _, p := range policies {
		if _, err := weir.Peek(t.Context(), s, p, "known", 0); err != nil {
			t.Fatal(err)
		}
	}
}
