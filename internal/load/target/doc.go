// Package target speaks to what is loaded: HTTP, gRPC, JSON-RPC or Redis.
//
//	t, err := target.Open(ctx, target.Config{URL: "http://127.0.0.1:8080/items/{{rand 1000}}"})
//	defer t.Close()
//	caller := t.Caller(0)
//	result := caller.Call(ctx, seq)
//
// Whoever decides when to call, and measures how long it took, is elsewhere. One
// goroutine has one [Caller]; a [Target] may be shared.
//
// # Variables
//
// URLs (path and query), header values, bodies and command arguments may contain
// variables that are replaced in every operation:
//
//	{{seq}}      the number of the operation
//	{{worker}}   the number of the caller
//	{{rand N}}   0 to N-1, each as likely
//	{{zipf N}}   0 to N-1, small ones far more often (s = 1.1)
//	{{cycle N}}  seq modulo N
//	{{uuid}}     a random UUID, version 4
//	{{time}}     now, in nanoseconds since 1970
//
// What is random follows from Config.Seed and the operation's number, whichever
// caller carries it out, so that a run can be repeated. Two opening braces always
// begin a variable; there is no way to write them otherwise.
//
// # What it promises
//
// Nothing follows a redirect, uses a proxy or a second address: every connection
// goes to the host of the URL. A call ends soon after its ctx or Config.Timeout.
// Answers are bounded at 64 MiB. Errors show no passwords and no header values, and
// of a URL's path and query no more than the part that makes no sense.
//
// # Limits
//
// A caller connects when it first needs to, so its first call takes longer. A
// connection that breaks costs the call that finds out; only net/http and grpc
// repeat a request on their own, where the server cannot have seen it, and net/http
// a GET on a kept connection that was closed. HTTP answers are counted, never looked
// at. gRPC calls must be unary, JSON-RPC calls single, and Redis commands have one
// reply each.
package target
