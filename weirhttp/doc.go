// Package weirhttp limits net/http services, encodes decisions for HTTP clients, as header
// fields and as problem bodies, and parses a server's Retry-After.
//
// A limit per API key and one per address:
//
//	limit := weirhttp.Limit(table,
//		weirhttp.By(perKey, weirhttp.Header("X-Api-Key")),
//		weirhttp.By(perIP, weirhttp.ClientIP(proxies...)))
//	http.ListenAndServe(addr, limit(mux))
//
// [Limit] is middleware: a request that is refused gets status 429 and a problem body, and
// every response has the fields below. docs/middleware.md tells how to use it with routers
// and with CORS.
//
// Limits for each endpoint and user, penalties and blocks are those of a guard.Guard:
//
//	http.ListenAndServe(addr, weirhttp.Guard(g)(mux))
//
// [Stages] has authentication in between, and [Messages] is for WebSockets. Services of Connect and
// gRPC use packages weirconnect and weirgrpc.
//
// Handlers that decide by themselves use the parts:
//
//	quotas := weirhttp.PolicyQuotas(policy, "")         // once
//	…
//	weirhttp.SetHeaders(w.Header(), quotas, int(d.By), d) // per response
//	if !d.Allowed {
//		weirhttp.Denied(policy.Name(), policy.LimitName(int(d.By)), d).Write(w)
//		return
//	}
//
// # Keys
//
// A [KeyFunc] says whom a request is charged to. Requests without a key share one, so that
// nobody is exempt by leaving it out. What clients send, such as an API key that nothing has
// verified, is theirs to choose: a rule by [ClientIP] beside it bounds what they gain by that.
//
// # What is free
//
// CORS preflights and health probes are not charged; see [ChargeAll] and [Skip].
//
// # The fields
//
// [SetHeaders] writes the two fields of draft-ietf-httpapi-ratelimit-headers, in
// the form that they have since draft -08:
//
//	RateLimit-Policy: "api";q=100;w=1, "api.daily";q=1000;w=86400
//	RateLimit: "api.daily";r=0;t=7
//	Retry-After: 7
//
// RateLimit-Policy says what the limits are. It never changes, so [Quotas] holds
// its text ready. q is the most that is ever admitted at once and w the seconds in
// which that much comes back: for GCRA and the token bucket the burst and the time
// to fill it, for windows the rate and the period. A calendar's period has its
// nominal length, a month 30 days and a year 365. Limits of concurrency have no w.
//
// RateLimit is the status of the tightest limit: r units are left, and in t seconds
// there will be more. There is a t only if one has to wait: on a refusal, and when
// the last unit was just given out. Earlier forms of the draft, with a field for
// each number, are not written; [Legacy] has the X-RateLimit fields, which came
// before all of them and which many clients know.
//
// # Rounding
//
// Fields have whole seconds and decisions have nanoseconds. Times are rounded up,
// because a client that waits for a time rounded down is refused again, and are at
// least 1 when there is a wait at all, because a client that waits for 0 seconds
// spins. What is left is never rounded up. Numbers stop at 15 digits, where those
// of structured fields do (RFC 9651).
//
// # What is left out
//
// A field that would not be true is not set. Without counts in the decision
// (Limit 0, as when the store is down or the key is blocked) there is neither a
// RateLimit nor an X-RateLimit field. When waiting cannot help (RetryAfter is
// weir.Never) there is neither a t nor a Retry-After. Fields that are already
// there under another name stay; of the same name they are replaced.
//
// Keys appear nowhere: they may be secrets, addresses or names of people. Names of
// policies and limits are made safe, whatever is in them; text that a structured
// field cannot hold becomes question marks.
//
// # Refusals
//
// [Denied] makes a problem (RFC 9457) of a refusal, and with it the status:
//
//	429  the limit is used up, or the cost is more than it ever admits
//	503  the store is unavailable, and the policy fails closed
//	403  the key is blocked
//	400  the charge is invalid
//
// Every problem is sent with Cache-Control: no-store; a 429 must not be cached.
//
// # Many clients at once
//
// Clients that were refused by the same window all receive its end, and retry at the
// same time. GCRA has no such instant. Where it has to be a window, lengthen
// RetryAfter of the decision a little, by a random share of it, before the fields
// are set; never shorten it.
package weirhttp
