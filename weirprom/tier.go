package weirprom

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/tiered"
)

// NewTier returns a collector of how a node uses the store that it shares. stats is the Stats
// method of its tiered.Limiter.
func NewTier(stats func() tiered.Stats) prometheus.Collector {
	type S = tiered.Stats
	var leased rising
	f := &figures[S]{read: func() S {
		s := stats()
		s.Lease = leased.next(s.Lease)
		return s
	}}

	const decisions, decisionsHelp = "weir_tier_decisions_total", "Decisions of the tier, by source."
	f.counter(decisions, decisionsHelp, func(s S) float64 { return float64(s.DenyCache) }, "source", "deny_cache")
	f.counter(decisions, decisionsHelp, func(s S) float64 { return float64(s.Lease) }, "source", "lease")
	f.counter(decisions, decisionsHelp, func(s S) float64 { return float64(s.Store) }, "source", "store")
	f.counter(decisions, decisionsHelp, func(s S) float64 { return float64(s.Async) }, "source", "async")
	f.counter(decisions, decisionsHelp, func(s S) float64 { return float64(s.Fallback) }, "source", "fallback")

	f.counter("weir_store_calls_total", "Calls to the store.", func(s S) float64 { return float64(s.StoreCalls) })
	f.counter("weir_store_failures_total", "Calls that the store did not answer.", func(s S) float64 { return float64(s.Failures) })
	f.counter("weir_store_unknown_total", "Failed calls that the store may have charged.", func(s S) float64 { return float64(s.Unknown) })
	f.counter("weir_store_unknown_units_total", "Units granted under unknown outcomes: an upper bound of units that were not charged.", func(s S) float64 { return float64(s.UnknownUnits) })
	f.counter("weir_store_unreadable_total", "Decisions made by on_error because the state of the key could not be read.", func(s S) float64 { return float64(s.Unreadable) })
	f.counter("weir_store_busy_total", "Calls that were not made because too many were in flight.", func(s S) float64 { return float64(s.Busy) })
	f.gauge("weir_store_open", "Partitions of the store whose breaker is open.", func(s S) float64 { return float64(s.OpenBreakers) })
	f.gauge("weir_store_parts", "Partitions of the store.", func(s S) float64 { return float64(s.Partitions) })
	f.counter("weir_store_opened_total", "How often the breaker of a partition of the store opened.", func(s S) float64 { return float64(s.Opened) })
	f.counter("weir_store_closed_total", "How often the breaker of a partition of the store closed.", func(s S) float64 { return float64(s.Closed) })

	f.gauge("weir_leases", "Leases in force.", func(s S) float64 { return float64(s.Leases) })
	f.counter("weir_leases_forfeited_total", "Leases that were not settled before they expired.", func(s S) float64 { return float64(s.Forfeited) })
	f.gauge("weir_owed_units", "Unsynced units: granted by this node and not charged in the store yet.", func(s S) float64 { return float64(s.Unsynced) })
	f.counter("weir_lost_units_total", "Unsynced units that were flushed without a reply, or that the store refused to charge.", func(s S) float64 { return float64(s.Lost) })
	f.counter(forgiven, forgivenHelp, func(s S) float64 { return float64(s.Forgiven) }, "cause", "outage")

	f.gauge("weir_tier_keys", "Keys for which this node holds cached state, leases or unsynced usage.", func(s S) float64 { return float64(s.Keys) })
	f.gauge("weir_nodes", "Nodes that share the store, as counted by this one.", func(s S) float64 { return float64(s.Nodes) })
	const messages, messagesHelp = "weir_bus_messages_total", "Messages to and from other nodes."
	f.counter(messages, messagesHelp, func(s S) float64 { return float64(s.Received) }, "direction", "in")
	f.counter(messages, messagesHelp, func(s S) float64 { return float64(s.Published) }, "direction", "out")
	f.counter("weir_bus_unsent_messages_total", "Messages that could not be sent to other nodes.", func(s S) float64 { return float64(s.Unpublished) })
	return f
}

// rising makes a counter monotonic. Charges on a lease are moved between two counters when it
// ends, and a concurrent reader may see them in neither. Prometheus would interpret the dip as a
// restart and count everything again, so the highest value is reported instead.
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
