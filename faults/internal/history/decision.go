package history

import (
	"cmp"
	"slices"
	"time"
)

// Decision is one call to a node and its outcome.
type Decision struct {
	Node     int
	Key      string
	Sent     time.Duration // by the client's monotonic clock, since the load began
	Received time.Duration
	Status   int    // of HTTP, 0 if there was no response
	Err      string // what there was instead
	Allowed  bool
	Reason   string // "exhausted", for example
	Stalled  bool   // a processor stood still meanwhile
}

// Latency is how long the client waited.
func (d Decision) Latency() time.Duration { return d.Received - d.Sent }

// Between returns the decisions whose calls were sent from begin on and before end.
func Between(list []Decision, begin, end time.Duration) (in []Decision) {
	for _, d := range list {
		if begin <= d.Sent && d.Sent < end {
			in = append(in, d)
		}
	}
	return in
}

// Percentile returns the latency that a share p of the decisions does not exceed: the
// greatest for p = 1. It is 0 without decisions.
func Percentile(list []Decision, p float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	latencies := make([]time.Duration, 0, len(list))
	for _, d := range list {
		if !d.Stalled {
			latencies = append(latencies, d.Latency())
		}
	}
	if len(latencies) == 0 {
		return 0
	}
	slices.Sort(latencies)
	i := int(p * float64(len(latencies)))
	return latencies[min(i, len(latencies)-1)]
}

// Failures returns the decisions that are none: no response, or a status other than 200.
func Failures(list []Decision) (failed []Decision) {
	for _, d := range list {
		if d.Status != 200 {
			failed = append(failed, d)
		}
	}
	return failed
}

// ByAnswer returns the decisions in the order in which their answers came.
func ByAnswer(list []Decision) []Decision {
	return slices.SortedFunc(slices.Values(list), func(a, b Decision) int { return cmp.Compare(a.Received, b.Received) })
}
