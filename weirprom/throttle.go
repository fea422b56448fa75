package weirprom

import "github.com/prometheus/client_golang/prometheus"

// ThrottleStats are the counters of the table in which a daemon without Redis counts for
// CL.THROTTLE.
type ThrottleStats struct {
	Keys       int
	Evicted    uint64 // keys that were evicted
	Forgiven   uint64 // units that the evicted keys had in use
	Overflowed uint64 // charges to the row that is shared by keys without room in the table
}

// NewThrottle is NewMemstore for the table of CL.THROTTLE. They have no series in common, so both
// can be registered.
func NewThrottle(stats func() ThrottleStats) prometheus.Collector {
	type S = ThrottleStats
	f := &figures[S]{read: stats}
	f.gauge("weir_cl_throttle_keys", "Keys in the table of CL.THROTTLE.", func(s S) float64 { return float64(s.Keys) })
	f.counter("weir_cl_throttle_evictions_total", "Evicted keys of CL.THROTTLE, most of them with nothing in use.", func(s S) float64 { return float64(s.Evicted) })
	f.counter(forgiven, forgivenHelp, func(s S) float64 { return float64(s.Forgiven) }, "cause", "cl_throttle_eviction")
	f.counter("weir_cl_throttle_overflow_hits_total", "Charges of keys of CL.THROTTLE that had no room in the table and shared a row.", func(s S) float64 { return float64(s.Overflowed) })
	return f
}
