package fleettest

import (
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/tiered"
)

// overshoot returns what Async may admit of a key beyond a limit: Σᵢ min(b, dᵢ(τ+ρ)), and usage that
// was lost on its way to the store.
func (c *checker) overshoot(key string) float64 {
	if c.s.Mode != tiered.Async {
		return 0
	}
	demand := make([]float64, c.s.Nodes)
	for i := range demand {
		demand[i] = c.demand(i, key, c.unsyncedFor())
	}
	return Overshoot(c.b, demand) + c.unsynced(key)
}

// unsyncedFor returns how long a unit may be unsynced, from its grant to the reply to its flush:
// τ+ρ, and ρ more since the flush waits for the one in flight. If calls may fail, the timeout of
// flushes is added instead.
func (c *checker) unsyncedFor() time.Duration {
	if c.troubled() {
		return c.s.FlushEvery + 2*flushTimeout
	}
	return c.s.FlushEvery + 2*c.roundTrip()
}

// demand returns the greatest demand for a key on a node within w, in units.
func (c *checker) demand(node int, key string, w time.Duration) float64 {
	var (
		window    []Call
		sum, most float64
	)
	for _, call := range c.r.Calls {
		if call.Node != node || call.Key != key || !call.takes() {
			continue
		}
		window = append(window, call)
		sum += float64(call.Cost)
		for call.Start-window[0].Start > w {
			sum -= float64(window[0].Cost)
			window = window[1:]
		}
		most = max(most, sum)
	}
	return most
}

// promptness checks, for each key of each node, that no more than b units were unsynced at any
// time, and none for longer than unsyncedFor.
func (c *checker) promptness() {
	if c.s.Mode != tiered.Async || c.troubled() || c.resets() > 0 || c.s.Others > 0 {
		return // other operations may have charged the store, too
	}
	for node := range c.s.Nodes {
		for k := range c.s.Keys {
			if !c.crashed(node) {
				c.prompt(node, keyName(k))
			}
		}
	}
}

func (c *checker) prompt(node int, key string) {
	var granted []Grant
	for _, g := range c.r.Grants(key) {
		if g.Node == node && g.By == ByNode {
			granted = append(granted, g)
		}
	}
	unsynced, late := 0.0, 0.0 // up to the same op, but late leaves out grants that are younger than unsyncedFor
	first, firstLate := 0, 0
	until := func(at time.Duration) {
		for ; first < len(granted) && granted[first].At <= at; first++ {
			if unsynced += float64(granted[first].Units); unsynced > c.b {
				c.wrong("key %s: node %d has %.0f unsynced units, more than %.0f, at %v", key, node, unsynced, c.b, granted[first].At)
			}
		}
		for ; firstLate < len(granted) && granted[firstLate].At <= at-c.unsyncedFor(); firstLate++ {
			if late += float64(granted[firstLate].Units); late > 0 {
				c.wrong("key %s: node %d has granted units at %v that are still unsynced %v later", key, node, granted[firstLate].At, c.unsyncedFor())
			}
		}
	}
	for _, op := range c.r.Ops {
		if op.Node == node && op.Key == key && op.Op == weir.DebitEach && !op.Twice {
			until(op.At - 1)
			unsynced -= float64(op.Units)
			late -= float64(op.Units)
		}
	}
	until(c.s.Length + calm)
}

// Overshoot returns Σᵢ min(b, dᵢ): b is the cap on unsynced units, including those in flight, and
// dᵢ the demand on node i within a flush interval and a round trip.
func Overshoot(b float64, demand []float64) (sum float64) {
	for _, d := range demand {
		sum += min(b, d)
	}
	return sum
}
