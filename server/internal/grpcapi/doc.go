// Package grpcapi serves gRPC with grpc-go's own transport, on a listener of its own:
//
//	s := grpcapi.New(grpcapi.Config{Services: services, Log: log})
//	go s.Serve(listener)
//	s.SetReady(true)
//	…
//	err := s.Shutdown(ctx)
//
// It has the transport, authentication hooks and shutdown; the services are implemented by the
// neighbouring packages, and their Enter functions authenticate callers.
//
// # Guarantees
//
//   - Each call of a service is authenticated by its Enter before the service is called. Its
//     message, of 64 KiB at most, has been decoded by then: grpc-go does that first.
//   - Errors of package connect become those of gRPC with the same code and message.
//   - The error of a throttled caller has the time to wait: RetryInfo, QuotaFailure and the
//     trailer grpc-retry-pushback-ms. A decision is a reply and has no details.
//   - Shutdown loses no call that was sent before the caller received GOAWAY.
//   - A service that panics fails that call alone.
//   - A call or stream that is traced by its caller, or sampled, has a span; health has none.
//
// Health (grpc.health.v1) needs no authentication, like /healthz. Reflection is off by default,
// and needs authentication.
//
// # Limits
//
// A message has at most 64 KiB, header lists 16 KiB, and a connection 256 calls at a time
// and windows of 1 MiB together; 4 calls before the first authenticated one. Connections must be ready within 10 s, are closed after
// five minutes without a call, and replaced after half an hour. Nothing is compressed.
package grpcapi
