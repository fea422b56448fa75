package redisstore

import "sync/atomic"

// Stats is what a Store has done since it was made.
type Stats struct {
	// Decisions is how many Takes and charges of batches were asked for.
	Decisions int64

	// Commands is how many commands were sent. Hot keys make it much less than
	// Decisions.
	Commands int64

	// Unknown is how many callers went away without knowing whether they were
	// charged, because no answer came or because they did not wait for it.
	Unknown int64

	// GivenBack is how many of them were found to have been charged, so that it was
	// sent back.
	GivenBack int64

	// Timeouts is how many callers did not wait for their answer, be it that their
	// context ended or that Config.Timeout had passed.
	Timeouts int64

	// Busy is how many calls were sent away because of Config.MaxInFlight.
	Busy int64

	// Scripts is how often the server had to be given a script's text again.
	Scripts int64

	// Evicts says that a server was found to discard keys when its memory is full, and so
	// forget what was used: see Store.Evictors.
	Evicts bool
}

type counts struct {
	decisions, commands, unknown, givenBack, timeouts, busy, scripts, failures atomic.Int64
}

// Stats returns what the Store has done so far.
func (s *Store) Stats() Stats {
	c := &s.counts
	return Stats{
		Decisions: c.decisions.Load(), Commands: c.commands.Load(), Unknown: c.unknown.Load(),
		GivenBack: c.givenBack.Load(), Timeouts: c.timeouts.Load(), Busy: c.busy.Load(), Scripts: c.scripts.Load(),
		Evicts: len(s.evictors) > 0,
	}
}

// Evictor is a server that discards keys when its memory is full.
type Evictor struct {
	Addr   string // for example "10.0.0.1:6379"
	Policy string // its maxmemory-policy, for example "allkeys-lru"
}

// Evictors returns the servers that discarded keys under pressure when the Store was made, going
// by their maxmemory and maxmemory-policy: any policy but noeviction takes rows, and what was
// used is forgotten with them. Servers that did not say are not among them.
func (s *Store) Evictors() []Evictor { return s.evictors }
