package queue

import (
	"cmp"
	"context"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
)

// A line is the waiting callers of a Queue for one key under policies of one name and class. It
// exists only while there are any. They are ordered by their numbers, that is by arrival.
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
// the head. Therefore a head that moves to another line calls again there.
//
// A head with several charges does not overtake a caller with a lower number in the line of
// another charge, but moves behind it. The caller with the lowest number of all is the head
// wherever it stands and moves behind no other, so some caller can always go on.
//
// Its fields and methods require the Queue's mu.
type line struct {
	key     queueKey
	waiters []*waiter
	moved   chan struct{} // closed when a waiter left or the head was refused for now; nil if nothing listens
}

// stateKey identifies what the limiter counts.
type stateKey struct{ policy, key string }

// queueKey identifies a line. Policies that differ only in their class act on the same state,
// and their callers do not wait for each other.
type queueKey struct {
	stateKey
	class string
}

func keyOf(c *weir.Charge) queueKey {
	return queueKey{stateKey{c.Policy.Name(), c.Key}, c.Policy.Compiled().Class}
}

// waiter is a waiting caller in a line.
type waiter struct {
	nr   uint64        // set by join, like wake
	wake chan struct{} // buffered; receives when w must check its turn again

	// batch is what w waits for: TakeAll or ReserveAll. The charges are set by join; the rest is
	// for the caller's goroutine.
	batch weir.Batch

	line  *line        // requires mu, like the fields below
	units int64        // what it waits for in its line
	due   weir.Instant // of the head: when its turn is expected, or tryNow, or trying
	early weir.Instant // of the head: when it tries in spite of due; after due if it does not
	doubt bool         // a Set may have made the cost too high
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

// doubtUnder makes the waiters whose cost may exceed the capacity under p, which was set, check
// it again. The capacity of p says nothing about other classes.
func (ln *line) doubtUnder(p *weir.Policy) {
	for _, w := range ln.waiters {
		if w.mayExceed(p) {
			w.doubt = true
			w.signal()
		}
	}
}

// mayExceed says whether w cannot be sure that its cost fits p.
func (w *waiter) mayExceed(p *weir.Policy) bool {
	var cost int64
	for i := range w.batch.Charges {
		c := &w.batch.Charges[i]
		switch {
		case c.Policy.Name() != p.Name():
		case c.Policy.Compiled().Class != p.Compiled().Class:
			return true
		default:
			cost = min(cost+c.Cost, weir.MaxCost) // as if all were to one key
		}
	}
	return cost > p.Capacity()
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
	return q.lineLocked(keyOf(&weir.Charge{Policy: p, Key: key})) != nil
}

// lineLocked returns the line of a key, nil if nobody waits.
func (q *Queue) lineLocked(k queueKey) *line {
	for _, ln := range q.lines[k.stateKey] {
		if ln.key.class == k.class {
			return ln
		}
	}
	return nil
}

// firstBusy returns the index of the first charge for whose key callers wait, or -1. A cost of 0
// overtakes no caller.
func (q *Queue) firstBusy(charges []weir.Charge) int {
	if q.waiting.Load() == 0 {
		return -1
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.IndexFunc(charges, func(c weir.Charge) bool { return c.Cost > 0 && q.lineLocked(keyOf(&c)) != nil })
}

// join puts a batch at the end of the line of charge at, or returns nil if there is no place.
func (q *Queue) join(b *weir.Batch, at int) *waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.lineLocked(keyOf(&b.Charges[at]))
	if q.waiting.Load() >= q.maxTotal || ln != nil && len(ln.waiters) >= q.maxPerKey {
		return nil
	}
	q.next++
	w := &waiter{nr: q.next, wake: make(chan struct{}, 1)}
	w.batch = weir.Batch{Op: b.Op, TTL: b.TTL, Charges: slices.Clone(b.Charges), Decisions: make([]weir.Decision, len(b.Charges))}
	for i := range w.batch.Charges {
		w.batch.Charges[i].Key = strings.Clone(b.Charges[i].Key) // the caller's is not kept
	}
	q.waiting.Add(1)
	q.enterLocked(w, at)
	return w
}

// enterLocked puts w into the line of its charge at, behind those who came before it.
func (q *Queue) enterLocked(w *waiter, at int) {
	k := keyOf(&w.batch.Charges[at])
	ln := q.lineLocked(k)
	if ln == nil {
		ln = &line{key: k}
		q.lines[k.stateKey] = append(q.lines[k.stateKey], ln)
	}
	i, _ := slices.BinarySearchFunc(ln.waiters, w.nr, func(o *waiter, nr uint64) int { return cmp.Compare(o.nr, nr) })
	ln.waiters = slices.Insert(ln.waiters, i, w)
	w.line, w.due, w.units = ln, tryNow, unitsByKey(w.batch.Charges)[k]
}

// leave removes w from its line, and lets the next one try.
func (q *Queue) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.exitLocked(w)
	q.waiting.Add(-1)
}

