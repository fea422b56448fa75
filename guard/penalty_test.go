package guard

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const register = "/river.AppRegistryService/Register"

// violations collects what a guard reports.
type violations struct {
	mu   sync.Mutex
	list []Violation
}

func (v *violations) add(x Violation) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.list = append(v.list, x)
}

func (v *violations) count(k Kind, inShadow bool) (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, x := range v.list {
		if x.Kind == k && x.Shadow == inShadow {
			n++
		}
	}
	return n
}

// penalize sends requests once per second until the subject is penalized, and returns how many it
// took.
func penalize(t *testing.T, g *Guard, path string, s Subject) (requests int) {
	t.Helper()
	for requests = range 1000 {
		call(t, g, path, s)
		if until, err := g.Penalty(context.Background(), s.Key); err != nil {
			t.Fatal(err)
		} else if !until.IsZero() {
			return requests + 1
		}
		time.Sleep(time.Second)
	}
	t.Fatal("the subject was never penalized")
	return 0
}

// TestPenalizedRegister shows that 1 per hour becomes 1 per 2 hours: S4.26, F4.11.
func TestPenalizedRegister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &violations{}
		c := river()
		c.Penalties.For = 30 * time.Hour // longer than the test, to see the reduced rate
		c.Hooks.OnViolation = seen.add
		g := newGuard(t, c)
		mallory := User("mallory")
		if !call(t, g, register, mallory).Allowed {
			t.Fatal("the first was refused")
		}
		began := time.Now()
		if n := penalize(t, g, register, mallory); n != 5 {
			t.Errorf("penalized after %d violations, want 5", n)
		}
		if n := seen.count(Penalized, false); n != 1 {
			t.Errorf("%d penalties were reported, want 1", n)
		}
		// The unit that was taken at the start is back after two hours instead of one.
		v := call(t, g, register, mallory)
		if v.Allowed || !v.Penalized {
			t.Fatalf("%+v: want a refusal with a penalty", v.Decision)
		}
		time.Sleep(v.RetryAfter - time.Nanosecond)
		if call(t, g, register, mallory).Allowed {
			t.Error("admitted a nanosecond before RetryAfter")
		}
		time.Sleep(time.Nanosecond)
		if !call(t, g, register, mallory).Allowed {
			t.Error("refused after RetryAfter")
		}
		if waited := time.Since(began); waited < 2*time.Hour-10*time.Second || waited > 2*time.Hour+time.Second {
			t.Errorf("the second was admitted after %v, want 2h", waited)
		}
		second := time.Now()
		for !call(t, g, register, mallory).Allowed {
			time.Sleep(time.Minute)
		}
		if waited := time.Since(second); waited != 2*time.Hour {
			t.Errorf("the third was admitted after %v, want 2h", waited)
		}
	})
}

// TestReleasedOnTime shows that a penalized client that keeps sending is released on time, and that
// nothing is doubled or extended meanwhile.
func TestReleasedOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &violations{}
		c := Config{Default: Endpoint{Limits: per(60, time.Minute)}, Penalties: &Penalties{}, Hooks: Hooks{OnViolation: seen.add}}
		c.Default.Limits[0].Burst = 1
		g := newGuard(t, c)
		mallory := User("mallory")
		send := func(span time.Duration) (admitted int) { // ten requests per second
			for end := time.Now().Add(span); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				if call(t, g, "/x", mallory).Allowed {
					admitted++
				}
			}
			return admitted
		}
		for seen.count(Penalized, false) == 0 {
			send(100 * time.Millisecond)
		}
		began := time.Now()
		until, err := g.Penalty(context.Background(), mallory.Key)
		if want := began.Add(-100*time.Millisecond + 5*time.Minute); err != nil || !until.Equal(want) {
			t.Fatalf("the penalty ends at %v, %v; want %v", until, err, want)
		}
		if n := send(until.Sub(began)); n < 149 || n > 150 { // 1 per 2 s
			t.Errorf("%d admitted during the penalty, want 150", n)
		}
		if after, err := g.Penalty(context.Background(), mallory.Key); err != nil || !after.IsZero() {
			t.Errorf("the penalty ends at %v, %v; want it over", after, err)
		}
		if n := seen.count(Penalized, false); n != 1 {
			t.Errorf("%d penalties began, want 1", n)
		}
		// The score begins at zero: four more violations bring no penalty.
		if n := send(3 * time.Second); n < 3 {
			t.Errorf("%d admitted in 3 s after the penalty, want the whole rate", n)
		}
		if n := seen.count(Penalized, false); n != 1 {
			t.Errorf("%d penalties began, want 1: the score was not reset", n)
		}
	})
}

