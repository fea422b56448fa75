// Package weirconnect limits services of connectrpc.com/connect, in all three protocols: Connect, gRPC and
// gRPC-Web.
//
//	g, err := guard.New(table, guard.Config{
//		Default:   guard.Endpoint{Limits: []ruleset.Limit{{Limit: weir.PerMinute(50)}}},
//		Endpoints: []guard.Endpoint{{Pattern: "/river.StreamService/CreateStream", …}},
//	})
//	path, handler := riverconnect.NewStreamServiceHandler(service,
//		connect.WithInterceptors(weirconnect.New(g)))
//
// [New] is for a guard.Guard, with limits for each procedure; [Limit] is for one or a few limits by a
// header or by address. Services of grpc-go use package weirgrpc, plain HTTP package weirhttp.
//
// # What callers get
//
// A call that is refused ends with
//
//	resource_exhausted  a limit is used up, or too many calls of the caller are in flight
//	permission_denied   the caller is blocked
//	unavailable         the process handles too many calls, or the limiter failed
//	invalid_argument    the cost is out of range
//
// The error has a google.rpc.QuotaFailure, with the name of the limit (quota_id), what it admits at once
// (quota_value) and the kind of subject ("user", "ip"), but not who it is; and a google.rpc.RetryInfo,
// unless waiting cannot help. The fields Retry-After, RateLimit-Policy and RateLimit are in the
// response's header, RateLimit fields also if the call is allowed. Limits that are hidden or in shadow
// are nowhere. Callers over gRPC get the trailer grpc-retry-pushback-ms as well. Clients of grpc-go never
// retry automatically what a server of Connect refuses, though, because Connect sends a header
// before the trailer; they do with package weirgrpc.
//
// # Streams
//
// A stream is charged when it begins. With [PerMessage] it costs one unit for each message that the
// server receives: the first is the one that was charged at the beginning, and a later one that is
// refused ends the stream with resource_exhausted. Guard.Subscribe limits how many streams are open.
//
// # Who the caller is
//
// The stage before authentication comes first, then [Authenticate], then [Verify], then the stage after
// authentication. An interceptor outside of New may authenticate as well, with guard.WithSubject; then
// nothing limits the calls that it has to verify. Handlers find the subject with guard.SubjectOf.
//
// The address is that of the connection, or what trusted proxies say in the header that guard.Identity
// names.
//
// # What an interceptor cannot do
//
// Connect decodes a unary request before it calls interceptors, so that the body of a refused
// request was read, and it does not show interceptors the state of TLS, so that there are no client
// certificates. Middleware in front of the handler can do both; [Refuse] lets it reply in the caller's
// protocol:
//
//	limited := weirhttp.Guard(g, weirhttp.Refuse(weirconnect.Refuse()))(mux)
//
// Use one or the other for a service, or calls are charged twice. Where failures are counted
// (guard.CountFailures), use the interceptor: a failed call over gRPC has the status 200.
package weirconnect
