package budget

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// slow is document 001's budget, so slow that nothing comes back during a test.
func slow() Config {
	c := document001()
	c.Limits[0].Per = weir.Every(1000 * time.Hour)
	return c
}

// TestOnLevelMayUseTheAccount: it may observe the utilisation again, and changes come in their order.
func TestOnLevelMayUseTheAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := slow()
		var a *Account
		var changes []Level
		c.OnLevel = func(l LevelChange) {
			changes = append(changes, l.To)
			if _, err := a.Usage(t.Context()); err != nil {
				t.Error(err)
			}
			if l.To == Warning { // which is a change of the level itself
				try(t, controller(t, a, "realtime"), 100)
				time.Sleep(2 * time.Second)
				usage(t, a)
			}
		}
		a = newAccount(t, c)
		try(t, controller(t, a, "realtime"), 200)
		try(t, controller(t, a, "backfill"), 200)
		time.Sleep(2 * time.Second)
		usage(t, a)
		if want := []Level{Warning, Critical}; !slices.Equal(changes, want) {
			t.Errorf("levels %v, want %v", changes, want)
		}
	})
}

// TestBurstsDoNotPause: a process that uses 96 % of a second's units at once, every other second, is never paused.
func TestBurstsDoNotPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := document001()
		c.OnLevel = func(l LevelChange) { t.Errorf("%+v", l) }
		a := newAccount(t, c)
		for range 5 {
			try(t, controller(t, a, "realtime"), 290)
			try(t, controller(t, a, "backfill"), 190)
			time.Sleep(2 * time.Second)
		}
	})
}

// TestResume: paused ends below the resume mark, and not before.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := document001()
		c.Limits[0].Per = weir.Every(500 * time.Second) // one unit a second
		a := newAccount(t, c)
		all := controller(t, a, "backfill")
		try(t, controller(t, a, "realtime"), 300)
		try(t, all, 160)
		time.Sleep(2 * time.Second)
		if !all.ShouldPause(t.Context()) {
			t.Fatalf("%+v", usage(t, a))
		}
		for all.ShouldPause(t.Context()) {
			if u := usage(t, a); u.Horizons[0].Used < 374 { // 75 % and what a second lags behind
				t.Fatalf("paused at %d of 500", u.Horizons[0].Used)
			}
			time.Sleep(time.Second)
		}
		if u := usage(t, a); u.Horizons[0].Used >= 375 {
			t.Errorf("resumed at %d of 500", u.Horizons[0].Used)
		}
	})
}

// pause uses so much of a slow budget that it is paused: 280 of realtime's 300, and backfill's 200.
func pause(t *testing.T, a *Account) {
	t.Helper()
	try(t, controller(t, a, "realtime"), 280)
	try(t, controller(t, a, "backfill"), 200)
	time.Sleep(2 * time.Second)
	if usage(t, a); a.Level() != Paused {
		t.Fatalf("%+v", usage(t, a))
	}
}

// TestAvailableIsWhatTryAdmits: at each level, to the unit.
func TestAvailableIsWhatTryAdmits(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T, *Account){
		"unused": func(*testing.T, *Account) {},
		"used":   func(t *testing.T, a *Account) { try(t, controller(t, a, "backfill"), 77) },
		"paused": pause,
	} {
		for _, class := range []string{"realtime", "backfill"} {
			synctest.Test(t, func(t *testing.T) {
				a := newAccount(t, slow())
				prepare(t, a)
				n, err := a.Available(t.Context(), class)
				if err != nil {
					t.Fatal(err)
				}
				c := controller(t, a, class)
				if q, err := c.Quote(t.Context(), Units(n)); err != nil || !q.Allowed {
					t.Errorf("%s: %s has %d, and a quote is %+v, %v", name, class, n, q, err)
				}
				if q, err := c.Quote(t.Context(), Units(n+1)); err != nil || q.Allowed {
					t.Errorf("%s: %s has %d, and a quote for one more is %+v, %v", name, class, n, q, err)
				}
				if d := try(t, c, n+1); d.Allowed {
					t.Errorf("%s: %s has %d, and one more is admitted", name, class, n)
				}
				if d := try(t, c, n); !d.Allowed {
					t.Errorf("%s: %s has %d, and gets %+v", name, class, n, d)
				}
			})
		}
	}
}

