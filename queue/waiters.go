package queue

import (
	"context"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
)

// A line is the waiting callers of a Queue for one key under policies of one name. It
// exists only while there are any.
//
// Only the head calls the limiter: from its own goroutine, with its own context and
// its own timer. So a line needs no goroutine, and a slow reply delays only the
// callers behind the head. The head calls when it comes to the front, when the
// RetryAfter of its last call is over, and when retry says that turns have moved. It
// leaves when it is admitted, refused finally, or its context ends; that wakes the
// next one.
//
// A caller joins its line before it calls the limiter, and a refund looks for lines
// after it was made. So either the limiter's decision includes the refund, or retry finds
// the head.
//
// Its fields and methods require the Queue's mu.
type line struct {
	key     queueKey
	waiters []*waiter
	moved   chan struct{} // closed when a waiter left or the head was refused for now; nil if nothing listens
}

type queueKey struct{ policy, key string }

// waiter is a waiting caller in a line.
type waiter struct {
	line   *line // set by join, like the next three
	nr     uint64
	charge weir.Charge
	wake   chan struct{} // buffered; receives when w must check its turn again

	due   weir.Instant // of the head: when it tries, or tryNow, or trying; requires mu
	doubt bool         // a Set may have made the cost too high; requires mu
}

const (
	// tryNow: the head has just come to the front, or turns have moved.
	tryNow weir.Instant = 0

	// trying: a call of the limiter is running. retry overwrites it with tryNow, as the
	// decision may be older than the refund, and its RetryAfter must not be used.
	trying weir.Instant = -1
)

// retry makes the head try again.
func (ln *line) retry() {
	if len(ln.waiters) > 0 {
		ln.waiters[0].due = tryNow
		ln.waiters[0].signal()
	}
}

// doubtAbove makes the waiters whose cost exceeds capacity check it again.
func (ln *line) doubtAbove(capacity int64) {
	for _, w := range ln.waiters {
		if w.charge.Cost > capacity {
			w.doubt = true
			w.signal()
		}
	}
}

// notify wakes the calls that watch the line.
func (ln *line) notify() {
	if ln.moved != nil {
		close(ln.moved)
		ln.moved = nil
	}
}

// signal wakes w. It does not block: one that is about to wake will do.
func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// sleep returns when d is over, unless that is Never, when w is woken, or when ctx
// ends. It does not require mu.
func (w *waiter) sleep(ctx context.Context, d time.Duration) {
	var alarm <-chan time.Time
	if d != weir.Never {
		timer := time.NewTimer(d)
		defer timer.Stop()
		alarm = timer.C
	}
	select {
	case <-alarm:
	case <-w.wake:
	case <-ctx.Done():
	}
}

// busy says whether callers wait for key.
func (q *Queue) busy(p *weir.Policy, key string) bool {
	if q.waiting.Load() == 0 || p == nil {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lines[queueKey{p.Name(), key}] != nil
}

// join puts a charge at the end of its line, or returns nil if there is no place.
func (q *Queue) join(c *weir.Charge) *waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.lines[queueKey{c.Policy.Name(), c.Key}]
	if q.waiting.Load() >= q.maxTotal || ln != nil && len(ln.waiters) >= q.maxPerKey {
		return nil
	}
	if ln == nil {
		ln = &line{key: queueKey{c.Policy.Name(), strings.Clone(c.Key)}}
		q.lines[ln.key] = ln
	}
	q.next++
	w := &waiter{line: ln, nr: q.next, charge: *c, wake: make(chan struct{}, 1)}
	w.charge.Key = ln.key.key // the caller's is not kept
	ln.waiters = append(ln.waiters, w)
	q.waiting.Add(1)
	return w
}

// leave removes w from its line, and lets the next one try.
func (q *Queue) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := w.line
	i := slices.Index(ln.waiters, w)
	ln.waiters = slices.Delete(ln.waiters, i, i+1)
	q.waiting.Add(-1)
	switch {
	case len(ln.waiters) == 0:
		delete(q.lines, ln.key)
	case i == 0:
		ln.waiters[0].signal() // its due is tryNow already
	}
	ln.notify()
}

