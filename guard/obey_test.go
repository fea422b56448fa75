package guard

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// TestObedientAfterPenalty: who waits as told after a penalty is admitted, whatever operation charges the
// limits. With several limits, and with failures counted, RetryAfter was too short again and again, and
// these refusals led to the next penalty.
func TestObedientAfterPenalty(t *testing.T) {
	two := append(per(6, time.Hour), ruleset.Limit{By: "ip", Limit: weir.Limit{Name: "ip", Rate: 1000, Per: weir.Every(time.Hour)}})
	for name, e := range map[string]Endpoint{
		"one limit": {Limits: per(6, time.Hour)}, "two limits": {Limits: two},
		"failures": {Limits: per(6, time.Hour), Count: CountFailures}, "failures of two limits": {Limits: two, Count: CountFailures},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { obey(t, e) })
		})
	}
}

// obey has a subject send requests once per second until a penalty is over, and then only when it is
// told to.
func obey(t *testing.T, e Endpoint) {
	g := newGuard(t, Config{Default: e, Penalties: &Penalties{For: 12 * time.Minute}})
	mallory := User("mallory")
	send := func() Verdict {
		var p Pass
		defer p.Done(t.Context(), true)
		return through(t, g, &p, Request{Path: "/x", Address: localAddr}, mallory)
	}
	began := false
	for range 3600 {
		v := send()
		if began && !v.Penalized {
			break
		}
		began = began || v.Penalized
		time.Sleep(time.Second)
	}
	if !began {
		t.Fatal("there was no penalty")
	}
	for range 5 {
		v := send()
		if v.Allowed {
			continue
		}
		time.Sleep(v.RetryAfter)
		if again := send(); !again.Allowed {
			t.Errorf("refused after RetryAfter %v, for %v more", v.RetryAfter, again.RetryAfter)
		}
	}
	if n := g.Stats().Violations[Penalized]; n != 1 {
		t.Errorf("%d penalties, want 1", n)
	}
}
