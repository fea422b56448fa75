package guard

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func loginConfig() Config {
	return Config{Endpoints: []Endpoint{{Pattern: "POST /login", Count: CountFailures, Limits: per(5, time.Minute)}}}
}

// TestParallelGuesses: of 1,000 wrong passwords that are sent at once, exactly five are tried.
func TestParallelGuesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, loginConfig())
		var tried atomic.Int64
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				var p Pass
				v := through(t, g, &p, Request{Method: "POST", Path: "/login", Address: localAddr}, Subject{})
				if v.Allowed {
					tried.Add(1)
					time.Sleep(100 * time.Millisecond) // the password is checked
				}
				p.Done(t.Context(), v.Allowed)
			})
		}
		wg.Wait()
		if n := tried.Load(); n != 5 {
			t.Errorf("%d were tried, want 5", n)
		}
		if v := call(t, g, "", Subject{}); !v.Allowed { // another endpoint
			t.Error("another endpoint is limited as well")
		}
	})
}

// TestMixedLogins: at most five wrong ones are tried, and right ones are never charged.
func TestMixedLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, loginConfig())
		var wrong, right atomic.Int64
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				var p Pass
				failed := i%2 == 0
				time.Sleep(time.Duration(i) * time.Millisecond)
				v := through(t, g, &p, Request{Method: "POST", Path: "/login", Address: localAddr}, Subject{})
				if !v.Allowed {
					return
				}
				time.Sleep(10 * time.Millisecond)
				if failed {
					wrong.Add(1)
				} else {
					right.Add(1)
				}
				p.Done(t.Context(), failed)
			})
		}
		wg.Wait()
		if n := wrong.Load(); n != 5 {
			t.Errorf("%d wrong ones were tried, want 5", n)
		}
		if right.Load() == 0 {
			t.Error("no right one was tried")
		}
		// After the wrong ones are forgotten, right ones alone are never refused, one after the other.
		time.Sleep(time.Minute)
		for i := range 100 {
			var p Pass
			if v := through(t, g, &p, Request{Method: "POST", Path: "/login", Address: localAddr}, Subject{}); !v.Allowed {
				t.Fatalf("right password %d was refused: earlier ones were charged", i)
			}
			p.Done(t.Context(), false)
		}
	})
}

// TestSettle: the handler sets the cost, and the rest comes back.
func TestSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, Config{Endpoints: []Endpoint{
			{Pattern: "/query", Cost: 50, Settle: true, Limits: per(100, time.Minute)},
			{Pattern: "/plain", Limits: per(100, time.Minute)},
		}})
		alice := User("alice")
		left := func(path string) int64 {
			list, err := g.Quotas(t.Context(), alice, "", path)
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			return list[0].Remaining
		}
		run := func(path string, cost int64) bool {
			var p Pass
			if v := through(t, g, &p, Request{Path: path, Address: localAddr}, alice); !v.Allowed {
				t.Fatalf("%s: refused", path)
			}
			ok := Settle(WithPass(t.Context(), &p), cost)
			p.Done(t.Context(), false)
			p.Done(t.Context(), false) // once more changes nothing
			return ok
		}
		if !run("/query", 3) || left("/query") != 97 {
			t.Errorf("%d left, want 97", left("/query"))
		}
		if !run("/query", 60) || left("/query") != 37 { // more than was reserved
			t.Errorf("%d left, want 37", left("/query"))
		}
		if run("/plain", 3) || left("/plain") != 99 {
			t.Errorf("%d left, want 99: the endpoint does not settle", left("/plain"))
		}
		if Settle(context.Background(), 1) {
			t.Error("settled without a request")
		}
	})
}

// TestAbandoned: a request that never ends counts in full when its time is over.
func TestAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, loginConfig())
		for range 5 {
			var p Pass
			through(t, g, &p, Request{Method: "POST", Path: "/login", Address: localAddr}, Subject{})
		}
		time.Sleep(time.Minute) // the units are held, and expire as used
		var p Pass
		if v := through(t, g, &p, Request{Method: "POST", Path: "/login", Address: localAddr}, Subject{}); v.Allowed {
			t.Error("units of abandoned requests were refunded")
		}
	})
}
