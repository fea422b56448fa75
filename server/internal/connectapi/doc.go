// Package connectapi serves weir.v1.LimiterService (proto/weir/v1/limiter.proto) over
// Connect, gRPC-Web and gRPC:
//
//	path, handler := connectapi.New(core, state)
//	mux.Handle(path, handler)
//
// Its methods correspond to the paths of /v1, with the same error messages. gRPC needs a listener
// with HTTP/2.
//
// # Guarantees
//
//   - A decision is a reply, admitted or refused, never an error. In JSON all its fields
//     but delay_ms are always there, with the names of the .proto file.
//   - An error other than unavailable, deadline_exceeded, canceled and internal has
//     charged nothing. After those four it is unknown whether the request was charged.
//   - An invalid batch charges nothing.
//   - A request is decided by one State.
//   - Error messages are short, since gRPC sends them as header fields. They contain no keys,
//     except that messages about invalid JSON quote it.
//
// # Limits
//
// A message has at most 64 KiB; the rest of a longer one is not read. Compression is not supported:
// decisions are too short to benefit, and decompression bombs are impossible.
package connectapi
