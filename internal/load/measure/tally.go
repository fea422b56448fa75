package measure

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// longest is the longest time that histograms tell from longer ones. They count in
// microseconds.
const longest = 10 * time.Minute

// digits are the significant digits of percentiles. A histogram with three takes 172 KB.
const digits = 3

// micros returns a time in the histograms' unit.
func micros(d time.Duration) int64 { return (min(d, longest) + time.Microsecond/2).Microseconds() }

// tally sums up times, none of them negative.
type tally struct {
	histogram *hdrhistogram.Histogram
	min, max  time.Duration
	sum       float64 // nanoseconds; exact up to 104 days
	over      int64   // times above longest
}

func newTally() *tally {
	return &tally{histogram: hdrhistogram.New(1, longest.Microseconds(), digits)}
}

func (t *tally) add(d time.Duration) {
	if t.count() == 0 {
		t.min = d
	}
	t.min, t.max = min(t.min, d), max(t.max, d)
	t.sum += float64(d)
	if d > longest {
		t.over++
	}
	_ = t.histogram.RecordValue(micros(d)) // cannot fail: it is from 0 to longest
}

func (t *tally) count() int64 { return t.histogram.TotalCount() }

// quantile returns a percentile. The histogram answers with the upper end of a bucket,
// which may be more than was ever seen.
func (t *tally) quantile(percent float64) time.Duration {
	d := time.Duration(t.histogram.ValueAtQuantile(percent)) * time.Microsecond
	return min(max(d, t.min), t.max)
}

// mean returns nanoseconds, 0 if there are no times.
func (t *tally) mean() float64 {
	if t.count() == 0 {
		return 0
	}
	return t.sum / float64(t.count())
}
