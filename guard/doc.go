// Package guard decides who may call which endpoint of a server, and what happens to callers who
// do not stop.
//
//	g, err := guard.New(table, guard.Config{
//		BeforeAuth: guard.BeforeAuth{PerIP: []ruleset.Limit{{Limit: weir.PerMinute(300)}}},
//		Default:    guard.Endpoint{Limits: []ruleset.Limit{{Limit: weir.PerMinute(50)}}},
//		Endpoints: []guard.Endpoint{
//			{Pattern: "/river.StreamService/CreateStream", Limits: []ruleset.Limit{{Limit: weir.PerMinute(10)}}},
//			{Pattern: "/river.AppRegistryService/GetStatus", Disabled: true},
//		},
//		Penalties: &guard.Penalties{}, // after 5 violations, half the rate for 5 minutes
//	})
//	handler := weirhttp.Guard(g)(mux)
//
// A limit for each key or address, without endpoints, plans and penalties, is weirhttp.Limit. Packages
// weirhttp, weirconnect and weirgrpc have the adapters; other servers call the stages themselves:
//
//	var p guard.Pass
//	v, err := g.Enter(ctx, &p, request)            // before authentication
//	defer p.Done(ctx, failed)
//	v, err = g.Identify(ctx, &p, guard.User("alice")) // after it
//
// # Two stages
//
// [Guard.Enter] is cheap and needs no identity: it asks for blocks, bounds the requests that are handled
// at once, and limits each address. So it protects authentication itself. [Guard.Identify] charges
// the limits of the endpoint to the subject: who is authenticated, else the address. A caller that
// cannot be identified at all shares one count with all others like it; nobody is exempt by default.
//
// # Subjects
//
// An [Identifier] finds who sent a request: the subject that the program has authenticated
// ([WithSubject]), the owner of an API key, of a bearer token or of a client certificate, and otherwise
// the address, of which IPv6 counts as a network of 64 bits. Only what was verified counts: a made-up
// key identifies nobody, so that sending a new one with each request gains nothing.
//
// # Endpoints
//
// The most specific pattern applies; see [Endpoint]. Endpoints without one share the limits of
// Config.Default. A disabled endpoint has no limits at all, but the first stage applies to it. Plans
// and overrides change the limits for some subjects and keep their counts.
//
// # Counting by outcome
//
// With [CountFailures], a unit is held while a request is handled, kept if it failed and returned
// otherwise. Of a thousand wrong passwords sent at once exactly as many are tried as the limit
// allows. While units are held, a right password may be refused as well, but it is never charged. With
// Endpoint.Settle the handler sets the cost of what it did.
//
// # Penalties and abuse
//
// [Penalties] says how often a subject may be refused before its rates are reduced, for how long, and
// why that ends on time. [Abuse] finds bursts that the limits allow. Both are reported as a [Violation]
// to Hooks.OnViolation, at most once per second for each subject and kind; [NewLogger] makes log lines of
// them, a bounded number. [Guard.Offenders] is a list of bounded size of those who are refused most.
//
// # Subscriptions
//
// [Guard.Subscribe] limits long-lived streams and the items in them. What a stream holds is bound to
// its context, and to a lease in the store, so that it is released also if the process ends.
//
// # Shadow
//
// In shadow nothing is refused, and what would be refused is counted and reported. The decisions are
// those of enforcement if callers do not react to refusals: a request that the first stage would
// have refused is not charged by the second, and violations in shadow add to a score in shadow,
// whose penalties reduce only limits in shadow.
//
// # Fleets
//
// Limits, scores, penalties and subscriptions are counted by the limiter; over Redis all nodes share
// them (set Config.Shared). A penalty that begins on one node applies on the others within a second.
// Requests in flight, abuse and offenders are counted by each process.
//
// # What it costs
//
// A subject takes a row of the limiter for each endpoint that it uses, about 21 bytes each in memory. A
// request takes one call to the limiter for each stage that has limits; penalties take another only
// when a subject is seen first or, with Config.Shared, for the first time in a second.
package guard
