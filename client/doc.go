// Package client asks a weir daemon, and is a [weir.Limiter] itself: what takes a store takes
// a daemon as well.
//
//	limiter, err := client.New(client.Config{Address: "127.0.0.1:8080"})
//	if err != nil { … }
//	defer limiter.Close()
//
//	d, err := limiter.Take(ctx, policy, "alice", 1)
//
// A policy is known to the daemon by its name. Its numbers are the daemon's; those that a
// [weir.Policy] here has count only where the daemon is not asked, as in package tiered while
// it is away:
//
//	fleet, err := tiered.New(tiered.Config{Store: limiter, Local: local, Mode: tiered.Leased})
//
// What a Limiter cannot say, attributes, costs in several units and waiting for a turn, is
// said with [Client.Check].
//
// # How calls travel
//
// Calls of Take that come while others are under way are put together: the exchanges with the
// daemon are at most Config.Conns at a time, and when one is over, all calls that came
// meanwhile leave in the next one, which asks for each of them on its own. So one caller alone
// waits for nobody, and a thousand callers cost a few exchanges. A call that is wrong is
// sorted out, and the others that left with it do not notice.
//
// Every other call is an exchange of its own, and waits for no other: there may be as many at
// once as there are callers. Their connections are used again by later calls.
//
// A caller that gives up before its call has left was not charged. After that nobody knows:
// the error has [weir.ErrUnknown] in it, as always if an answer got lost. No exchange is
// repeated that the daemon may have seen.
//
// # What is different from a store
//
//   - Reset and Set are for operators: use /admin/v1 or the daemon's file. Here they
//     return [ErrOperator].
//   - Reservations are known to the daemon by an id that is longer than a
//     [weir.Receipt], so they are settled by the Client that made them, of which
//     there may be MaxHolds at a time. Several charges are reserved one after the
//     other, and cancelled again if one is refused.
//   - Times are in whole milliseconds, rounded up.
//   - Keys must be UTF-8, and an empty key counts as none.
package client
