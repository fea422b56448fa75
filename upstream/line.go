package upstream

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// Lines are where requests wait that no endpoint can take: first come, first served.
//
// Requests that can use different endpoints stand in different lines, so that one which waits for a certain endpoint
// does not hold up the others; and so do those of different classes and of different clients, so that who sends many
// holds up nobody else. The head of a line tries all its endpoints,
// sleeps until the first of them can take it, and tries again; all others sleep until they are the head. So
// it is exact however many wait, and no request overtakes another of its line. The heads of several lines take
// turns, as chance has it.
//
// A request joins only if it can expect its turn before its deadline. Its turn is planned for that: on the endpoint
// that could take it first if all who came before keep to their plans. Nobody is bound by a plan.
type lines struct {
	total atomic.Int64 // waiting requests; written with mu held

	// awaited is how many heads wait for a reservation to end. Who ends one looks at it afterwards, and they try
	// once more after they have increased it, so no end is missed.
	awaited atomic.Int64

	mu      sync.Mutex // guards the fields below
	joined  int64      // requests that have ever joined
	byKey   map[lineKey][]*waiter
	changed chan struct{} // closed and replaced when an endpoint may have got room
}

// A lineKey is what requests of a line have in common.
type lineKey struct {
	class     string
	client    string
	endpoints [2]uint64 // those that can be used, as bits
}

type waiter struct {
	number int64   // in the order of arrival
	plan   *memory // the endpoint for which it is planned
	keyIn  func(*set) lineKey

	key   lineKey       // guarded by lines.mu, like leads
	leads bool          // it is, or was, the head of its line
	head  chan struct{} // closed when it is
}

// leadLocked makes it the head of its line.
func (w *waiter) leadLocked() {
	if !w.leads {
		w.leads = true
		close(w.head)
	}
}

func newLines() *lines {
	return &lines{byKey: map[lineKey][]*waiter{}, changed: make(chan struct{})}
}

func (l *lines) waiting() int { return int(l.total.Load()) }

// busy reports whether requests wait in the line of a call.
func (l *lines) busy(s *set, c *Call, tried []*endpoint) bool {
	if l.waiting() == 0 {
		return false
	}
	key := s.keyOf(c, tried)
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.byKey[key]) > 0
}

// ahead returns by endpoint how many waiting requests can be expected to be sent before the next one of a line: those of
// the line itself that are planned for the endpoint, and as many and one more of each other line, as heads take turns.
func (l *lines) ahead(key lineKey) map[*memory]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := map[*memory]int{}
	for _, w := range l.byKey[key] {
		own[w.plan]++
	}
	all := maps.Clone(own)
	for k, line := range l.byKey {
		if k == key {
			continue
		}
		other := map[*memory]int{}
		for _, w := range line {
			if other[w.plan]++; other[w.plan] <= own[w.plan]+1 {
				all[w.plan]++
			}
		}
	}
	return all
}

// ofClientLocked returns how many requests of a client wait.
func (l *lines) ofClientLocked(client string) (n int) {
	for k, line := range l.byKey {
		if k.client == client {
			n += len(line)
		}
	}
	return n
}

// join puts a request at the end of its line. It returns nil if too many wait, or too many of its client.
func (l *lines) join(s *sending, plan *memory, most int) *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting() >= most || s.call.Client != "" && l.ofClientLocked(s.call.Client) >= (most+1)/2 {
		return nil
	}
	l.joined++
	w := &waiter{number: l.joined, plan: plan, head: make(chan struct{}), keyIn: func(set *set) lineKey { return set.keyOf(s.call, s.tried) }}
	w.key = w.keyIn(s.pool.set.Load()) // with mu held, so that none is missed by rearrange
	l.byKey[w.key] = append(l.byKey[w.key], w)
	l.byKey[w.key][0].leadLocked()
	l.total.Add(1)
	return w
}

// leave takes a request out of its line.
func (l *lines) leave(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.byKey[w.key]
	at := slices.Index(line, w)
	line = slices.Delete(line, at, at+1)
	l.byKey[w.key] = line
	l.total.Add(-1)
	if len(line) == 0 {
		delete(l.byKey, w.key)
		return
	}
	line[0].leadLocked()
}

// rearrange puts those who wait into the lines of a new set, in the order in which they came, and lets the heads try again.
func (l *lines) rearrange(next *set) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*waiter
	for _, line := range l.byKey {
		all = append(all, line...)
	}
	slices.SortFunc(all, func(a, b *waiter) int { return cmp.Compare(a.number, b.number) })
	clear(l.byKey)
	for _, w := range all {
		w.key = w.keyIn(next)
		l.byKey[w.key] = append(l.byKey[w.key], w)
	}
	for _, line := range l.byKey {
		line[0].leadLocked()
	}
	l.wakeLocked()
}

// wake lets the heads of all lines try again.
func (l *lines) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakeLocked()
}