func (q *Queue) exitLocked(w *waiter) {
	ln := w.line
	i := slices.Index(ln.waiters, w)
	ln.waiters = slices.Delete(ln.waiters, i, i+1)
	switch {
	case len(ln.waiters) == 0:
		q.removeLocked(ln)
	case i == 0:
		ln.retry()
	}
	ln.notify()
}

// removeLocked removes an empty line.
func (q *Queue) removeLocked(ln *line) {
	k := ln.key.stateKey
	classes := slices.DeleteFunc(q.lines[k], func(o *line) bool { return o == ln })
	if len(classes) == 0 {
		delete(q.lines, k)
		return
	}
	q.lines[k] = classes
}

// moveLocked moves w to the line of its charge at. It may come before those who came later.
func (q *Queue) moveLocked(w *waiter, at int) {
	q.exitLocked(w)
	q.enterLocked(w, at)
}

// olderLocked returns the index of a charge of w for which a caller that came before w is the
// head of another line, or -1.
func (q *Queue) olderLocked(w *waiter) int {
	if len(w.batch.Charges) == 1 {
		return -1
	}
	return slices.IndexFunc(w.batch.Charges, func(c weir.Charge) bool {
		if c.Cost == 0 {
			return false
		}
		ln := q.lineLocked(keyOf(&c))
		return ln != nil && ln.waiters[0].nr < w.nr
	})
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
	case min(w.due, w.early) > now:
		return turn{wait: min(w.due, w.early).Sub(now)}
	}
	if at := q.olderLocked(w); at >= 0 {
		q.moveLocked(w, at)
		return turn{wait: weir.Never}
	}
	t := turn{came: w.due > tryNow && w.due <= now}
	w.due = trying
	return t
}

// far is longer than any wait, and short enough to be added to an instant.
const far = 100 * 365 * 24 * time.Hour

// postpone notes that w was refused at its charge at, and has to wait, at most far. The wait counts from
// here, not from the call of the limiter, so it never ends too early. MayEndEarly means that w also
// tries after heldRetry.
func (q *Queue) postpone(w *waiter, at int, after time.Duration, mayEndEarly bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if keyOf(&w.batch.Charges[at]) != w.line.key {
		q.moveLocked(w, at)
		return
	}
	if w.due == trying {
		now := weir.Now()
		w.due, w.early = now.Add(max(1, after)), now.Add(far)
		if mayEndEarly {
			w.early = now.Add(heldRetry)
		}
	}
	w.line.notify()
}

// retry makes the heads of the lines of charges try again, also those of other classes, which may
// borrow what was given back.
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
		for _, ln := range q.lines[stateKey{c.Policy.Name(), c.Key}] {
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

// letDueGo returns when no waiter for the charged keys is due, of whichever class.
func (q *Queue) letDueGo(ctx context.Context, charges []weir.Charge) error {
	if q.waiting.Load() == 0 {
		return nil
	}
	for i := range charges {
		if charges[i].Policy == nil {
			continue // the limiter refuses the batch
		}
		for _, k := range q.keysOf(stateKey{charges[i].Policy.Name(), charges[i].Key}) {
			if _, err := q.standBehind(ctx, k, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// keysOf returns the keys of the lines that wait for k.
func (q *Queue) keysOf(k stateKey) (keys []queueKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, ln := range q.lines[k] {
		keys = append(keys, ln.key)
	}
	return keys
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
	ln := q.lineLocked(k)
	if ln == nil || w != nil && ln.waiters[0].nr >= w.nr {
		return ahead{}
	}
	head := ln.waiters[0]
	a := ahead{line: ln, first: head.nr, headUnits: head.units, wait: max(0, head.due.Sub(weir.Now()))}
	for _, o := range ln.waiters {
		if w != nil && o.nr >= w.nr {
			break
		}
		a.last, a.units = o.nr, a.units+o.units
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
