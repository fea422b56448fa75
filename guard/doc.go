// Package guard holds requests to policies as people write them.
//
// A [weir.Policy] is limits that share a key and a cost. What people write is wider:
// so many per second for each user, so many for each address, so many tokens a minute,
// other numbers for partners, one limit on trial. A [Policy] says all that, [Compile]
// turns policies into [Rules], and a [Guard] holds requests to them:
//
//	rules, err := guard.Compile(policies, nil)
//	g, err := guard.New(limiter, rules)
//	v, err := g.Check(ctx, g.Rules().Rule("api"), &guard.Query{Key: "alice", Cost: 1})
//	if !v.Allowed { … v.LimitedBy() … }
//
// # How a policy is charged
//
// Limits with the same attribute (By) and Unit form a group, which is one weir.Policy for
// the limiter. A request becomes one charge for each group, all of them or none. A
// policy all of whose limits are of the key and in requests is a single Take.
//
// # Modes
//
// A limit is enforced, or in shadow, or off. Limits in shadow are charged on their own, all of
// them or none, if the enforced ones admit the request, and what they say is reported in
// the [Verdict]. If all limits of a policy are in shadow, they say exactly what they would
// if they were enforced, as long as callers do not react to refusals. A rollout puts all
// limits in shadow for the keys that it leaves out.
//
// # Guarantees
//
//   - A request is decided by one state of the rules, however often they change.
//   - [Guard.Set] changes numbers and keeps what was used, or fails and changes nothing.
//   - A [Ticket] settles once, however often that is tried, and only by the caller for whom
//     it was made.
//   - Bad input is an [*InputError] and charges nothing.
//
// # When not to use it
//
// A program with one limit needs [weir.New]; one with a limit for each user, a store.
package guard
