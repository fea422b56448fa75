// Package upstream sends requests to whichever of several endpoints can take them now: those of several
// providers, or of several accounts with one.
//
//	pool, err := upstream.New(store, upstream.Config{Name: "ethereum", Endpoints: []upstream.Endpoint{
//		{Alias: "alchemy", RPC: secret.New(os.Getenv("ALCHEMY")), Priority: 10, Budget: "alchemy-main"},
//		{Alias: "public", RPC: secret.New("https://rpc.example.org"), Priority: 20, Limits: upstream.Rate{PerSecond: 50}.Limits()},
//	}}, budget.Config{Name: "alchemy-main", Preset: "alchemy-free"})
//	go pool.Run(ctx) // probes
//	reply, err := pool.Send(request, &upstream.Call{Methods: []string{"eth_call"}, Repeatable: true})
//
// Package gateway serves a pool as a reverse proxy. For one account with one provider, budget.Transport is
// enough.
//
// # Two phases
//
// Selection looks for up to four endpoints that could take the request: those of the best priority first,
// among these the fastest, and among the fastest at random, by weight and by what they have left. It charges
// nothing and never waits. Execution charges one of them immediately before it is sent to: the endpoint's limit
// and its account's budget together, or nothing. An endpoint that is at its limit is skipped, which is no
// failure. What was provably not sent is given back.
//
// If all are at their limits, the request waits in line: first come, first served, for as long as the limits say,
// or until one has room earlier. A request that would wait too long is refused at once, and told for how long.
//
// Responses that say what is left (see budget.ParseView) tighten the account or, where an endpoint has none, the
// endpoint's own limits: what somebody else has used is charged. They loosen nothing.
//
// # What goes wrong
//
// An endpoint, an account or a provider that refuses or fails is left alone for a while, and then gets one call at a
// time, and one more after each success. Which of the three depends on what the provider says, see budget.Classify:
//
//	rate, quota          the account, until the provider says, otherwise after a back-off
//	denied               the endpoint, if a probe is denied, too, until one succeeds: an operator has to act
//	overloaded           the provider, with all of its accounts
//	other failures       the endpoint, after three in a row, if a probe fails, too
//
// Where there are no probes, or the last one has failed, the calls alone decide.
//
// A call that the caller cancels says nothing about the endpoint, and neither does the time in line.
//
// A failed request is sent again, elsewhere, if it was provably not sent; or if it is Repeatable, and then for
// at most one request in ten, three times in all. One that was not sent is tried at up to four endpoints: what bounds
// those tries is that endpoints out of use are tried one call at a time, after a back-off. An answer of an endpoint of JSON-RPC that is no JSON is a failure.
//
// # Guarantees
//
//   - No limit and no budget is exceeded, also if several processes share them over Redis.
//   - A request that is not Repeatable is written to at most one endpoint.
//   - Nothing is sent to whom a provider's Retry-After is for before it has passed.
//   - URLs and headers of endpoints are in no error, log or statistic.
//   - Lines and goroutines are bounded, and every wait ends with its context.
package upstream
