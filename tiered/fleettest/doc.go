// Package fleettest lets a fleet of nodes, each a limiter of package tiered with a table
// of its own, run over one model store in virtual time, and checks what they admitted.
//
//	s := fleettest.Draw(seed)
//	for _, problem := range fleettest.Check(s, s.Run(t)) {
//		t.Error(problem)
//	}
//
// A Scenario says what happens: demand, latency, lost requests and replies, outages,
// failovers that lose writes, crashes, clocks that differ and drift, words that are lost,
// limits that change. Draw makes one from a seed. Whatever a scenario leaves to chance
// follows from the seed and from what the event is, so a seed is the same run each time
// as long as goroutines run one after the other, which the tests of this package see to.
//
// # What Check checks
//
// E is by how much grants exceed burst + rate·Δ, in the worst interval. A grant by the
// store is placed where the store decided, any other where the caller got it; in a batch it
// may have been decided as much earlier as the batch took. Times are true: they are the
// simulator's, not a node's.
//
//   - Exact and Leased: what the store or a lease admitted has E = 0. Crashes change
//     nothing. A failover adds at most what was charged while the replica lagged, no
//     more than a burst unless debts were among it, and rate times what its clock is
//     ahead.
//   - Async: E is at most Σ min(x, b, dᵢ) − x at the worst x, so (N−1)·b where demand
//     is high. Debts whose fate is unknown add themselves. A reset forgives what was
//     admitted too much, so there may be as much again.
//   - A node's share: E = 0 with burst/nodes and rate/nodes. All together: a burst of
//     shares, and another burst or what comes back while nodes notice one after the other
//     that the store is there, up to rate × 0.4 s, whichever is more. A wrong count of
//     nodes, and an outage for one node alone, add what the rates sum up to beyond the
//     limit's. Outages that repeat add nothing.
//   - Fail open has no bound, but what the store decides has. Fail closed admits nothing
//     by itself.
//   - No unit that a node admits by itself is told to the store twice. All are told, or
//     counted as lost, but for what the rate has paid of a share while the store was away.
//   - Every call is decided, within Timeout and within its deadline. Every decision is
//     counted in Stats.
//   - Once the store is back, nodes ask it again: within 0.4 s, and within 1.25 s if it
//     hung, since a debt on its way is waited for.
//   - Where demand exceeds the limit all the time and nothing fails, at least burst +
//     rate·T is admitted, less one in a hundred; less a quarter of a burst for Leased, and a
//     tenth of a burst for each node for Async. That is for bursts of 8 and more: with
//     less, calls at random miss units in every mode.
package fleettest
