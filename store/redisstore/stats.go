package redisstore

import "sync/atomic"

// Stats are the counters of a Store since it was created.
type Stats struct {
	// Decisions is the number of Takes and of charges in batches.
	Decisions int64

	// Commands is the number of commands sent. With hot keys it is much less than
	// Decisions.
	Commands int64

	// Unknown is the number of calls with an unknown outcome, because no reply arrived or
	// because the call ended before it did.
	Unknown int64

	// Refunded is the number of those calls whose reply arrived later with a charge, which
	// was refunded.
	Refunded int64

	// Timeouts is the number of calls that ended before their reply, because their
	// context ended or Config.Timeout had passed.
	Timeouts int64

	// Busy is the number of calls rejected because of Config.MaxInFlight.
	Busy int64

	// Scripts is how often a script's text was sent because the server did not have it.
	Scripts int64

	// Evicts says that a server is configured to evict keys when its memory is full, which
	// loses the usage of those keys: see Store.Evictors.
	Evicts bool
}

type counts struct {
	decisions, commands, unknown, givenBack, timeouts, busy, scripts, failures atomic.Int64
}

// Stats returns the current counters.
func (s *Store) Stats() Stats {
	c := &s.counts
	return Stats{
		Decisions: c.decisions.Load(), Commands: c.commands.Load(), Unknown: c.unknown.Load(),
		Refunded: c.givenBack.Load(), Timeouts: c.timeouts.Load(), Busy: c.busy.Load(), Scripts: c.scripts.Load(),
		Evicts: len(s.evictors) > 0,
	}
}

// Evictor is a server that evicts keys when its memory is full.
type Evictor struct {
	Addr   string // for example "10.0.0.1:6379"
	Policy string // its maxmemory-policy, for example "allkeys-lru"
}

// Evictors returns the servers that were configured to evict keys when the Store was created:
// those with a maxmemory and any maxmemory-policy but noeviction. An evicted row loses its
// usage. Servers that did not report their configuration are not included.
func (s *Store) Evictors() []Evictor { return s.evictors }
