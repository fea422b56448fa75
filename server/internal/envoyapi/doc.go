// Package envoyapi is Envoy's rate limit service,
// envoy.service.ratelimit.v3.RateLimitService, with the rules of envoyproxy/ratelimit:
//
//	rules, err := envoyapi.Compile(domains, nil)
//	s := envoyapi.New(envoyapi.Config{Limiter: limiter, Observe: observe, Log: log})
//	err = s.Set(ctx, rules)
//	rlsv3.RegisterRateLimitServiceServer(server, s)
//
// Each call has who calls and the rules that hold in its context: WithCaller.
//
// # Guarantees
//
//   - Every descriptor has a status, in the order of the request. The overall code is OK or
//     OVER_LIMIT, never unknown.
//   - A request that is refused has charged nothing, whatever number of descriptors it has:
//     all or nothing. A domain with Compat does as envoyproxy/ratelimit does instead: each
//     descriptor is charged on its own, and hits that are refused count.
//   - Limits in shadow are counted as if they were enforced, after the others.
//   - If no decision can be made, the call fails with UNAVAILABLE: it is Envoy that knows
//     whether to admit then (failure_mode_deny).
//   - Counts outlive a change of a limit's numbers. Those of a limit that comes with the
//     request are the configured one's, as long as it is for the same period.
//
// # Differences
//
// Windows are those of the Unix epoch, as in envoyproxy/ratelimit: a month has 30 days, a
// year 365. Of several values with a * that fit, the longest counts, and not the first.
package envoyapi
