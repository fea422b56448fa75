package tiered

import (
	"math/rand/v2"
	"sync/atomic"
)

// Stats is what a Limiter has done since it was made.
type Stats struct {
	// Decisions by what they were made on. A charge of a batch is one.
	DenyCache int64 // a denial that was known
	Lease     int64 // units leased before
	Store     int64 // the store's word
	Async     int64 // an allowance
	Fallback  int64 // OnError, the store being away

	// StoreCalls is how many calls were made to the store for all of that, those for
	// leases, flushes and probes included.
	StoreCalls int64

	// Failures is how many calls the store did not answer, Unknown those of them
	// after which it may have charged or not. Neither was repeated.
	Failures, Unknown int64

	// UnknownUnits is how many units were granted here under unknown outcomes: of
	// calls that the store did not answer and that OnError admitted, and of usage that
	// was flushed without a reply. It is an upper bound of what the store did not charge.
	UnknownUnits int64

	// Unreadable is how many decisions were left to OnError because the store could not
	// read the state of the key.
	Unreadable int64

	// Busy is how many calls were not made because of Config.MaxInFlight.
	Busy int64

	// Open is how many of Parts parts of the store are given up now, Opened how
	// often one was given up and Closed how often one came back.
	Open, Parts    int
	Opened, Closed int64

	// Leases is how many leases are in force, Forfeited how many could not be given
	// back before they expired.
	Leases, Forfeited int64

	// Owed is how many units are unsynced, Lost how many were flushed without a
	// reply or refused by the store, and Forgiven those that were granted while it was
	// unavailable and for which there was no room to remember them.
	Owed, Lost, Forgiven int64

	// Keys is of how many keys something is known, Nodes how many nodes there are.
	Keys, Nodes int64

	// Published and Heard count words to and from other nodes, Unpublished those
	// that could not be sent.
	Published, Heard, Unpublished int64
}

// Decisions is how many decisions were made.
func (s Stats) Decisions() int64 { return s.DenyCache + s.Lease + s.Store + s.Async + s.Fallback }

// CallsPerDecision is how often the store was called for each decision, 0 if there was
// none.
func (s Stats) CallsPerDecision() float64 {
	if n := s.Decisions(); n > 0 {
		return float64(s.StoreCalls) / float64(n)
	}
	return 0
}

// counts are kept by the callers. Those of every decision are spread over several
// cache lines.
type counts struct {
	denyCache, async, store, storeCalls spread

	lease, fallback, failures, unknown, busy, opened, closed                           atomic.Int64
	forfeited, lost, unknownUnits, unreadable, forgiven, published, heard, unpublished atomic.Int64
}

// A spread is a counter that goroutines on several processors raise at once. Each
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
		Parts: len(t.breakers), Opened: c.opened.Load(), Closed: c.closed.Load(),
		Forfeited: c.forfeited.Load(), Lost: c.lost.Load(), Forgiven: c.forgiven.Load(),
		Keys: t.table.len.Load(), Nodes: int64(t.nodes()),
		Published: c.published.Load(), Heard: c.heard.Load(), Unpublished: c.unpublished.Load(),
	}
	for _, b := range t.breakers {
		if b.open.Load() {
			s.Open++
		}
		s.Owed += b.unflushed.units()
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
