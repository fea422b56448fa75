package weirprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/store/memstore"
)

// NewMemstore returns a collector of the size and the evictions of a table. stats is its Stats
// method.
func NewMemstore(stats func() memstore.Stats) prometheus.Collector {
	type S = memstore.Stats
	f := &figures[S]{read: stats}
	f.gauge("weir_keys", "Keys in the table.", func(s S) float64 { return float64(s.Keys) })
	f.gauge("weir_reservations", "Open reservations.", func(s S) float64 { return float64(s.Holds) })
	f.gauge("weir_table_bytes", "Memory of the table's rows and index.", func(s S) float64 { return float64(s.Bytes) })
	f.counter("weir_evictions_total", "Evicted keys, most of them with nothing in use.", func(s S) float64 { return float64(s.Evicted) })
	f.counter(forgiven, forgivenHelp, func(s S) float64 { return float64(s.Forgiven) }, "cause", "eviction")
	f.counter("weir_overflow_hits_total", "Charges of keys that had no room in the table and shared a row.", func(s S) float64 { return float64(s.OverflowHits) })
	return f
}
