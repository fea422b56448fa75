// Package tiered puts a local tier in front of a limiter that many nodes share, such
// as package redisstore's. A key that is denied is not asked for again before its time;
// units can be leased in blocks and spent here; and when the store is away, callers
// get an answer all the same, within their deadline.
//
//	store, err := redisstore.New(ctx, redisstore.Config{Redis: server})
//	bus, err := redistier.New(ctx, redistier.Config{Redis: server})
//	local, err := memstore.New(memstore.Config{})
//	limiter, err := tiered.New(tiered.Config{Store: store, Local: local, Bus: bus, Mode: tiered.Leased})
//
// # Modes
//
// Exact asks the store for every charge that is not known to be denied. It admits
// exactly what the store admits. Take it unless the store is what limits you.
//
// Leased takes blocks of units from the store and spends them here. A block is a
// reservation, carved out of the burst, so the bound of the limit holds at every moment
// for all nodes together, whatever they do. What is leased by one node is not there
// for another: all nodes together hold at most a quarter of the burst, and half for the
// moment in which a block is replaced. Units that a crashed node had leased are forfeited. Near
// the limit, and for keys that are asked for rarely, it is Exact. Leases are for limits
// that are all GCRA or TokenBucket; other policies are Exact. Take it for busy keys with
// room: a decision costs about as much as in memory.
//
// Async decides on a copy of the state, and tells the store every Config.FlushEvery
// (τ). It never waits for the store while a key is busy, and it may admit too much: by
// what all nodes grant before they hear of each other. With R units remaining at the last
// word of the store, rate r, round trip ρ ≤ min(Config.Timeout, τ), the cap
// b = Config.MaxUnsynced and a demand of dᵢ per second on node i, within any time
// x ≤ τ+ρ it is at most
//
//	max(0, Σᵢ min(R + r·x, b, dᵢ·x) − (R + r·x))
//
// units too much, so never more than b for every node but one. They are owed, and so come
// from what would be admitted next. A node at its cap asks before it admits more. A
// policy with several limits is compared with the store on the tightest of them.
//
// In all modes a denial is remembered until its time is over, counted from before the
// store was asked, for Config.MaxDeny at most. It answers for costs that are no less.
// Reset, Set and what is given back through this limiter drop it, on all nodes if there
// is a [Bus], whose nodes also tell each other of denials.
//
// # When the store is away
//
// A call that the store does not answer within Config.Timeout is decided once by the
// limits' OnError, and never repeated. Whether it was charged is unknown then, so what
// was granted is not charged again: it may be up to one call's units too much. After five such calls in a row, or ten of
// twenty, the part of the store is given up: calls are decided without it, at once, and
// it is tried every 250 ms in the background.
//
//   - weir.FailLocal: this node admits its share, rate/nodes and burst/nodes (at least
//     one unit). The share begins as full as the key was when the store last spoke, it
//     persists from outage to outage, and what it granted beyond its rate is charged to
//     the store when that is back; the rate, which nobody used meanwhile, pays for the
//     rest. So an outage admits at most twice the burst above the limit's rate, however
//     often it comes and goes, if the number of nodes is known. Nodes notice one after
//     the other that it is over: for a third of a second they may admit up to twice the
//     rate, which is charged, too. A node that alone cannot reach the store adds its share
//     of the rate for as long as that lasts.
//   - weir.FailOpen: everything is admitted. There is no bound.
//   - weir.FailClosed: everything is refused, with Reason StoreDown.
//
// A policy with limits of several kinds is refused if one fails closed; otherwise those
// that fail local decide.
//
// Once the store is back, its word counts again; nothing must be restarted. What the
// store forgets in a crash or a failover, nobody else knows.
package tiered
