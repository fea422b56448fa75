// Package ruleset evaluates requests against configured policies.
//
// A [weir.Policy] is a set of limits that share a key and a cost. A configured policy is more
// general: requests per second for each user, requests for each address, tokens per minute,
// other limits for partners, a limit in shadow. A [Policy] describes all that, [Compile] turns
// policies into [Rules], and an [Engine] decides requests by them:
//
//	rules, err := ruleset.Compile(policies, nil)
//	g, err := ruleset.New(limiter, rules)
//	v, err := engine.Check(ctx, engine.Rules().Rule("api"), &ruleset.Query{Key: "alice", Cost: 1})
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
// A limit is enforced, in shadow, or off. Limits in shadow are charged separately, all of them
// or none, if the enforced ones admit the request, and their decision is reported in the
// [Verdict]. If all limits of a policy are in shadow, their decisions are those of enforced
// limits, as long as callers do not react to refusals. For keys that a rollout does not include,
// all limits are in shadow.
//
// # Other limits for some requests
//
// An [Override] sets other limits for a key or a prefix, a [Plan] for the requests that name it,
// and Query.Scale charges a request at a share of the rates. All of them act on the units that
// are in use under the policy's own limits, and [Engine.Set] does not replace them.
//
// # Guarantees
//
//   - A request is decided by one version of the rules, however often they change.
//   - [Engine.Set] changes limits and keeps the units in use, or fails and changes nothing.
//   - A [Ticket] settles once, however often that is tried, and only for the client that
//     reserved it.
//   - Bad input is an [*InputError] and charges nothing.
//
// # When not to use it
//
// A program with one limit needs [weir.New]; one with a limit for each user, a store.
package ruleset
