package weir

import (
	"sync"
	"time"

	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/compiled"
)

// NoExpiry is the time to live of a reservation that is held until it is settled. It is valid
// only if every limit of the policy is a Concurrency limit.
const NoExpiry = compiled.NoExpiry

// Settled is how a reservation ended. Where one stands for several charges, as the daemon's under a policy or a
// budget with several units, Refunded and Overrun are sums: of all units, those of limits in shadow included.
type Settled struct {
	// Refunded is how many units were given back. Windows take back only into
	// the window that was charged, so it is 0 once that is over. Concurrency
	// slots are always freed, and not counted here.
	Refunded int64

	// Overrun is how many units were used beyond the reservation. They are charged even
	// if they exceed the limit, so they lie outside the limit's bound.
	Overrun int64

	// Late says that the reservation had expired, which counts as using all of it;
	// nothing changed. A reservation that is settled again before its expiry is not late:
	// the first outcome is returned again. At least the 1,000 latest outcomes of a key
	// are remembered.
	Late bool
}

// Hold is an open reservation of a Single; that of a Limiter is a [Reservation]. Its methods may
// be called by several goroutines; the first that settles it wins, and the others get the same
// outcome. Reserve returns a nil Hold if it is refused, and the methods of a nil Hold do nothing.
type Hold struct {
	s  *Single
	id uint64

	mu      sync.Mutex // guards the fields below; taken before s.mu
	settled bool
	outcome Settled
}

// Reserve charges cost units now, if they fit, and holds them for work whose
// cost is known only afterwards. Held units occupy room until Commit or Cancel;
// after ttl (0 means a minute; at most an hour) they count as used. Refused, the
// Hold is nil. Beyond 10,000 open reservations it is refused as QueueFull.
func (s *Single) Reserve(cost int64, ttl time.Duration) (*Hold, Decision) {
	return s.reserveAt(Now(), cost, ttl)
}

// reserveAt is Reserve at a given instant.
func (s *Single) reserveAt(now Instant, cost int64, ttl time.Duration) (*Hold, Decision) {
	if compiled.CheckCost(cost) != nil {
		return nil, invalid()
	}
	s.lock(now)
	defer s.unlock(now)
	expiry, err := s.policy().compiled.Expiry(int64(now), ttl)
	if err != nil {
		return nil, invalid()
	}
	if s.queue.len() > 0 {
		return nil, s.behindQueueLocked(now, cost)
	}
	id, v := s.ledger.Reserve(int64(now), cost, expiry)
	s.traceStep(step{op: opReserve, now: now, cost: cost, id: id, expiry: expiry, verdict: v})
	d := newDecision(v, now)
	if !v.OK {
		if v.Crowded {
			d.Reason = QueueFull
		}
		return nil, d
	}
	return &Hold{s: s, id: id}, d
}

// Commit ends the reservation: used units are kept, the rest is given back
// exactly, and what was used beyond it is owed. After the first settling it
// changes nothing and returns what that returned. A negative or excessive used
// counts as 0 or MaxCost.
func (h *Hold) Commit(used int64) Settled { return h.commitAt(Now(), used) }

// commitAt is Commit at a given instant.
func (h *Hold) commitAt(now Instant, used int64) Settled {
	if h == nil {
		return Settled{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.settled {
		return h.outcome
	}
	h.settled = true
	h.outcome = h.s.settle(now, h.id, min(max(used, 0), MaxCost))
	return h.outcome
}

// Cancel ends the reservation and gives all of it back. It is Commit(0), and
// right for a deferred call: after Commit it changes nothing.
func (h *Hold) Cancel() Settled { return h.commitAt(Now(), 0) }

// Renew moves the expiry to ttl from now. It returns false if the reservation
// is over or ttl is out of range.
func (h *Hold) Renew(ttl time.Duration) bool { return h.renewAt(Now(), ttl) }

// renewAt is Renew at a given instant.
func (h *Hold) renewAt(now Instant, ttl time.Duration) bool {
	if h == nil {
		return false
	}
	s := h.s
	s.lock(now)
	defer s.unlock(now)
	expiry, err := s.policy().compiled.Expiry(int64(now), ttl)
	if err != nil {
		return false
	}
	ok := s.ledger.Renew(int64(now), h.id, expiry)
	s.traceStep(step{op: opRenew, now: now, id: h.id, expiry: expiry, settled: algo.Settlement{Late: !ok}})
	s.queue.changed()
	return ok
}

func (s *Single) settle(now Instant, id uint64, used int64) Settled {
	s.lock(now)
	defer s.unlock(now)
	out := s.ledger.Settle(int64(now), id, used)
	s.traceStep(step{op: opSettle, now: now, id: id, cost: used, settled: out})
	s.queue.changed()
	return Settled(out)
}
