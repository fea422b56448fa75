package budget

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// TestPause: what a provider wants, as far as that is plausible.
func TestPause(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		class      RefusalClass
		wait, want time.Duration
	}{
		{RateLimited, 0, 0},
		{RateLimited, time.Hour, time.Hour},
		{RateLimited, 366 * day, 32 * day},
		{Overloaded, 366 * day, 32 * day},
		{QuotaExhausted, 31 * day, 31 * day},
		{QuotaExhausted, 366 * day, 32 * day},
		{AccessDenied, 366 * day, 32 * day},
		{RateLimited, -1, -1},
	} {
		if got := (Refusal{Class: tt.class, Wait: tt.wait}).Pause(); got != tt.want {
			t.Errorf("%v for %v: %v, want %v", tt.class, tt.wait, got, tt.want)
		}
	}
}

// TestPauseWarns: once for all that were refused during a cooldown.
func TestPauseWarns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testLog
		config := document001()
		config.Logger = log.logger()
		a := newAccount(t, config)
		c := controller(t, a, "")
		warnings := func() int {
			return strings.Count(strings.Join(log.lines(), "\n"), "wants a longer pause than is plausible; it will be tried again before\" account=main reason=\"status 429\" wants=8760h0m0s pause=768h0m0s")
		}
		refusal := Refusal{Class: RateLimited, Wait: 8760 * time.Hour, Reason: "status 429"}
		for range 3 {
			c.RecordRefusal(refusal)
			time.Sleep(time.Second)
		}
		if n := warnings(); n != 1 {
			t.Errorf("%d warnings of three refusals", n)
		}
		time.Sleep(a.Cooldown())
		c.RecordRefusal(refusal)
		if n := warnings(); n != 1 {
			t.Errorf("%d warnings of the next one", n)
		}
		time.Sleep(a.Cooldown())
		c.RecordRefusal(Refusal{Class: QuotaExhausted, Wait: 31 * 24 * time.Hour})
		if lines := log.lines(); len(lines) > 0 {
			t.Errorf("of what is plausible: %q", lines)
		}
	})
}

// TestEndCooldown: those who wait go on at once, whatever they wait for.
func TestEndCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, document001())
		c := controller(t, a, "backfill")
		for range 3 {
			time.Sleep(c.RecordFailure())
		}
		c.RecordRefusal(Refusal{Class: QuotaExhausted, Wait: 24 * time.Hour})
		began := time.Now()
		var waiting sync.WaitGroup
		for what, wait := range map[string]func() error{
			"a charge":          func() error { return c.WaitForBudget(t.Context(), Units(1)) },
			"one behind it":     func() error { return c.WaitForBudget(t.Context(), Units(1)) },
			"one of no class":   func() error { return controller(t, a, "realtime").WaitForBudget(t.Context(), Units(1)) },
			"one that is free":  func() error { return c.WaitForBudget(t.Context(), Units(0)) },
			"and a reservation": func() error { _, err := c.Reserve(t.Context(), time.Minute, Units(1)); return err },
		} {
			waiting.Go(func() {
				if err := wait(); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if left := a.EndCooldown(); left != 24*time.Hour-time.Minute || a.Cooldown() != 0 {
			t.Errorf("%v were left, and are %v now", left, a.Cooldown())
		}
		waiting.Wait()
		if d := time.Since(began); d > 61*time.Second {
			t.Errorf("the last one has waited for %v", d)
		}
		if left := a.EndCooldown(); left != 0 {
			t.Errorf("without a cooldown, %v were left", left)
		}
		if d := c.RecordFailure(); d > 110*time.Millisecond {
			t.Errorf("the next refusal is one of a series: %v", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, denied := errors.AsType[*weir.DeniedError](c.WaitForBudget(ctx, Units(1))); !denied {
			t.Error("a charge is made in the next cooldown")
		}
	})
}
