// Package call is the path of every call through the daemon, whatever its protocol:
//
//	authenticate → authorize → evaluate → record
//
// The packages of the protocols (httpapi, connectapi, grpcapi, envoyapi, respapi) are codecs around
// it. They read a request, call a method of [Core], and write the verdict or the [*Error], which
// each of them maps to its wire in one place:
//
//	caller, err := core.HTTP(state, r)                   // authenticate
//	v, err := core.Check(ctx, caller, policy, &q, false) // authorize, evaluate and record
package call
