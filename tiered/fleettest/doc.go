// Package fleettest simulates a fleet of nodes, each a tiered.Limiter with a table of its own,
// over one model store in virtual time, and checks what they admitted.
//
//	s := fleettest.Draw(seed)
//	for _, problem := range fleettest.Check(s, s.Run(t)) {
//		t.Error(problem)
//	}
//
// A Scenario says what happens: demand by Take and by batches, latency, requests and replies
// that are lost or come twice, outages, failovers that lose writes, crashes, nodes that are closed,
// clocks that differ and drift, messages that are lost, limits that change, keys that are evicted. Draw
// makes one from a seed, with any algorithm in any mode. Random events are derived from the seed
// and the event, so a seed gives the same run each time as long as goroutines run one after the
// other, which the tests of this package ensure; only the choice of evicted keys depends on a
// hash that differs between processes.
//
// # What Check checks
//
// E is by how much grants exceed a limit, in the worst case: in any interval burst + rate·Δ for
// GCRA and token buckets, the limit in a window or in any period of a log, and for estimated
// windows the estimate. Each limit of a policy has its own E. A grant by the store is placed where
// the store decided, any other where the caller got it; in a batch it may have been decided as much
// earlier as the batch took. Times are true: they are the simulator's, not a node's.
//
//   - Exact and Leased: E = 0 for units admitted by the store or a lease. Crashes change
//     nothing. A failover adds at most what was charged while the replica lagged, no
//     more than a burst unless usage was flushed meanwhile, and rate times what its clock is
//     ahead.
//   - Async: E is at most Σᵢ min(b, dᵢ(τ+ρ)), so N·b where demand is high: b is the cap on
//     unsynced units, including those in flight. Flushed usage with an unknown outcome adds to E,
//     and so does usage that a crashed node has not sent. A reset discards the excess, so the
//     same excess may occur again.
//   - Async: no node has more than b unsynced units of a key, and none for longer than a flush
//     interval and two round trips.
//   - A node's share: E = 0 with burst/nodes and rate/nodes, by its own clock. All together, for a
//     rate and a burst: a burst of shares, and another burst or what is replenished while nodes
//     detect the recovery one after the other, up to rate × 0.4 s, whichever is more. A wrong
//     count of nodes, and an outage for one node alone, add what the rates sum up to beyond the
//     limit's. For windows: as much as shares admit in the node's windows that overlap one of the
//     store's. Outages that repeat add nothing.
//   - Fail open has no bound, but what the store decides has. Fail closed admits nothing
//     by itself.
//   - No unit that a node admits by itself is sent to the store twice. All are sent, or
//     counted in Stats, except units of a share that the rate covers while the store is
//     unavailable.
//   - Every call is decided, within Timeout, in Async mode within two of them since it may wait
//     for the call of another caller first, and within its deadline. While the store is healthy, it
//     takes at most one round trip in Exact mode and two in the others, and no node falls
//     back to OnError. Every decision is counted in Stats.
//   - Once the store is available again, nodes call it within 0.4 s, and within 1.25 s if it
//     hung, since they wait for a flush in flight.
//   - Where demand exceeds the limit all the time and nothing fails, at least burst +
//     rate·T is admitted, or the limit in each window, less 2 in a hundred, less 15 in a hundred
//     for windows that slide or open with a charge; less a quarter of a burst for Leased, and b for
//     each node for Async. That is for bursts of 8 and more: with less, calls at random miss units in
//     every mode.
package fleettest
