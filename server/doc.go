// Package server is the daemon: it lets other processes use a weir.Limiter over
// the network. The smallest use serves [DefaultPolicy] on 127.0.0.1:8080:
//
//	table, err := memstore.New(memstore.Config{MaxKeys: 1_000_000})
//	srv, err := server.New(server.Config{Limiter: table})
//	err = srv.Run(ctx) // until ctx ends
//
// A request for a decision:
//
//	curl -s http://127.0.0.1:8080/v1/check -d '{"policy":"default","key":"alice"}'
//
// # Guarantees
//
//   - Run returns when its ctx ends: readiness goes false at once, half a second later
//     no new connection is accepted, and requests in flight have 11 s to finish, which is
//     longer than a request may wait in a queue. No request is lost silently: one that is
//     sent while its connection is being closed gets a reply that it was not processed.
//   - Without configured clients, only processes of this machine can call: New and Reload
//     refuse other addresses than loopback, unless Live.Open is set.
//   - Connections, headers, bodies and the time they may take are bounded.
//
// # When not to use it
//
// A process that limits only itself needs no daemon: use [weir.New], or a store
// such as package memstore, directly.
package server
