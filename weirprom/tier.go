package weirprom

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/tiered"
)

// NewTier tells how a node gets on with the store it shares. stats is the Stats method of
// its tiered.Limiter.
func NewTier(stats func() tiered.Stats) prometheus.Collector {
	type S = tiered.Stats
	var leased rising
	f := &figures[S]{read: func() S {
		s := stats()
		s.Lease = leased.next(s.Lease)
		return s
	}}

	const decisions, decisionsHelp = "weir_tier_decisions_total", "Decisions, by what they were made on."
	f.counter(decisions, decisionsHelp, func(s S) float64 { return float64(s.DenyCache) }, "source", "deny_cache")
	f.counter(decisions, decisionsHelp, func(s S) float64 { return float64(s.Lease) }, "source", "lease")
	f.counter(decisions, decisionsHelp, func(s S) float64 { return float64(s.Store) }, "source", "store")
	f.counter(decisions, decisionsHelp, func(s S) float64 { return float64(s.Async) }, "source", "async")
	f.counter(decisions, decisionsHelp, func(s S) float64 { return float64(s.Fallback) }, "source", "fallback")

	f.counter("weir_store_calls_total", "Calls to the store.", func(s S) float64 { return float64(s.StoreCalls) })
	f.counter("weir_store_failures_total", "Calls that the store did not answer.", func(s S) float64 { return float64(s.Failures) })
	f.counter("weir_store_unknown_total", "Failed calls after which the store may have charged or not.", func(s S) float64 { return float64(s.Unknown) })
	f.counter("weir_store_unknown_units_total", "Units granted under unknown outcomes: at most so many were not charged.", func(s S) float64 { return float64(s.UnknownUnits) })
	f.counter("weir_store_unreadable_total", "Decisions left to on_error because the state of the key could not be read.", func(s S) float64 { return float64(s.Unreadable) })
	f.counter("weir_store_busy_total", "Calls that were not made because too many were under way.", func(s S) float64 { return float64(s.Busy) })
	f.gauge("weir_store_open", "Parts of the store whose breaker is open.", func(s S) float64 { return float64(s.OpenBreakers) })
	f.gauge("weir_store_parts", "Parts of the store.", func(s S) float64 { return float64(s.Partitions) })
	f.counter("weir_store_opened_total", "How often the breaker of a part of the store opened.", func(s S) float64 { return float64(s.Opened) })
	f.counter("weir_store_closed_total", "How often the breaker of a part of the store closed.", func(s S) float64 { return float64(s.Closed) })

	f.gauge("weir_leases", "Leases in force.", func(s S) float64 { return float64(s.Leases) })
	f.counter("weir_leases_forfeited_total", "Leases that could not be given back before they expired.", func(s S) float64 { return float64(s.Forfeited) })
	f.gauge("weir_owed_units", "Unsynced units: granted here and not charged in the store yet.", func(s S) float64 { return float64(s.Unsynced) })
	f.counter("weir_lost_units_total", "Unsynced units that were flushed without a reply, or refused.", func(s S) float64 { return float64(s.Lost) })
	f.counter(forgiven, forgivenHelp, func(s S) float64 { return float64(s.Forgiven) }, "cause", "outage")

	f.gauge("weir_tier_keys", "Keys of which this node knows something beside the store.", func(s S) float64 { return float64(s.Keys) })
	f.gauge("weir_nodes", "Nodes that share the store, as this one sees it.", func(s S) float64 { return float64(s.Nodes) })
	const words, wordsHelp = "weir_bus_words_total", "Words to and from other nodes."
	f.counter(words, wordsHelp, func(s S) float64 { return float64(s.Received) }, "direction", "in")
	f.counter(words, wordsHelp, func(s S) float64 { return float64(s.Published) }, "direction", "out")
	f.counter("weir_bus_unsent_words_total", "Words that could not be sent to other nodes.", func(s S) float64 { return float64(s.Unpublished) })
	return f
}

// rising is a counter that is read while it is moved from one place to another, and may
// then be seen in neither. Prometheus would take the dip for a restart and count all of it
// again, so the highest value is repeated instead.
type rising struct{ highest atomic.Int64 }

func (r *rising) next(n int64) int64 {
	for {
		highest := r.highest.Load()
		if n <= highest {
			return highest
		}
		if r.highest.CompareAndSwap(highest, n) {
			return n
		}
	}
}