// TestOldPause: what was observed long ago pauses nothing.
func TestOldPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := document001()
		c.Limits[0].Per = weir.Every(500 * time.Second)
		a := newAccount(t, c)
		pause(t, a)
		time.Sleep(time.Hour) // in which all comes back, and nobody looks
		try(t, controller(t, a, "backfill"), 200)
		if d := try(t, controller(t, a, "backfill"), 1); d.Allowed || d.RetryAfter != time.Second {
			t.Errorf("a class that may borrow: %+v, want a retry at the whole rate", d)
		}
	})
}

// TestUsageOfANewLevel: the usage that changes the level has what classes can take at the new one.
func TestUsageOfANewLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := slow()
		c.Limits[0].Burst = 1000
		c.Classes = []Class{{Name: "realtime", Share: 60, Burst: 100}, {Name: "backfill", Share: 40, Burst: 50}}
		c.Thresholds.Pause = new(80)
		a := newAccount(t, c)
		try(t, controller(t, a, "realtime"), 800) // of its own 100 and of 850 that are nobody's
		time.Sleep(2 * time.Second)
		if u := usage(t, a); u.Level != "paused" || u.Classes[0].Available != 0 || u.Classes[1].Available != 50 {
			t.Errorf("%+v", u)
		}
	})
}

// TestWaitingWhenThePauseEnds: those who wait then borrow.
func TestWaitingWhenThePauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, slow())
		pause(t, a)
		done := make(chan error, 1)
		go func() { done <- controller(t, a, "realtime").WaitForBudget(t.Context(), Units(300)) }()
		synctest.Wait()
		unused(t, a)
		began := time.Now()
		if err := <-done; err != nil || time.Since(began) > 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestTooCostlyWhilePaused: what exceeds a class's own part, but not what it may borrow, waits for the end of the pause.
func TestTooCostlyWhilePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := slow()
		c.Limits[0].Burst = 1000
		c.Classes = []Class{{Name: "realtime", Share: 60, Burst: 300}, {Name: "backfill", Share: 40, Burst: 200}}
		a := newAccount(t, c)
		realtime, backfill := controller(t, a, "realtime"), controller(t, a, "backfill")
		try(t, realtime, 700)
		try(t, realtime, 100)
		try(t, backfill, 100)
		time.Sleep(2 * time.Second)
		if usage(t, a); a.Level() != Paused {
			t.Fatalf("%+v", usage(t, a))
		}
		if d := try(t, backfill, 201); d.Reason != weir.Exhausted || d.RetryAfter <= 0 || d.RetryAfter == weir.Never {
			t.Errorf("more than its own part: %+v", d)
		}
		if d := try(t, backfill, 701); d.Reason != weir.TooCostly {
			t.Errorf("more than it could ever borrow: %+v", d)
		}
		done := make(chan error, 1)
		go func() { done <- backfill.WaitForBudget(t.Context(), Units(700)) }()
		synctest.Wait()
		unused(t, a)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// unused gives all back that is used of an account.
func unused(t *testing.T, a *Account) {
	t.Helper()
	rule, err := a.rule()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.engine.Reset(t.Context(), rule, &ruleset.Query{Key: accountKey}); err != nil {
		t.Fatal(err)
	}
}

// TestCooldownOfWaiting: a cooldown applies to those who wait already, in the order in which they came.
func TestCooldownOfWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, document001())
		backfill := controller(t, a, "backfill")
		try(t, backfill, 200)
		began := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		var order []int
		var waiting sync.WaitGroup
		for i := range 3 {
			waiting.Go(func() {
				if err := backfill.WaitForBudget(t.Context(), Units(200)); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				at, order = append(at, time.Since(began)), append(order, i)
			})
			synctest.Wait()
		}
		a.Cool(10 * time.Second)
		waiting.Wait()
		first := at[0] // up to 50 ms after the cooldown: the queue takes it for a race that was lost
		want := []time.Duration{first, first + 400*time.Millisecond, first + 800*time.Millisecond}
		if first < 10*time.Second || first > 10050*time.Millisecond || !slices.Equal(at, want) || !slices.Equal(order, []int{0, 1, 2}) {
			t.Errorf("admitted at %v in the order %v, want %v", at, order, want)
		}
	})
}

// TestTooCostlyInACooldown fails at once.
func TestTooCostlyInACooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, document001())
		a.Cool(time.Hour)
		began := time.Now()
		if err := controller(t, a, "backfill").WaitForBudget(t.Context(), Units(300)); !errors.Is(err, ErrTooCostly) || time.Since(began) != 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
