package redisstore

// Reservations and settlements of one key that wait at the same time are sent together, each of a caller
// of its own: most of what such a call costs the server is to read the row, to write it, and to begin a
// script. They are decided one after the other, as if they had been sent one by one.

// sameCall says which calls are sent together.
type sameCall struct {
	op  string
	key string
	ttl int64
}

// combines says whether a call may be sent with others, and with which.
func (c *call) combines() (sameCall, bool) {
	if len(c.charges) != 1 || c.charges[0].used > 0 || c.op != opHold && c.op != opSettle {
		return sameCall{}, false
	}
	return sameCall{c.op, c.charges[0].key, c.ttl}, true
}

// sortCall adds a call to those that are sent, or to one of them.
func (s *sender) sortCall(r *request) {
	same, combines := r.call.combines()
	at, known := s.combined[same]
	if combines && known && len(s.calls[at].requests) < rowsPerCall {
		s.calls[at].combine(r)
		return
	}
	if combines {
		s.combined[same] = len(s.calls)
	}
	s.calls = append(s.calls, separate(r))
}

// separate returns a request as a call of its own.
func separate(r *request) *pending {
	if r.call == nil {
		return alone(r)
	}
	return &pending{r.call, []*request{r}}
}

// combine adds a request that has a call to p.
func (p *pending) combine(r *request) {
	if len(p.requests) == 1 {
		op := p.op
		if op == opHold {
			op = opHolds
		}
		p.call = &call{op: op, ttl: p.ttl, charges: p.charges[:1:1]}
	}
	p.charges, p.requests = append(p.charges, r.call.charges[0]), append(p.requests, r)
}

// share gives request i of p its part of the reply.
func (p *pending) share(i int) {
	if c := p.requests[i].call; c != nil && c != p.call {
		c.now, c.outcomes, c.charges[0].n = p.now, p.outcomes[i:i+1:i+1], p.charges[i].n
	}
}
