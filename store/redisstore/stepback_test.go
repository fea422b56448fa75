package redisstore

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// A clock that is set back by an hour makes what is used look like a debt of an hour. Where
// debts are bounded, that is over after burst and debt have come back, although
// everybody is refused meanwhile.
func TestStepBackHeals(t *testing.T) {
	redis := redistest.Start(t)
	classes := weir.ClassesOf(weir.Class{Name: "all", Guaranteed: 100})
	for _, way := range []string{"take.lua", "small.lua", "do.lua", "do.lua-reserve", "lending", "lending-reserve"} {
		var now atomic.Int64
		now.Store(int64(weir.Now()))
		s := open(t, Config{Redis: server(redis.Addr()), Now: func() weir.Instant { return weir.Instant(now.Load()) }, Timeout: 10 * time.Second})
		s.general = way != "take.lua" && way != "small.lua"
		l := weir.Limit{Rate: 100, Per: weir.Every(time.Second), MaxDebt: 100}
		if strings.HasPrefix(way, "lending") {
			l.Classes = classes
		}
		p := newPolicy(t, way, l)
		take := func() weir.Decision {
			t.Helper()
			charge := weir.Charge{Policy: p, Key: "k", Cost: 1}
			b := weir.Batch{Op: weir.TakeEach, Charges: []weir.Charge{charge, {Policy: p, Key: "other", Cost: 1}}}
			var err error
			switch {
			case way == "small.lua":
				err = s.Do(context.Background(), &b)
			case strings.HasSuffix(way, "reserve"):
				var res *weir.Reservation
				if res, err = weir.Reserve(context.Background(), s, time.Minute, charge); err == nil && res.Decision.Allowed {
					_, err = res.Commit(context.Background(), 1)
				}
				b.Decisions = []weir.Decision{res.Decision}
			default:
				var d weir.Decision
				d, err = s.Take(context.Background(), p, "k", 1)
				b.Decisions = []weir.Decision{d}
			}
			if err != nil {
				t.Fatal(err)
			}
			return b.Decisions[0]
		}
		use, want := 50, 1050*time.Millisecond // (burst + debt + 1 − burst) / rate, in steps of 50 ms
		if l.Classes == classes {
			use, want = 100, 2050*time.Millisecond // (burst + debt + 1) / rate: a level does not refill until then
		}
		for range use {
			take()
		}
		now.Add(-int64(time.Hour))
		waited := time.Duration(0)
		for !take().Allowed {
			if waited += 50 * time.Millisecond; waited > 3*time.Second {
				t.Fatalf("%s: still refused %v after the step back", way, waited)
			}
			now.Add(int64(50 * time.Millisecond))
		}
		if waited != want {
			t.Errorf("%s: refused for %v, want %v", way, waited, want)
		}
	}
}

// A recall of what a class has lent, made an hour ahead of the clock, ends a minute later at most.
func TestStepBackEndsRecalls(t *testing.T) {
	redis := redistest.Start(t)
	var now atomic.Int64
	now.Store(int64(weir.Now()))
	s := open(t, Config{Redis: server(redis.Addr()), Now: func() weir.Instant { return weir.Instant(now.Load()) }, Timeout: 10 * time.Second})
	p := newPolicy(t, "recall", weir.Limit{
		Rate: 1000, Per: weir.Every(time.Second), MaxDebt: 1,
		Classes: weir.ClassesOf(weir.Class{Name: "a", Guaranteed: 1000, Burst: 999}, weir.Class{Name: "b"}),
	}, weir.Limit{Name: "window", Rate: 600, Per: weir.Every(10 * time.Second), Algorithm: weir.SlidingLog})
	take := func(class string, cost int64) bool {
		t.Helper()
		d, err := s.Take(context.Background(), weir.Must(p.Class(class)), "k", cost)
		if err != nil {
			t.Fatal(err)
		}
		return d.Allowed
	}
	if !take("a", 500) || take("a", 200) {
		t.Fatal("the window of 600 does not decide")
	}
	now.Add(-int64(time.Hour))
	waited := time.Duration(0)
	for ; !take("b", 1); now.Add(int64(time.Second)) {
		if waited += time.Second; waited > 2*time.Minute {
			t.Fatalf("b does not borrow %v after the step back", waited)
		}
	}
	if waited < 59*time.Second || waited > 61*time.Second {
		t.Errorf("b borrows %v after the step back, want a minute, in steps of a second", waited)
	}
}
