// Package connectapi speaks weir.v1.LimiterService (proto/weir/v1/limiter.proto) over
// Connect, gRPC-Web and gRPC:
//
//	path, handler := connectapi.New(connectapi.Config{Guard: g, State: state, Observe: observe, ObserveEach: each, Log: log})
//	mux.Handle(path, handler)
//
// Its verbs mean what those of /v1 mean, and what is wrong with a request is said in the
// same sentences. gRPC needs a listener that speaks HTTP/2.
//
// # Guarantees
//
//   - A decision is a reply, admitted or refused, never an error. In JSON all its fields
//     but delay_ms are always there, with the names of the .proto file.
//   - An error other than unavailable, deadline_exceeded, canceled and internal has
//     charged nothing. Those four mean that nobody can say.
//   - Of a batch that has anything wrong in it, nothing is charged.
//   - A request is decided by one State.
//   - Messages of errors are short, since gRPC sends them as header fields, and hold no
//     keys, unless JSON has one where or as what it must not be: they show that.
//
// # Limits
//
// A message has at most 64 KiB, and what comes after is not read. Nothing is compressed:
// decisions are too short to gain by it, and who cannot send compressed messages cannot
// send small ones that become large.
package connectapi
