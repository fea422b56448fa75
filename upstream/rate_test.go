package upstream

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// sentAt makes a call each step for a time, without waiting, and returns when calls were sent.
func sentAt(t *testing.T, r Rate, step, lasts time.Duration) (list []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(30*time.Second + 500*time.Millisecond) // neither a full second nor a full minute
		pool, p := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", limited(r))}})
		for range lasts / step {
			_, _, _ = send(pool, call())
			time.Sleep(step)
		}
		list = p.times("a")
	})
	return list
}

// most returns how many of the times are in any interval of a length.
func most(times []time.Duration, length time.Duration) (n int) {
	from := 0
	for i, at := range times {
		for times[from] <= at-length {
			from++
		}
		n = max(n, i-from+1)
	}
	return n
}

// TestRates has the four combinations of limits per second and per minute, exact, spread, and by the clock.
func TestRates(t *testing.T) {
	const lasts = 130 * time.Second
	for _, tt := range []struct {
		rate                 Rate
		perSecond, perMinute int // the most in any
		all                  int // in the whole time
	}{
		{Rate{}, 20, 1200, 2600},
		{Rate{PerSecond: 5}, 5, 300, 650},
		{Rate{PerMinute: 60}, 20, 60, 180},                              // at 0 s, 60 s and 120 s
		{Rate{PerSecond: 5, PerMinute: 60}, 5, 60, 170},                 // 50 of them from 120 s to 130 s
		{Rate{PerSecond: 5, PerMinute: 60, Smooth: true}, 1, 58, 124},   // one at once, and 59 per minute: each 1.05 s of these steps
		{Rate{PerMinute: 120, Smooth: true}, 3, 119, 257},               // two at once, and 118 per minute
		{Rate{PerSecond: 5, PerMinute: 60, Aligned: true}, 10, 60, 180}, // from :30.5: twice as many around a full second
		{Rate{PerMinute: 1, Smooth: true}, 1, 1, 3},
	} {
		t.Run(fmt.Sprintf("%+v", tt.rate), func(t *testing.T) {
			got := sentAt(t, tt.rate, 50*time.Millisecond, lasts)
			perSecond, perMinute := most(got, time.Second), most(got, time.Minute)
			if tt.rate.Aligned {
				if perSecond > tt.perSecond || perMinute > 2*tt.perMinute || len(got) < tt.all-60 {
					t.Errorf("%d in a second, %d in a minute, %d in all", perSecond, perMinute, len(got))
				}
				return
			}
			if perSecond != tt.perSecond || perMinute != tt.perMinute || len(got) != tt.all {
				t.Errorf("%d in a second, %d in a minute, %d in all: want %d, %d and %d", perSecond, perMinute, len(got), tt.perSecond, tt.perMinute, tt.all)
			}
		})
	}
}

// TestLargeRate has more per second than are remembered one by one: never too many are sent, and hardly fewer.
func TestLargeRate(t *testing.T) {
	const rate, offered, seconds = 5000, 5500, 6
	got := sentAt(t, Rate{PerSecond: rate}, time.Second/offered, seconds*time.Second)
	if n := most(got, time.Second); n > rate || len(got) < seconds*rate*98/100 {
		t.Errorf("%d of %d were sent, %d of them in one second", len(got), seconds*rate, n)
	}
}

// TestBoundsOfAligned refuses what the packed window cannot count, and counts what it just can.
func TestBoundsOfAligned(t *testing.T) {
	for _, tt := range []struct {
		rate Rate
		ok   bool
	}{
		{Rate{PerSecond: 32_767, PerMinute: 262_143, Aligned: true}, true},
		{Rate{PerSecond: 32_768, Aligned: true}, false},
		{Rate{PerMinute: 262_144, Aligned: true}, false},
		{Rate{PerSecond: 32_768, PerMinute: 262_144}, true}, // the caps are those of that form only
		{Rate{PerSecond: -1}, false},
		{Rate{PerMinute: -1}, false},
	} {
		err := Config{Name: "eth", Endpoints: []Endpoint{endpointAt("a", limited(tt.rate))}}.Validate()
		if (err == nil) != tt.ok {
			t.Errorf("%+v: %v", tt.rate, err)
		}
	}
}

