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
// Async grants units from an allowance of each key: what remained when the store last
// replied, at most Config.MaxUnsynced (b). While it lasts, a decision takes no call. What was
// granted is flushed every Config.FlushEvery (τ), and with every call that a caller must wait
// for because the allowance does not suffice. Such a call carries the charges of all who
// wait, so nobody waits longer than for two round trips. The reply is the next allowance.
// Async may admit too much, by what nodes grant before the store knows. With N nodes, a round
// trip ρ and a demand of dᵢ per second on node i it is at most
//
//	Σᵢ min(b, dᵢ·(τ+ρ)) ≤ N·b
//
// units above burst + rate × time, or above the limit of a window or log. They are owed, and
// so come from what would be admitted next. A node that crashes forgets what it has not
// flushed, at most b units of each key. Reservations and limits of concurrency always ask
// the store. A caller that leaves before its call has ended is charged all the same.
//
// In all modes a denial is cached until its time is over, counted from before the
// store was asked, for Config.MaxDeny at most. It answers for the same cost, and under a
// single GCRA limit for larger ones. Whatever this limiter takes, settles, renews, resets
// or sets drops it; resets and sets do so on all nodes if there is a [Bus], whose nodes also
// tell each other of denials. While reservations are open, which another node may settle at
// any moment, a denial is cached for 1 ms only.
//
// # When the store is unavailable
//
// A call that the store does not answer within Config.Timeout, for each of the rounds that it
// needs one after the other, is decided once by the limits' OnError. It is never repeated,
// and never charged again: whether it was charged is unknown. So unknown outcomes may add
// their units to what is admitted; Stats.UnknownUnits is an upper bound (U). After five such
// calls in a row, or ten of twenty, the breaker of that part of the store opens: calls are
// decided without it, at once, and it is probed every 250 ms in the background.
//
// An error about one key, whose stored state is not weir's or of a newer format
// (weir.ErrState), concerns that key alone: its OnError decides, and the breaker stays
// closed.
//
//   - weir.FailLocal: this node admits its share, rate/nodes and burst/nodes (at least
//     one unit). The share begins as full as the key was when the store last spoke, it
//     persists from outage to outage, and what it granted beyond its rate is charged to
//     the store when that is back; the rate, which nobody used meanwhile, pays for the
//     rest. So outages admit at most twice the burst, and U, above the limit's rate, however
//     often they come and go, if the number of nodes is known. Nodes notice one after
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
