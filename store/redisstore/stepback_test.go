package redisstore

import (
	"context"
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
	for _, way := range []string{"take.lua", "small.lua", "do.lua"} {
		var now atomic.Int64
		now.Store(int64(weir.Now()))
		s := open(t, Config{Redis: server(redis.Addr()), Now: func() weir.Instant { return weir.Instant(now.Load()) }, Timeout: 10 * time.Second})
		s.general = way == "do.lua"
		p := newPolicy(t, way, weir.Limit{Rate: 100, Per: weir.Every(time.Second), MaxDebt: 100})
		take := func() weir.Decision {
			t.Helper()
			if way != "small.lua" {
				d, err := s.Take(context.Background(), p, "k", 1)
				if err != nil {
					t.Fatal(err)
				}
				return d
			}
			b := weir.Batch{Op: weir.TakeEach, Charges: []weir.Charge{{Policy: p, Key: "k", Cost: 1}, {Policy: p, Key: "other", Cost: 1}}}
			if err := s.Do(context.Background(), &b); err != nil {
				t.Fatal(err)
			}
			return b.Decisions[0]
		}
		for range 50 {
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
		if waited < time.Second || waited > 1050*time.Millisecond { // (burst + debt + 1 − burst) / rate
			t.Errorf("%s: refused for %v, want 1.01 s, in steps of 50 ms", way, waited)
		}
	}
}
