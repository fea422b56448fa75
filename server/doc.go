// Package server is the daemon: it lets other processes use a weir.Limiter over
// the network. The smallest use serves [DefaultPolicy] on 127.0.0.1:8080:
//
//	table, err := memstore.New(memstore.Config{MaxKeys: 1_000_000})
//	srv, err := server.New(server.Config{Limiter: table})
//	err = srv.Run(ctx) // until ctx ends
//
// and is asked with
//
//	curl -s http://127.0.0.1:8080/v1/check -d '{"policy":"default","key":"alice"}'
//
// # Guarantees
//
//   - Run returns when its ctx ends: readiness goes false at once, half a second later
//     no new connection is accepted, and requests that are being answered have 11 s to
//     finish, which is more than any may wait. None is dropped: whoever sends one just
//     when its connection ends is told that it was not carried out.
//   - Nobody but processes of this machine can call: addresses other than
//     loopback are refused, because clients cannot be configured yet.
//   - Connections, headers, bodies and the time they may take are bounded.
//
// # When not to use it
//
// A process that limits only itself needs no daemon: use [weir.New], or a store
// such as package memstore, directly.
package server
