package measure

import (
	"time"

	"github.com/weirlimit/weir"
)

// Snapshot is how a run is doing.
type Snapshot struct {
	Elapsed time.Duration // since the start
	Target  float64       // operations due per second, now
	Total   Figures       // since the start
	Last    Figures       // in the last full second; before there is one, since the start

	Wait     time.Duration // the longest that an operation of Last, or one under way, waited to start
	InFlight int           // operations under way, if workers call Begin
	Oldest   time.Duration // since the one of them that has been due for longest was due
}

// Figures sum up operations that ended. The percentiles are of the response time, and
// 0 if there are no operations.
type Figures struct {
	Ops, Errors int64
	Rate        float64 // operations per second, failed ones included
	P50, P99    time.Duration
}

// Snapshot tells how the run is doing. It is cheap enough for a line that is written
// several times a second, and may lag by one operation per worker.
func (r *Run) Snapshot(now weir.Instant) Snapshot {
	under := r.collect(now)
	elapsed := r.offset(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	last, wait := r.recent.figures(elapsed)
	return Snapshot{
		Elapsed:  elapsed,
		Target:   r.target.rate,
		Total:    r.totalLocked(elapsed),
		Last:     last,
		Wait:     max(wait, under.wait),
		InFlight: under.count,
		Oldest:   under.oldest,
	}
}

func (r *Run) totalLocked(elapsed time.Duration) Figures {
	return Figures{
		Ops:    r.ops,
		Errors: r.errors,
		Rate:   perSecond(r.ops, elapsed),
		P50:    r.response.quantile(50),
		P99:    r.response.quantile(99),
	}
}

// recent counts the operations of the last two seconds: the one that is going on, and
// the one before, which is complete. Second n is in slot n % 2.
type recent [2]slot

type slot struct {
	second      int64
	ops, errors int64
	wait        time.Duration // the longest
	response    *coarse
}

func newRecent() recent {
	return recent{{response: new(coarse)}, {second: 1, response: new(coarse)}}
}

func (rs *recent) add(ended time.Duration, op *Op) {
	second := int64(ended / time.Second)
	s := &rs[second%2]
	if second < s.second {
		return // recorded late: it is not recent any more
	}
	if second > s.second {
		s.reset(second)
	}
	s.ops++
	if !op.OK {
		s.errors++
	}
	s.wait = max(s.wait, op.wait())
	s.response.add(op.response())
}

func (s *slot) reset(second int64) {
	*s.response = coarse{}
	*s = slot{second: second, response: s.response}
}

// figures returns the last full second, and the longest wait in it.
func (rs *recent) figures(elapsed time.Duration) (Figures, time.Duration) {
	second, length := int64(elapsed/time.Second)-1, time.Second
	if second < 0 {
		second, length = 0, elapsed
	}
	s := &rs[second%2]
	if s.second != second {
		return Figures{}, 0 // nothing ended in it
	}
	return Figures{
		Ops:    s.ops,
		Errors: s.errors,
		Rate:   perSecond(s.ops, length),
		P50:    s.response.quantile(50),
		P99:    s.response.quantile(99),
	}, s.wait
}

// perSecond returns a rate, 0 for no time at all.
func perSecond(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}
