// Package pacer starts work at a constant rate. It is for the sender of requests, not for
// the receiver: for example, a load test that must send 5,000 requests per second, neither
// more nor fewer, and must know how late each one starts.
//
//	p, err := pacer.New(pacer.Config{Rate: 5000})
//	for {
//		s, err := p.Wait(ctx) // s.Wait: how late this one is
//		…
//	}
//
// To refuse excess requests, use a limiter of package weir instead: it decides
// immediately, per key.
//
// # The schedule
//
// Unit n is due at start + n/Rate. A caller takes the next position with one
// fetch-and-add and sleeps until its time. Nothing is accumulated but the position, so
// rounding errors do not add up, from one in eleven days to 100 million per second and more;
// callers start in the order of their calls; and there is no background goroutine.
//
// # Being late
//
// Callers are late because they were busy, or because the system woke
// them late: an idle Go program may wake up to a millisecond after its
// time, which at 10,000 per second is ten units. The [Mode] says how a pacer catches up:
//
//   - [Average], the default, catches up at once, for lateness up to Config.Credit (10 ms).
//     Further lateness is forfeited: the schedule moves.
//   - [Burst] catches up at BurstRatio × Rate, for lateness up to Config.MaxDebt (1 s).
//   - [Strict] forfeits all of it: two starts are never closer than 1/Rate. That
//     costs throughput, because every late wake-up moves the schedule.
//
// [Start.Wait] is how late each unit starts, and [Start.Scheduled] when it should
// have: count response times from there, or a target that stalls looks better than
// it is (coordinated omission). [Pacer.Stats] has the total lateness since the start,
// and how much of it was caught up.
//
// # Bounds
//
// From the start to any time t no more than Rate × t + 1 units start. In any interval
// Δ it is at most
//
//	1 + Rate × (Δ + Credit)                in Average
//	1 + Rate × BurstRatio × (Δ + Credit)   in Burst
//	1 + Rate × Δ                           in Strict
//
// and one more for each goroutine that the system stopped, for longer than the
// credit, between its turn and its start. A cancelled call takes nothing.
//
// # Tolerances
//
// A sleep of less than 700 ns is not worth it, so unit n may start that much before
// it is due; it is due 700 ns after n/Rate, so that the bounds hold all the same. Spacing
// in Strict is 1/Rate rounded down to a nanosecond. Callers who come faster than every
// 250 ns and are late look at the clock only now and then, once in 64 units or a little
// more; their Start.Wait is the lateness at the last look. Above 40,000 per second
// sleeps take 200 µs or more, except in Strict: what became due meanwhile starts at
// once. Otherwise eight goroutines that wait for 8 µs each would keep two cores busy
// with timers.
//
// # Smooth
//
// Average keeps the mean rate exact, but gaps depend on when the system wakes the process: a
// few milliseconds of nothing, then some units at once. Config.Smooth makes the
// gaps even, to some microseconds: on Linux it lets the thread sleep, which ends
// within some ten microseconds, and yields in a loop for the rest. At 10,000 per
// second that takes about half of a core. Elsewhere it yields for the last 1.5 ms, which takes a
// full core.
//
// # Changes
//
// SetRate, SetMode and SetBurstRatio take effect at once, also for callers that wait. A late
// caller stays as late, to the nanosecond; callers that wait to catch up keep their
// times. Waiting callers keep their order, except when the
// mode becomes Strict, and at a Restart. [Group] and [Spec] do the same from a
// line of text, for one pacer or one for each goroutine.
//
// Source: the design notes of EngineBlock's rate limiter, with corrections that docs/pacing.md
// lists.
package pacer
