// Package weir provides rate limiters and concurrency limiters.
//
// A limit for each host, user or address, in one process:
//
//	var perHost = weir.Must(memstore.NewKeyed(weir.PerSecond(50)))
//
//	if err := perHost.Wait(ctx, host); err != nil { … } // or: if perHost.Allow(host) { … }
//
// One limit without keys:
//
//	var lim = weir.Must(weir.New(weir.PerSecond(100)))
//
//	if lim.Allow() { … }
//
// # Concepts
//
// A [Limit] is a number of units per period, with a burst. A [Policy] is one or more limits
// that are checked together. A [Charge] is a policy, a key and a cost. A [Decision] says
// whether a charge was admitted and, if not, when it will be. A [Limiter] decides for many
// keys. [Single] is a limiter without keys.
//
//		store/memstore     many keys in one process: Keyed for one policy, Table for several
//		store/redisstore   one limit for several processes that share a Redis
//		tiered             in front of a shared limiter: fewer round trips, and decisions in outages
//		client             a weir daemon (weir serve) as a Limiter
//		queue              Wait for keys, in front of any Limiter
//		prepaid            one limit without keys that many cores share
//		pacer              starts outgoing work on a schedule; it refuses nothing
//		guard              limits for endpoints, users and addresses; penalties and blocks
//		weirhttp           limits a net/http service; headers and refusals
//		weirconnect        limits a Connect service
//		weirgrpc           limits a gRPC service of grpc-go
//		clientip           the address that a request came from, behind proxies
//
//	  - Take decides and charges in one step. Peek decides and changes nothing.
//	  - Wait takes when it is the caller's turn, first come, first served, and returns an error
//	    unless the caller may proceed: Single.Wait for one limit, package queue for keys over
//	    any Limiter. Package pacer starts work on a schedule instead.
//	  - Reserve charges for work whose cost is known only afterwards. Commit keeps what was used
//	    and refunds the rest, Cancel refunds all.
//	  - Reset forgets what a key has used. Set replaces limits and keeps what was used.
//
// # Guarantees
//
//   - All limits of a policy are charged, or none. A refusal charges nothing, and a caller who
//     waits exactly RetryAfter is admitted if no other charge came first.
//   - In any interval Δ at most burst + rate × (Δ + 1 ns) units are granted by GCRA and
//     TokenBucket, at any concurrency, refunds included. Package algo has the other bounds.
//   - A backward step of the clock grants nothing. A forward step replenishes the units of that
//     much time, at most the burst.
//   - Waiters, open reservations, keys and costs are bounded.
package weir
