// Package tiered puts a local tier in front of a shared limiter, such as a
// redisstore.Store, so that most decisions need no round trip to Redis and every call
// is decided even while Redis is unavailable. The tier caches denials, can lease blocks
// of units or grant units ahead of the store, and opens a circuit breaker per partition
// when the store fails.
//
//	store, err := redisstore.New(ctx, redisstore.Config{Redis: server})
//	bus, err := redistier.New(ctx, redistier.Config{Redis: server}) // package tiered/redistier
//	local, err := memstore.New(memstore.Config{})
//	limiter, err := tiered.New(tiered.Config{Store: store, Local: local, Bus: bus, Mode: tiered.Leased})
//	…
//	limiter.Close() // first: it flushes usage and returns leases
//	bus.Close()
//	store.Close()
//
// # Modes
//
// Exact calls the store for every charge that the deny cache does not answer. It admits
// exactly what the store admits. Use it unless the store is your bottleneck.
//
// Leased reserves blocks of units in the store and spends them locally. A block is a
// reservation out of the burst, so the bound of the limit holds at all times for all nodes
// together. Units leased by one node are not available to another: all nodes together
// hold at most a quarter of the burst, and half of it while blocks are being replaced. The
// units that a crashed node had leased are forfeited. Near the limit, and for rarely used
// keys, Leased works like Exact. Leases require that all limits of the policy are GCRA or
// TokenBucket; other policies are Exact. Use it for busy keys that are rarely at their
// limit: a decision costs about as much as in memory.
//
// Async grants units from an allowance per key: the units that remained when the store last
// replied, at most Config.MaxUnsynced (b). While the allowance lasts, a decision makes no
// call. The granted units are unsynced usage, which is flushed to the store every
// Config.FlushEvery (τ), and with every call that is made because the allowance does not
// suffice. Such a call carries the charges of all callers that wait for the key, so a caller
// waits for two round trips at most. The reply sets the next allowance. Async may admit too
// much: the units that nodes grant before the store knows of them. With N nodes, a round trip
// time ρ and a demand of dᵢ units per second on node i, the excess is at most
//
//	Σᵢ min(b, dᵢ·(τ+ρ)) ≤ N·b
//
// units above burst + rate × time, or above the limit of a window or log. The store charges
// the excess when it is flushed, so later charges are admitted correspondingly less. A node
// that crashes loses its unsynced usage, at most b units per key. Reservations and
// concurrency limits always call the store. A caller that leaves before its call has ended
// is charged nevertheless.
//
// Policies with classes are Exact in every mode: unsynced usage of a key has no class. After an
// outage, what a share granted is charged to the class of charges that name none, which has the least
// guaranteed share.
//
// In all modes a denial (a refusal by the store) is cached until its RetryAfter is over, measured
// from the start of the store call, and for Config.MaxDeny at most. It answers charges of the same cost, and
// under a single GCRA limit of larger costs. Every take, settle, renew, reset or Set of the
// key through this Limiter drops it. With a [Bus], resets and Sets drop it on all nodes, and
// nodes also share their denials. While reservations are open, which another node may
// settle at any time, a denial is cached for 1 ms only.
//
// # When the store is unavailable
//
// A call that the store does not answer within Config.Timeout, for each round trip that it
// needs, is decided once by the OnError of the limits. It is neither retried nor charged
// again, because the store may have charged it. Such unknown outcomes may add their units
// to what is admitted; Stats.UnknownUnits is an upper bound (U). After five failures in a
// row, or ten in twenty calls, the breaker of that partition of the store opens: calls are
// decided at once without the store, which is probed every 250 ms in the background.
//
// An error about a single key, whose stored state is not weir's or has a newer format
// (weir.ErrState), affects that key only: its OnError decides, and the breaker stays
// closed.
//
//   - weir.FailLocal: this node admits its share, rate/nodes and burst/nodes (at least
//     one unit). The share starts from the last known state of the key and persists
//     from outage to outage. When the store is available again, it is charged for the
//     units that the share granted beyond its rate; the rest is covered by the store's
//     rate, which nobody used during the outage. So outages admit at most twice the
//     burst, plus U, above the limit's rate, however often they recur, provided that the
//     number of nodes is known. Nodes detect the recovery one after the other: for a
//     third of a second they may admit up to twice the rate, which is charged, too. If a
//     single node cannot reach the store, it adds its share of the rate for as long as
//     that lasts. If several limits of a policy fail local, the store is charged for all units
//     that were granted, and the limit with the shortest period may refuse for as long again
//     as the outage lasted. A limit that another one bounds closely enough can fail open.
//   - weir.FailOpen: everything is admitted. There is no bound.
//   - weir.FailClosed: everything is denied, with Reason StoreDown.
//
// If the limits of a policy differ in OnError, the charge is denied if one of them fails
// closed; otherwise those that fail local decide.
//
// The tier recovers by itself when the store is available again. State that the store
// loses in a crash or a failover is not restored by the tier.
package tiered