// TestLargestAligned counts with the largest numbers that the packed window has: they are limits, not the absence of one.
func TestLargestAligned(t *testing.T) {
	for _, r := range []Rate{{PerSecond: 32_767, Aligned: true}, {PerMinute: 262_143, Aligned: true}} {
		synctest.Test(t, func(t *testing.T) {
			pool, _ := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", limited(r))}})
			for range 2 {
				whole := &Call{Methods: make([]string, max(r.PerSecond, r.PerMinute))}
				if _, _, err := send(pool, whole); err != nil {
					t.Errorf("%+v: %v", r, err)
				}
				if _, _, err := send(pool, call()); err == nil {
					t.Errorf("%+v: one more was sent", r)
				}
				time.Sleep(time.Minute)
			}
		})
	}
}

// TestIdle begins with all units, and has no more after an idle time.
func TestIdle(t *testing.T) {
	for _, idle := range []time.Duration{0, time.Second, time.Hour, 9*time.Hour + 6*time.Minute + 8*time.Second, 18*time.Hour + 13*time.Minute, 23 * 24 * time.Hour} {
		for _, aligned := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				pool, p := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerSecond: 5, PerMinute: 100, Aligned: aligned}))}})
				for range 20 {
					_, _, _ = send(pool, call())
				}
				time.Sleep(idle)
				before := len(p.times("a"))
				for range 20 {
					_, _, _ = send(pool, call())
				}
				if got := len(p.times("a")) - before; before != 5 || idle == 0 && got != 0 || idle > 0 && got != 5 {
					t.Errorf("aligned %v: %d at once, and %d after %v", aligned, before, got, idle)
				}
			})
		}
	}
}

// TestBothOrNone lets the limit per minute refuse: that per second is not charged.
func TestBothOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, _ := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerSecond: 10, PerMinute: 3}))}})
		for range 3 {
			_, _, _ = send(pool, call())
		}
		time.Sleep(2 * time.Second) // the limit per second has all of its units
		for range 20 {
			if _, _, err := send(pool, call()); err == nil {
				t.Fatal("the minute's limit is exceeded")
			}
		}
		policy := pool.set.Load().endpoints[0].policy
		second, err := weir.NewPolicy(policy.Name(), policy.Limits()[0])
		if err != nil {
			t.Fatal(err)
		}
		d, err := weir.Peek(t.Context(), pool.engine.Limiter(), second, endpointKey, 1)
		if err != nil || d.Remaining != 10 {
			t.Errorf("%+v, %v: want 10 left of the second", d, err)
		}
	})
}

// TestBatchCountsItsCalls charges a limit for each call of a batch.
func TestBatchCountsItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerMinute: 10}))}})
		batch := func(n int) error {
			_, _, err := send(pool, &Call{Methods: strings.Split(strings.Repeat("eth_call ", n)[:9*n-1], " ")})
			return err
		}
		if err := batch(7); err != nil {
			t.Fatal(err)
		}
		refused := (*LimitedError)(nil)
		if err := batch(4); !errors.As(err, &refused) || refused.RetryAfter != time.Minute {
			t.Errorf("a batch of 4 with 3 left: %v", err)
		}
		if err := batch(11); !errors.As(err, &refused) || refused.Reason != weir.TooCostly || refused.RetryAfter != weir.Never {
			t.Errorf("a batch of more than the limit: %v", err)
		}
		if err := batch(3); err != nil {
			t.Error(err)
		}
		if n := len(p.times("a")); n != 2 {
			t.Errorf("%d batches were sent, want 2", n)
		}
	})
}

// TestNamespaces has endpoints of one alias in two pools with one store: each has its own limit.
func TestNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, p := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerMinute: 1}))}})
		c := one.set.Load().config
		c.Name = "polygon"
		c.Transport = http.RoundTripper(p)
		two, err := New(one.engine.Limiter(), c)
		if err != nil {
			t.Fatal(err)
		}
		for _, pool := range []*Pool{one, two} {
			if _, _, err := send(pool, call()); err != nil {
				t.Errorf("%s: %v", pool.Name(), err)
			}
			if _, _, err := send(pool, call()); err == nil {
				t.Errorf("%s has no limit", pool.Name())
			}
		}
	})
}
