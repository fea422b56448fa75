package measure

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir/internal/svg"
)

// Line writes a snapshot in one line of at most 100 columns, for a terminal:
//
//	12s/30s  4,998/5,000 per s  p50 1.21 ms  p99 4.6 ms  errors 0  wait 85 µs
//
// Rate, percentiles and wait are of the last second, errors of the whole run. With a
// total of 0 the run has no end.
func Line(s Snapshot, total time.Duration) string {
	return fmt.Sprintf("%s  %s per s  %s  errors %s  wait %s",
		progress(s.Elapsed, total), rates(s), latency(s), whole(float64(s.Total.Errors)), svg.Duration(s.Wait))
}

func progress(elapsed, total time.Duration) string {
	if total <= 0 {
		return elapsed.Truncate(time.Second).String()
	}
	return elapsed.Truncate(time.Second).String() + "/" + total.Round(time.Second).String()
}

// rates is the achieved rate and, if there is one, the target.
func rates(s Snapshot) string {
	if s.Target == 0 {
		return whole(s.Last.Rate)
	}
	return whole(s.Last.Rate) + "/" + whole(s.Target)
}

// latency writes percentiles if there are any. In a stall there are none, and the time
// that somebody has been waiting for says most.
func latency(s Snapshot) string {
	switch {
	case s.Last.Ops > 0:
		return fmt.Sprintf("p50 %s  p99 %s", svg.Duration(s.Last.P50), svg.Duration(s.Last.P99))
	case s.InFlight > 0:
		return "none done, oldest " + svg.Duration(s.Oldest)
	}
	return "none done"
}

// whole writes 4998.2 as 4,998, 12345678 as 12.3M and 0.5 as 0.5.
func whole(v float64) string {
	if v < 100 || v >= 999_999.5 {
		return svg.Number(v)
	}
	return thousands(int64(v + 0.5))
}
