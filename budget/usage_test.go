package budget

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// TestProjectionIsLogged: a calendar limit that will be used up before its period ends is a warning, once per period
// and limit, and not in the first twentieth of the period.
func TestProjectionIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		april := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC) // 1/20 of the month are 36 hours, and of a day 72 minutes
		time.Sleep(time.Until(april))
		var log testLog
		a := newAccount(t, Config{Name: "main", Logger: log.logger(), Limits: []ruleset.Limit{
			perSecond(1_000_000),
			{Limit: weir.Limit{Name: "day", Rate: 1000, Per: weir.Calendar(weir.Day, nil)}, Mode: ruleset.Shadow},
			{Limit: weir.Limit{Name: "month", Rate: 3000, Per: weir.Calendar(weir.Month, nil)}},
		}})
		c := controller(t, a, "realtime")
		line := func(limit string, used, capacity, projected int64, exhausted string) string {
			return fmt.Sprintf(`level=WARN msg="budget: a limit will be used up before its period ends, if it goes on like that" account=main limit=%s used=%d capacity=%d projected=%d exhausted=%s`,
				limit, used, capacity, projected, exhausted)
		}
		for _, step := range []struct {
			at   time.Duration
			cost int64
			want []string
		}{
			{time.Hour, 400, nil},
			{36*time.Hour - time.Second, 49, nil},
			{36 * time.Hour, 1, []string{line("month", 450, 3000, 9000, "2026-04-11T00:00:00.000Z")}},
			{37 * time.Hour, 100, nil}, // once
			{60 * time.Hour, 600, []string{line("day", 600, 1000, 1200, "2026-04-03T20:00:00.000Z")}},
			{61 * time.Hour, 100, nil},
			{84 * time.Hour, 600, []string{line("day", 600, 1000, 1200, "2026-04-04T20:00:00.000Z")}},
			{29 * 24 * time.Hour, 10, nil},
			{40 * 24 * time.Hour, 900, nil}, // of May, of whose 31 days they will be 2790; at 00:00 nothing is said of the day
			{41 * 24 * time.Hour, 200, []string{line("month", 1100, 3000, 3100, "2026-05-31T00:00:00.000Z")}},
		} {
			time.Sleep(time.Until(april.Add(step.at)))
			try(t, c, step.cost)
			if got := log.lines(); !slices.Equal(got, step.want) {
				t.Errorf("after %v: logged %q, want %q", step.at, got, step.want)
			}
		}
	})
}
