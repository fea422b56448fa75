// Package grpcapi serves gRPC with grpc-go's own transport, on a listener of its own:
//
//	s := grpcapi.New(grpcapi.Config{Services: services, Log: log})
//	go s.Serve(listener)
//	s.SetReady(true)
//	…
//	err := s.Shutdown(ctx)
//
// It knows how calls come in and how they end, and not what they are about: the services
// are those of its neighbours, and whoever wires them says how callers are let in.
//
// # Guarantees
//
//   - Each call of a service is let in by its Enter before the service sees it. Its
//     message, of 64 KiB at most, has been decoded by then: grpc-go does that first.
//   - Errors of package connect become those of gRPC with the same code and message.
//   - A refusal to let somebody try again soon says when: RetryInfo, QuotaFailure and the
//     trailer grpc-retry-pushback-ms. A decision that is a reply has no details.
//   - Shutdown loses no call that came before callers heard of it (GOAWAY).
//   - A service that panics fails that call alone.
//   - A call whose caller traces it, or that is sampled, has a span; health has none.
//
// Health (grpc.health.v1) is open to everybody, as /healthz is. Reflection is off unless
// asked for, and then only for those who may call.
//
// # Limits
//
// A message has at most 64 KiB, header lists 16 KiB, and a connection 256 calls at a time
// and windows of 1 MiB together. Connections must be ready within 10 s, are closed after
// five minutes without a call, and replaced after half an hour. Nothing is compressed.
package grpcapi
