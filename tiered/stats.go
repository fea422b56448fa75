package tiered

import (
	"math/rand/v2"
	"sync/atomic"
)

// Stats is what a Limiter has done since it was made.
type Stats struct {
	// Decisions by source. Each charge of a batch counts as one.
	DenyCache int64 // a cached denial
	Lease     int64 // leased units
	Store     int64 // a reply of the store
	Async     int64 // an allowance
	Fallback  int64 // OnError, because the store was unavailable

	// StoreCalls is the number of calls to the store, including those for leases,
	// flushes and probes.
	StoreCalls int64

	// Failures is the number of calls that the store did not answer. Unknown is the
	// number of those that the store may have charged. Neither are retried.
	Failures, Unknown int64

	// UnknownUnits is the number of units granted under unknown outcomes: by calls that
	// the store did not answer and OnError admitted, and in flushes without a reply. It
	// is an upper bound of the units that the store did not charge.
	UnknownUnits int64

	// Unreadable is the number of decisions left to OnError because the store could not
	// read the state of the key.
	Unreadable int64

	// Busy is the number of calls that were not made because of Config.MaxInFlight.
	Busy int64

	// OpenBreakers is the number of the store's Partitions whose breaker is open now.
	// Opened and Closed count how often a breaker opened and closed.
	OpenBreakers, Partitions int
	Opened, Closed           int64

	// Leases is the number of leases in force, Forfeited the number of leases that were
	// not settled before they expired.
	Leases, Forfeited int64

	// Unsynced is the number of units granted here that the store has not charged yet.
	// Lost is the number of units that were flushed without a reply, or that the store
	// refused to charge. Forgiven is the number of units that were granted while the store
	// was unavailable and never recorded, because the table was full.
	Unsynced, Lost, Forgiven int64

	// Keys is the number of keys in the table, Nodes the number of nodes.
	Keys, Nodes int64

	// Published and Received count messages to and from other nodes, Unpublished those
	// that could not be sent.
	Published, Received, Unpublished int64
}

// Decisions returns the number of decisions.
func (s Stats) Decisions() int64 { return s.DenyCache + s.Lease + s.Store + s.Async + s.Fallback }

// CallsPerDecision returns the number of store calls per decision, 0 if there was no
// decision.
func (s Stats) CallsPerDecision() float64 {
	if n := s.Decisions(); n > 0 {
		return float64(s.StoreCalls) / float64(n)
	}
	return 0
}

// counts are the counters behind Stats. Those that every decision increments are spread over
// several cache lines.
type counts struct {
	denyCache, async, store, storeCalls spread

	lease, fallback, failures, unknown, busy, opened, closed                              atomic.Int64
	forfeited, lost, unknownUnits, unreadable, forgiven, published, received, unpublished atomic.Int64
}

// A spread is a counter for concurrent increments on several processors. Each increment
// picks a cell at random.
type spread struct{ cells [8]cell }

type cell struct {
	n atomic.Int64
	_ [56]byte // the rest of a cache line
}

func (s *spread) Add(n int64) { s.cells[rand.Uint32()%uint32(len(s.cells))].n.Add(n) }

func (s *spread) Load() (sum int64) {
	for i := range s.cells {
		sum += s.cells[i].n.Load()
	}
	return sum
}

// Stats returns what the Limiter has done so far.
func (t *Limiter) Stats() Stats {
	c := &t.counts
	s := Stats{
		DenyCache: c.denyCache.Load(), Lease: c.lease.Load(), Store: c.store.Load(), Async: c.async.Load(), Fallback: c.fallback.Load(),
		StoreCalls: c.storeCalls.Load(), Failures: c.failures.Load(), Unknown: c.unknown.Load(), UnknownUnits: c.unknownUnits.Load(), Unreadable: c.unreadable.Load(), Busy: c.busy.Load(),
		Partitions: len(t.breakers), Opened: c.opened.Load(), Closed: c.closed.Load(),
		Forfeited: c.forfeited.Load(), Lost: c.lost.Load(), Forgiven: c.forgiven.Load(),
		Keys: t.table.len.Load(), Nodes: int64(t.nodes()),
		Published: c.published.Load(), Received: c.received.Load(), Unpublished: c.unpublished.Load(),
	}
	for _, b := range t.breakers {
		if b.open.Load() {
			s.OpenBreakers++
		}
		s.Unsynced += b.unflushed.units()
	}
	t.leases.mu.Lock()
	for _, l := range t.leases.live {
		if l.entry.lease.Load() == l {
			s.Leases++
			s.Lease += int64(l.word.Load() >> 32)
		}
	}
	t.leases.mu.Unlock()
	return s
}
