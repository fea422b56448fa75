// Package envoyapi implements Envoy's rate limit service,
// envoy.service.ratelimit.v3.RateLimitService, with the rules of envoyproxy/ratelimit:
//
//	rules, err := envoyapi.Compile(domains, nil)
//	err = core.Engine.Set(ctx, policies, rules.Policies()...)
//	s := envoyapi.New(core)
//	rlsv3.RegisterRateLimitServiceServer(server, s)
//
// The context of each call has the caller and the current rules: see call.WithCaller and WithRules.
//
// # Guarantees
//
//   - Every descriptor has a status, in the order of the request. The overall code is OK or
//     OVER_LIMIT, never unknown.
//   - A refused request charges nothing, whatever the number of its descriptors: all or nothing.
//     In a domain with Compat, as in envoyproxy/ratelimit, each descriptor is charged on its
//     own, and refused hits count.
//   - Limits in shadow are charged as if they were enforced, after the others.
//   - If no decision can be made, the call fails with UNAVAILABLE: Envoy's failure_mode_deny
//     decides whether to admit the request then.
//   - Counters survive a change of a limit. A limit override in a request uses the configured
//     limit's counter if it has the same period.
//
// # Differences
//
// Windows are those of the Unix epoch, as in envoyproxy/ratelimit: a month has 30 days, a
// year 365. Of several matching values with a *, the longest applies, and not the first.
package envoyapi