// TestScoreDecays shows that violations which are far apart bring no penalty.
func TestScoreDecays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &violations{}
		g := newGuard(t, Config{Default: Endpoint{Limits: per(1, time.Hour)}, Penalties: &Penalties{}, Hooks: Hooks{OnViolation: seen.add}})
		for range 100 { // five per minute is what the score loses
			call(t, g, "/x", User("a"))
			time.Sleep(12 * time.Second)
		}
		if n := seen.count(Exceeded, false); n < 90 {
			t.Fatalf("%d violations, want about 100", n)
		}
		if n := seen.count(Penalized, false); n != 0 {
			t.Errorf("%d penalties, want none", n)
		}
		for range 1000 { // all at once count once
			call(t, g, "/x", User("b"))
		}
		if n := seen.count(Penalized, false); n != 0 {
			t.Errorf("%d penalties after a burst, want none: it counts as one violation", n)
		}
	})
}

// TestSharedPenalties shows that a penalty on one node applies on another: F4.19.
func TestSharedPenalties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(t)
		c := Config{Default: Endpoint{Limits: per(1, time.Hour)}, Penalties: &Penalties{}, Shared: true}
		a, b := guardOn(t, table, c), guardOn(t, table, c)
		mallory := User("mallory")
		if v := call(t, b, "/x", mallory); !v.Allowed || v.Penalized {
			t.Fatalf("%+v", v)
		}
		penalize(t, a, "/x", mallory)
		time.Sleep(time.Second + 1) // what b knows is a second old
		if v := call(t, b, "/x", mallory); !v.Penalized {
			t.Error("the other node does not know of the penalty")
		}
		if err := a.Pardon(context.Background(), mallory.Key); err != nil {
			t.Fatal(err)
		}
		if v := call(t, a, "/x", mallory); v.Penalized {
			t.Error("penalized after a pardon")
		}
		time.Sleep(time.Second + 1)
		if v := call(t, b, "/x", mallory); v.Penalized {
			t.Error("penalized on the other node after a pardon")
		}
	})
}

// TestSustained shows the rule for those who are penalized again and again.
func TestSustained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &violations{}
		g := newGuard(t, Config{Default: Endpoint{Limits: per(1, time.Hour)}, Penalties: &Penalties{}, Hooks: Hooks{OnViolation: seen.add}})
		for want := range 3 {
			if n := seen.count(Sustained, false); n != 0 {
				t.Fatalf("sustained after %d penalties", want)
			}
			penalize(t, g, "/x", User("a"))
			time.Sleep(5 * time.Minute)
		}
		if n := seen.count(Sustained, false); n != 1 {
			t.Errorf("%d reports after three penalties, want 1", n)
		}
	})
}

// TestRapidFire shows the secondary window: 60 in 2 s are reported although the limit admits them.
func TestRapidFire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &violations{}
		g := newGuard(t, Config{Default: Endpoint{Limits: per(1000, time.Minute)}, Abuse: &Abuse{}, Hooks: Hooks{OnViolation: seen.add}})
		if n := burst(t, g, 60, "/x", User("a")); n != 60 || seen.count(RapidFire, false) != 0 {
			t.Fatalf("%d admitted, %d reports; want 60 and none", n, seen.count(RapidFire, false))
		}
		if n := burst(t, g, 60, "/x", User("a")); n != 60 {
			t.Errorf("%d admitted, want all: abuse is reported, not refused", n)
		}
		if n := seen.count(RapidFire, false); n != 1 {
			t.Errorf("%d reports, want one per second", n)
		}
		for range 100 { // 20 per second: less than the window
			burst(t, g, 20, "/y", User("b"))
			time.Sleep(time.Second)
		}
		for _, v := range seen.list {
			if v.Subject == User("b").Key && v.Kind == RapidFire {
				t.Fatal("a steady client was reported")
			}
		}
	})
}

// TestPenaltyConfig shows what is refused.
func TestPenaltyConfig(t *testing.T) {
	for _, m := range []float64{-1, 1, 1.5, 0.00001} {
		c := Config{Penalties: &Penalties{Multiplier: m}}
		if err := c.Validate(); err == nil {
			t.Errorf("multiplier %v: no error", m)
		}
	}
	c := Config{Penalties: &Penalties{Multiplier: 0.9999}}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

// TestCacheIsBounded shows that the cache of penalties drops rows and looks them up again.
func TestCacheIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, Config{Default: Endpoint{Limits: per(1, time.Hour)}, Penalties: &Penalties{}, MaxSubjects: 1600})
		mallory := User("mallory")
		penalize(t, g, "/x", mallory)
		for i := range 20_000 {
			call(t, g, "/x", User(fmt.Sprint(i)))
		}
		rows := 0
		for i := range g.penalties.shards {
			rows += len(g.penalties.shards[i].rows)
		}
		if rows > 1600 {
			t.Errorf("%d rows, want at most 1600", rows)
		}
		if v := call(t, g, "/x", mallory); !v.Penalized {
			t.Error("the penalty was forgotten")
		}
	})
}
