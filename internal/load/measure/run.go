package measure

import (
	"math"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

// maxCodes bounds the number of different codes. Operations with further ones count as
// otherCode, so that a code with a request id in it does not fill the memory.
const (
	maxCodes  = 100
	otherCode = "other"
)

// maxRate keeps sums of what is due finite.
const maxRate = 1e12

// Run collects the operations of one load test. It is safe for concurrent use.
type Run struct {
	start weir.Instant // set once

	mu        sync.Mutex // guards the fields below; it comes after a recorder's
	recorders []*Recorder
	ops       int64
	errors    int64
	bytes     int64
	codes     map[string]int64
	service   *tally
	response  *tally
	wait      *tally
	series    series
	recent    recent
	target    target
	late      int64         // operations that ended when none was due any more
	last      time.Duration // from the start to the latest end
}

// NewRun returns a run that starts then.
func NewRun(start weir.Instant) *Run {
	return &Run{
		start:    start,
		codes:    make(map[string]int64),
		service:  newTally(),
		response: newTally(),
		wait:     newTally(),
		series:   series{width: time.Second},
		recent:   newRecent(),
	}
}

// Recorder returns a new recorder, for one worker.
func (r *Run) Recorder() *Recorder {
	rc := &Recorder{run: r}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recorders = append(r.recorders, rc)
	return rc
}

// SetTarget says that so many operations a second are due from then on. Call it when
// that begins, in order of time; an instant before the last one counts as that. A rate
// that is not a positive number means that none are: set it to 0 when the schedule is
// over, so that the rates in the report do not include the time in which the last
// operations end.
func (r *Run) SetTarget(at weir.Instant, rate float64) {
	if !(rate > 0) || math.IsInf(rate, 0) {
		rate = 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target.advance(r.offset(at), &r.series)
	r.target.rate = min(rate, maxRate)
	if rate > 0 {
		r.late = 0 // what was over has gone on
	}
}

// collect empties all recorders, one after another, so that no worker waits for long.
// Operations that end meanwhile may be left for the next time.
func (r *Run) collect(now weir.Instant) (under inFlight) {
	r.mu.Lock()
	recorders := r.recorders // it only ever grows
	r.mu.Unlock()
	for _, rc := range recorders {
		if op, busy := rc.flush(); busy {
			under.add(op, now)
		}
	}
	return under
}

// addLocked counts an operation.
func (r *Run) addLocked(op *Op) {
	service, wait := op.service(), op.wait()
	ended := r.offset(op.Ended)
	r.ops++
	r.bytes += int64(max(0, op.Bytes))
	r.codes[r.codeLocked(op.Code)]++
	if !op.OK {
		r.errors++
	}
	if r.target.over(ended) {
		r.late++
	}
	r.last = max(r.last, ended)
	r.service.add(service)
	r.wait.add(wait)
	r.response.add(service + wait)
	r.series.add(ended, op)
	r.recent.add(ended, op)
}

// codeLocked returns the name under which a code is counted. It copies a new one, which
// may be a piece of a larger string.
func (r *Run) codeLocked(code string) string {
	if _, known := r.codes[code]; known {
		return code
	}
	if len(r.codes) >= maxCodes {
		return otherCode
	}
	return strings.Clone(code)
}

// maxOffset keeps sums of offsets within an int64. It is 73 years.
const maxOffset = 1 << 61

// offset returns the time from the start to an instant, 0 if that is earlier.
func (r *Run) offset(at weir.Instant) time.Duration {
	return min(max(0, at.Sub(r.start)), maxOffset)
}
