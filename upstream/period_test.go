package upstream

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// TestOtherPeriods has limits per ten seconds, per hour, and per day of the calendar.
func TestOtherPeriods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which begins at midnight
		pool, p := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{endpointAt("a", func(e *Endpoint) {
			e.Limits = []weir.Limit{
				{Name: "window", Rate: 3, Per: weir.Every(10 * time.Second), Algorithm: weir.SlidingLog},
				{Name: "hour", Rate: 10, Per: weir.Every(time.Hour), Algorithm: weir.SlidingLog},
				{Name: "day", Rate: 25, Per: weir.Calendar(weir.Day, time.UTC)},
			}
		})}})
		var counts []int
		for _, lasts := range []time.Duration{time.Second, 9 * time.Second, time.Minute, time.Hour, 5 * time.Hour, 17*time.Hour + 58*time.Minute + 50*time.Second, time.Second} {
			before := len(p.times("a"))
			for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(lasts / 50) {
				_, _, _ = send(pool, call())
			}
			counts = append(counts, len(p.times("a"))-before)
		}
		want(t, "calls in the first second, until ten seconds, one minute, one hour and five hours later, until midnight, and in the next second", counts, []int{3, 0, 7, 0, 15, 0, 3})
	})
}

// TestChangedLimitIsLogged says what a limit was and what it is.
func TestChangedLimitIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, _ := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerSecond: 10}))}})
		var log strings.Builder
		next := pool.set.Load().config
		next.Logger = slog.New(slog.NewTextHandler(&log, nil))
		if err := pool.Replace(t.Context(), next); err != nil || log.Len() != 0 {
			t.Errorf("%v, %q: nothing has changed", err, log.String())
		}
		next.Endpoints = []Endpoint{endpointAt("a", limited(Rate{PerSecond: 20}))}
		if err := pool.Replace(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"upstream=a", "from=10/s", "to=20/s"} {
			if !strings.Contains(log.String(), part) {
				t.Errorf("%q does not say %s", log.String(), part)
			}
		}
	})
}
