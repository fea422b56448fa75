package upstream

import (
	"context"
	"slices"
	"time"

	"github.com/weirlimit/weir"
)

// keyOf returns the line of a call.
func (s *set) keyOf(c *Call, tried []*endpoint) lineKey {
	key := lineKey{class: c.Class, client: c.Client}
	for _, e := range s.endpoints {
		if e.takes(c) && !slices.ContainsFunc(tried, e.is) {
			key.endpoints.add(e.index)
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
func (s *sending) wait() (taken *lease, err error) {
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
	defer func() { p.lines.leave(w, taken != nil) }()
	timer := time.NewTimer(time.Until(deadline) + grace)
	defer timer.Stop()
	select {
	case <-w.head:
	case <-timer.C:
		return nil, s.refused(first, weir.TooLate)
	case <-s.ctx.Done():
		return nil, context.Cause(s.ctx)
	}
	return s.waitAsHead(w, deadline)
}

// grace is how much later than at its deadline a request may be sent that could expect to make it: its turn was planned
// from another instant, and at the deadline heads take turns.
const grace = 100 * time.Millisecond

// recheck is how long a head sleeps at most while it waits for a reservation or a call to end: the reservation may be
// another process's, and what held the slot may have been a try in vain.
const recheck = 250 * time.Millisecond

// waitAsHead tries all endpoints, again and again, until one takes the request.
func (s *sending) waitAsHead(w *waiter, deadline time.Time) (*lease, error) {
	lines, awaits := s.pool.lines, false
	defer func() {
		if awaits {
			lines.awaited.Add(-1)
		}
	}()
	for last := false; ; {
		if err := lines.await(s.ctx, w); err != nil {
			return nil, err
		}
		changed := lines.change() // before the endpoints are tried, so that no change is missed
		l, first, err := s.tryAll(s.pool.set.Load().eligible(s.call, s.tried), deadline)
		switch {
		case l != nil || err != nil:
			return l, err
		case first.endpoint == nil || first.never || last || first.at.After(deadline.Add(grace)) && !first.held:
			return nil, s.refused(first, weir.TooLate)
		case first.held && !awaits:
			awaits = true
			lines.awaited.Add(1)
			continue
		case first.held:
			first.at = earliest(first.at, time.Now().Add(recheck), deadline)
			last = !time.Now().Before(deadline)
		case first.at.IsZero(): // at the next change
			first.at = earliest(time.Now().Add(recheck), deadline)
			last = !time.Now().Before(deadline)
		}
		lines.tried(w, first.at)
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

// tryAll charges the first endpoint that can take the request. If none can, it returns the refusal that ends first
// for a request with that deadline; one without an endpoint if there is none that could ever end.
func (s *sending) tryAll(list []*endpoint, deadline time.Time) (*lease, refusal, error) {
	var first refusal
	for _, e := range list {
		l, r, err := s.pool.charge(s.ctx, e, s.call, false)
		if l != nil || err != nil {
			return l, refusal{}, err
		}
		if e.isDown() {
			continue
		}
		if first.endpoint == nil || r.before(first, deadline) {
			first = r
		}
	}
	return nil, first, nil
}

// unknownWait is how long callers are told to wait for a call in flight to end: nobody knows.
const unknownWait = time.Second

// before reports whether a refusal is better to wait for than another: the one that ends first. One that ends with a
// call in flight, nobody knows when, comes before those that end too late, and behind the others.
func (r refusal) before(other refusal, deadline time.Time) bool {
	switch {
	case r.never != other.never:
		return other.never
	case r.at.IsZero() && other.at.IsZero():
		return false
	case r.at.IsZero():
		return other.isLate(deadline)
	case other.at.IsZero():
		return !r.isLate(deadline)
	}
	return r.at.Before(other.at)
}

// isLate reports whether a refusal ends after the deadline, and not soon either.
func (r refusal) isLate(deadline time.Time) bool {
	return r.at.After(deadline) && time.Until(r.at) > unknownWait
}

// refused returns the error of a request that is not taken, for a reason other than that it never can be.
func (s *sending) refused(r refusal, reason weir.Reason) error {
	switch {
	case r.endpoint == nil || r.limit == limitedByFailure:
		return s.pool.down(s.call)
	case r.never:
		return &LimitedError{Reason: weir.TooCostly, Limit: r.limit, RetryAfter: weir.Never, Alias: r.endpoint.Alias}
	case r.at.IsZero(): // a call has to end; nobody knows when
		r.at = time.Now().Add(unknownWait)
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
		if first.endpoint == nil || r.before(first, deadline) {
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
