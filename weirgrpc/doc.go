// Package weirgrpc limits services of google.golang.org/grpc.
//
//	g, err := guard.New(table, guard.Config{
//		Default:   guard.Endpoint{Limits: []ruleset.Limit{{Limit: weir.PerMinute(50)}}},
//		Endpoints: []guard.Endpoint{{Pattern: "/river.StreamService/CreateStream", …}},
//	})
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(weirgrpc.UnaryServer(g)),
//		grpc.ChainStreamInterceptor(weirgrpc.StreamServer(g)))
//
// [UnaryServer] and [StreamServer] are for a guard.Guard, with limits for each procedure;
// [LimitUnaryServer] and [LimitStreamServer] are for one or a few limits by a header or by address.
// Services of Connect use package weirconnect, plain HTTP package weirhttp.
//
// # What callers get
//
// A call that is refused ends with
//
//	RESOURCE_EXHAUSTED  a limit is used up, or too many calls of the caller are in flight
//	PERMISSION_DENIED   the caller is blocked
//	UNAVAILABLE         the process handles too many calls, or the limiter failed
//	INVALID_ARGUMENT    the cost is out of range
//
// The status has a google.rpc.QuotaFailure, with the name of the limit (quota_id), what it admits at once
// (quota_value) and the kind of subject ("user", "ip"), but not who it is; and a google.rpc.RetryInfo,
// unless waiting cannot help. The trailer grpc-retry-pushback-ms tells clients with a retry policy when
// to retry: grpc-go waits for that time, and does not retry if it is -1, which means that waiting
// cannot help.
//
// Calls that are allowed have ratelimit-policy and ratelimit in their header. If a call ends with an
// error before anything was sent, by a refusal or by the handler, the fields are in its trailer, and
// retry-after is too if it was refused: clients retry only calls whose reply has no header. Such a
// reply is a single block of header fields in HTTP/2, so the fields are never sent as trailers of
// HTTP. Limits that are hidden or in shadow are nowhere.
//
// # Streams
//
// A stream is charged when it begins. With [PerMessage] it costs one unit for each message that the
// server receives: the first is the one that was charged at the beginning, and a later one that is
// refused ends the stream with RESOURCE_EXHAUSTED. Guard.Subscribe limits how many streams are open.
//
// # Who the caller is
//
// The stage before authentication comes first, then [Authenticate], then [Verify], then the stage after
// authentication. An interceptor outside may authenticate as well, with guard.WithSubject; then nothing
// limits the calls that it has to verify. Handlers find the subject with guard.SubjectOf.
//
// The address is that of the connection, or what trusted proxies say in the metadata that
// guard.Identity names. Client certificates are those of credentials.TLSInfo, whose chain was verified.
//
// A message of a unary call is decoded before interceptors are called, and messages larger than the
// server allows are refused by grpc-go itself. grpc.InTapHandle is the place to refuse calls earlier.
package weirgrpc