// A turn is the next step of a waiter.
type turn struct {
	doubt bool          // see whether the cost still fits
	wait  time.Duration // sleep so long, if not 0; Never: until woken
	came  bool          // try, since the awaited instant has come
}

// turn returns the next step of w. If that is to try, w is marked as trying.
func (q *Queue) turn(w *waiter) turn {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := weir.Now()
	switch {
	case w.doubt:
		w.doubt = false
		return turn{doubt: true}
	case w.line.waiters[0] != w:
		return turn{wait: weir.Never}
	case w.due > now:
		return turn{wait: w.due.Sub(now)}
	}
	t := turn{came: w.due > tryNow}
	w.due = trying
	return t
}

// far is longer than any wait, and short enough to be added to an instant.
const far = 100 * 365 * 24 * time.Hour

// postpone notes that w was refused and has to wait. The wait counts from
// here, not from the call of the limiter, so it never ends too early.
func (q *Queue) postpone(w *waiter, retryAfter time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.due == trying {
		w.due = weir.Now().Add(max(1, min(retryAfter, far)))
	}
	w.line.notify()
}

// retry makes the heads of the lines of charges try again.
func (q *Queue) retry(charges []weir.Charge) {
	if q.waiting.Load() == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range charges {
		if c.Policy == nil {
			continue // which is why the batch was not carried out
		}
		if ln := q.lines[queueKey{c.Policy.Name(), c.Key}]; ln != nil {
			ln.retry()
		}
	}
}

// ahead is the waiters that a charge must not overtake, as of one instant.
type ahead struct {
	line        *line         // nil: there are none
	first, last uint64        // the sequence numbers of the head and of the last waiter
	units       int64         // what all of them wait for
	headUnits   int64         // what the head waits for
	wait        time.Duration // until the head tries; 0: it is due
	moved       chan struct{} // closed when that may have changed; nil unless the head is due
}

// letDueGo returns when no waiter for the charged keys is due.
func (q *Queue) letDueGo(ctx context.Context, charges []weir.Charge) error {
	for i := range charges {
		if _, err := q.aheadOf(ctx, &charges[i]); err != nil {
			return err
		}
	}
	return nil
}

// aheadOf returns the waiters that charge c must not overtake. Waiters that are due go
// first.
func (q *Queue) aheadOf(ctx context.Context, c *weir.Charge) (ahead, error) {
	if c.Policy == nil || q.waiting.Load() == 0 {
		return ahead{}, nil
	}
	return q.standBehind(ctx, queueKey{c.Policy.Name(), c.Key}, nil)
}

// standBehind returns the waiters for k, up to w unless that is nil. While
// the head is due it lets them go first: until one is refused for now, or all waiters
// that were there at the start have left.
func (q *Queue) standBehind(ctx context.Context, k queueKey, w *waiter) (ahead, error) {
	a := q.look(k, w)
	for last := a.last; a.moved != nil && a.first <= last; a = q.look(k, w) {
		select {
		case <-a.moved:
		case <-ctx.Done():
			return a, ctx.Err()
		}
	}
	return a, nil
}

// look returns the current waiters for k, up to w unless that is nil.
func (q *Queue) look(k queueKey, w *waiter) ahead {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.lines[k]
	if ln == nil || ln.waiters[0] == w {
		return ahead{}
	}
	head := ln.waiters[0]
	a := ahead{line: ln, first: head.nr, headUnits: head.charge.Cost, wait: max(0, head.due.Sub(weir.Now()))}
	for _, o := range ln.waiters {
		if o == w {
			break
		}
		a.last, a.units = o.nr, a.units+o.charge.Cost
	}
	if a.wait > 0 {
		return a
	}
	if ln.moved == nil {
		ln.moved = make(chan struct{})
	}
	a.moved = ln.moved
	return a
}

