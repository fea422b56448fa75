// Package client is the client of a weir daemon. A [Client] is a [weir.Limiter], so it can be used
// in place of a store.
//
//	limiter, err := client.New(client.Config{Address: "127.0.0.1:8080"})
//	if err != nil { … }
//	defer limiter.Close()
//
//	d, err := limiter.Take(ctx, policy, "alice", 1)
//
// The daemon identifies a policy by its name, and uses the limits of its own configuration. The
// limits of the [weir.Policy] here are used only for decisions without the daemon, as in package
// tiered while it is unavailable:
//
//	fleet, err := tiered.New(tiered.Config{Store: limiter, Local: local, Mode: tiered.Leased})
//
// A charge under a policy with classes is one of the class that [weir.Policy.Class] selects, and the
// daemon's policy must have it.
//
// Reservations are made with [weir.Reserve], as with a store. [Client.Check] has the features that a Limiter lacks: attributes, costs in several units, and
// waiting for capacity.
//
// # Batching
//
// Concurrent calls of Take are batched: there are at most Config.Conns requests to the daemon at a
// time, and when one ends, all waiting calls are sent in the next one, which decides each of them
// on its own. So a single caller does not wait for others, and a thousand callers cost a few
// requests. An invalid call does not affect the others of its batch.
//
// Every other call is a request of its own and waits for no other, without a limit on their
// number. Their connections are reused by later calls.
//
// A call whose context ends before it was sent is not charged. After that the outcome is unknown:
// the error wraps [weir.ErrUnknown], as for every lost response. A request that the daemon may
// have processed is never repeated.
//
// # Differences from a store
//
//   - Reset and Set are for operators: use /admin/v1 or the daemon's file. Here they
//     return [ErrOperator].
//   - Reservations are known to the daemon by an id that is longer than a
//     [weir.Receipt], so they are settled by the Client that made them. A
//     Client may have MaxHolds of them open. Several charges are reserved one after the
//     other, and cancelled again if one is refused.
//   - Times are in whole milliseconds, rounded up.
//   - Keys must be UTF-8, and an empty key means that there is no key.
package client