func (l *lines) wakeLocked() {
	if l.waiting() > 0 {
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

// change returns a channel that is closed at the next wake.
func (l *lines) change() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// keyOf returns the line of a call.
func (s *set) keyOf(c *Call, tried []*endpoint) lineKey {
	key := lineKey{class: c.Class, client: c.Client}
	for _, e := range s.endpoints {
		if e.takes(c) && !slices.ContainsFunc(tried, e.is) {
			key.endpoints[e.index/64] |= 1 << (e.index % 64)
		}
	}
	return key
}

// eligible returns the endpoints of a call, those of the best priority first.
func (s *set) eligible(c *Call, tried []*endpoint) []*endpoint {
	var list []*endpoint
	for _, e := range s.endpoints {
		if e.takes(c) && !slices.ContainsFunc(tried, e.is) {
			list = append(list, e)
		}
	}
	slices.SortStableFunc(list, func(a, b *endpoint) int { return a.Priority - b.Priority })
	return list
}

// wait waits in line until an endpoint takes the request.
func (s *sending) wait() (*lease, error) {
	p, set := s.pool, s.pool.set.Load()
	deadline := s.deadline(set)
	first, err := s.plan(set, deadline)
	if err != nil {
		return nil, err
	}
	w := p.lines.join(s, first.endpoint.memory, set.config.MaxQueue)
	if w == nil {
		return nil, s.refused(first, weir.QueueFull)
	}
	defer p.lines.leave(w)
	timer := time.NewTimer(time.Until(deadline) + grace)
	defer timer.Stop()
	select {
	case <-w.head:
	case <-timer.C:
		return nil, s.refused(first, weir.TooLate)
	case <-s.ctx.Done():
		return nil, context.Cause(s.ctx)
	}
	return s.waitAsHead(deadline)
}

// grace is how long those may still take that have their turn at the deadline, one after the other.
const grace = 100 * time.Millisecond

// recheck is how long a head sleeps at most while it waits for a reservation or a call to end: the reservation may be
// another process's, and what held the slot may have been a try in vain.
const recheck = 250 * time.Millisecond

// waitAsHead tries all endpoints, again and again, until one takes the request.
func (s *sending) waitAsHead(deadline time.Time) (*lease, error) {
	awaits := false
	defer func() {
		if awaits {
			s.pool.lines.awaited.Add(-1)
		}
	}()
	for last := false; ; {
		changed := s.pool.lines.change() // before the endpoints are tried, so that no change is missed
		l, first, err := s.tryAll(s.pool.set.Load().eligible(s.call, s.tried))
		switch {
		case l != nil || err != nil:
			return l, err
		case first.endpoint == nil || first.never || last || first.at.After(deadline) && !first.held:
			return nil, s.refused(first, weir.TooLate)
		case first.held && !awaits:
			awaits = true
			s.pool.lines.awaited.Add(1)
			continue
		case first.held:
			first.at = earliest(first.at, time.Now().Add(recheck), deadline)
			last = !time.Now().Before(deadline)
		case first.at.IsZero(): // at the next change
			first.at = earliest(time.Now().Add(recheck), deadline)
			last = !time.Now().Before(deadline)
		}
		if err := sleep(s.ctx, time.Until(first.at), changed); err != nil {
			return nil, err
		}
	}
}

func earliest(at time.Time, others ...time.Time) time.Time {
	for _, other := range others {
		if other.Before(at) {
			at = other
		}
	}
	return at
}

// sleep waits for a time, or until changed is closed.
func sleep(ctx context.Context, d time.Duration, changed <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// tryAll charges the first endpoint that can take the request. If none can, it returns the refusal that ends first;
// one without an endpoint if there is none that could ever end.
func (s *sending) tryAll(list []*endpoint) (*lease, refusal, error) {
	var first refusal
	for _, e := range list {
		l, r, err := s.pool.charge(s.ctx, e, s.call, false)
		if l != nil || err != nil {
			return l, refusal{}, err
		}
		if e.isDown() {
			continue
		}
		if first.endpoint == nil || r.before(first) {
			first = r
		}
	}
	return nil, first, nil
}

// before reports whether a refusal ends before another. One of which nobody can say when comes later, but not after
// one that never ends.
func (r refusal) before(other refusal) bool {
	switch {
	case r.never != other.never:
		return other.never
	case r.at.IsZero() != other.at.IsZero():
		return other.at.IsZero()
	}
	return r.at.Before(other.at)
}

// refused returns the error of a request that is not taken, for a reason other than that it never can be.
func (s *sending) refused(r refusal, reason weir.Reason) error {
	switch {
	case r.endpoint == nil || r.limit == limitedByFailure:
		return s.pool.down(s.call)
	case r.never:
		return &LimitedError{Reason: weir.TooCostly, Limit: r.limit, RetryAfter: weir.Never, Alias: r.endpoint.Alias}
	case r.at.IsZero(): // a call has to end; nobody knows when
		r.at = time.Now().Add(time.Second)
	}
	return &LimitedError{Reason: reason, Limit: r.limit, RetryAfter: max(1, time.Until(r.at)), Alias: r.endpoint.Alias}
}

// deadline is until when the request may wait: that of its context, or sooner.
func (s *sending) deadline(set *set) time.Time {
	at := s.began.Add(max(0, set.config.MaxWait))
	if end, ok := s.ctx.Deadline(); ok && end.Before(at) {
		return end
	}
	return at
}

// plan returns when and by which endpoint the request can expect to be taken, or the error if that is too late.
func (s *sending) plan(set *set, deadline time.Time) (first refusal, err error) {
	ahead := s.pool.lines.ahead(set.keyOf(s.call, s.tried))
	together := map[*quota]int{}
	for _, e := range set.endpoints {
		together[e.quota] += ahead[e.memory]
	}
	for _, e := range set.eligible(s.call, s.tried) {
		if e.isDown() {
			continue
		}
		r, err := s.pool.expect(s.ctx, e, s.call, ahead[e.memory], together[e.quota])
		if err != nil {
			return r, err
		}
		if first.endpoint == nil || r.before(first) {
			first = r
		}
	}
	switch {
	case first.endpoint == nil || first.never:
		return first, s.refused(first, weir.TooCostly)
	case set.config.MaxWait < 0:
		return first, s.refused(first, weir.Exhausted)
	case first.at.After(deadline):
		return first, s.refused(first, weir.TooLate)
	}
	return first, nil
}
