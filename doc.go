// Package weir limits rates: what comes in, what goes out, how much at once.
//
// The smallest use is a limiter without keys, safe for any number of goroutines:
//
//	lim, err := weir.New(weir.Limit{Rate: 100, Per: weir.Every(time.Second), Burst: 20})
//	if lim.Allow() { … }
//
// # Words
//
// A [Limit] is a number of units per period with a burst on top. A [Policy] is
// one or more limits that are checked together. A [Charge] is a policy, a key
// (who pays) and a cost. A [Decision] says whether a charge was admitted and,
// if not, when it will be. A [Limiter] decides for many keys; [Single] is the
// limiter of one.
//
// # Verbs
//
//   - Take decides and charges now, in one step.
//   - Peek says what Take would, and changes nothing.
//   - Wait is Take that waits its turn, first come, first served.
//   - Reserve charges now for work whose cost is known only afterwards; Commit
//     keeps what was used and gives the rest back exactly, Cancel gives back
//     all of it.
//   - Reset forgets what a key has used. Set changes a limit's numbers and
//     keeps what every key has used.
//
// # Guarantees
//
//   - Deciding and charging are one step, on all limits or on none.
//   - A refusal is a Decision, not an error, and changes nothing. A caller who
//     waits exactly RetryAfter is admitted if nobody else took the room.
//   - In any interval Δ at most burst + rate × (Δ + 1 ns) units are granted (GCRA
//     and token bucket), at any concurrency, refunds and reservations included.
//     The windows' bounds stand with their rules in package algo.
//   - Time never goes back: a clock that steps back grants nothing. A forward
//     step forgives what that much time would, at most min(burst, rate × step),
//     once; the clock that limiters read by themselves does not step.
//   - Everything is bounded: waiters, open reservations, key lengths, costs.
//
// # Limits
//
// Rates reach from one in forty years to two per nanosecond; what cannot be
// represented is refused by New and NewPolicy with what would fit. Instants lie between 2020
// and 2120. A cost is at most 2,147,483,647 units.
package weir