// expect returns when a charge can be made behind the waiters ahead of it.
func (q *Queue) expect(ctx context.Context, c *weir.Charge, a ahead) (weir.Decision, error) {
	d, err := weir.Peek(ctx, q.limiter, c.Policy, c.Key, a.peekCost(c))
	if err != nil {
		return weir.Decision{}, err
	}
	return q.behind(a, c, d), nil
}

// peekCost returns the cost to peek at for a charge behind others: its own and
// theirs, as far as that ever fits at once.
func (a ahead) peekCost(c *weir.Charge) int64 {
	return max(c.Cost, min(a.units+c.Cost, c.Policy.Capacity()))
}

// behind makes the decision on charge c from the limiter's decision on its peekCost.
// RetryAfter is when c's turn is expected. There are two estimates.
//
// By room: when c and all ahead of it fit at once, they have had their turns at the
// latest. What exceeds the capacity comes after that, at the pace of the limit.
//
// By rate: the head's turn leaves nothing, and the units of all who follow come at
// the pace of the slowest limit. That is so for GCRA and TokenBucket. It is earlier
// than by room where open reservations keep so much that all fit at once only when
// they end, while turns go on in what they leave.
//
// The earlier of both is the turn, without reservations: for one GCRA or
// TokenBucket, to a nanosecond for each turn; and for several, for fixed and
// anchored windows and for logs, as long as all fit at once. For one GCRA or
// TokenBucket with reservations it is not too late, but may be too early. For
// anything else it is a guess. Who comes too early is refused once more, with a
// better one.
func (q *Queue) behind(a ahead, c *weir.Charge, d weir.Decision) weir.Decision {
	outdated := d.Reason == weir.TooCostly && c.Cost <= d.Limit // other limits are in force than those of c's policy
	if a.line == nil || !outdated && (d.RetryAfter == weir.Never || !d.Allowed && d.Reason != weir.Exhausted) {
		return d
	}
	limits, units := c.Policy.Limits(), a.units+c.Cost
	byRoom := min(d.RetryAfter, far) + pace(limits[min(int(d.By), len(limits)-1)], units-a.peekCost(c))
	byRate := a.wait + slowestPace(limits, units-a.headUnits)
	expected := byRoom
	if outdated || bursts(limits) && byRate < byRoom-1 { // one nanosecond is rounding
		expected = byRate
	}
	if expected < a.wait {
		q.retry([]weir.Charge{*c}) // there is room before the head's RetryAfter
	}
	d.Allowed, d.Reason, d.Remaining, d.RetryAfter = false, weir.Exhausted, 0, max(1, expected)
	return d
}

// bursts says whether all limits are GCRA or TokenBucket.
func bursts(limits []weir.Limit) bool {
	return !slices.ContainsFunc(limits, func(l weir.Limit) bool { return l.Algorithm != weir.GCRA && l.Algorithm != weir.TokenBucket })
}

// slowestPace returns how long the slowest limit takes to admit units.
func slowestPace(limits []weir.Limit, units int64) time.Duration {
	var longest time.Duration
	for _, l := range limits {
		longest = max(longest, pace(l, units))
	}
	return longest
}

// pace returns how long a limit takes to admit units, rounded down, at most far.
func pace(l weir.Limit, units int64) time.Duration {
	hi, lo := bits.Mul64(uint64(units), uint64(usual(l.Per)))
	if hi >= uint64(l.Rate) {
		return far
	}
	ns, _ := bits.Div64(hi, lo, uint64(l.Rate))
	return time.Duration(min(ns, uint64(far)))
}

// usual returns the length of a period. For calendars it is that of the shortest there is,
// clock changes aside.
func usual(p weir.Period) time.Duration {
	unit, zone := p.Calendar()
	if zone == nil {
		return p.Duration()
	}
	days := [...]time.Duration{weir.Day: 1, weir.Week: 7, weir.Month: 28, weir.Year: 365}
	return days[unit] * 24 * time.Hour
}
