// Package overhttp compares the daemon's POST /v1/check with what any answer of net/http
// costs: requests per second of several connections, how long one takes, and what it
// costs in allocations and processor time.
//
// The daemon is the real one, server.New with a table in memory, metrics and all. Beside
// it are handlers that decide nothing, behind an http.Server with the same settings. The
// client is the same for all and as lean as can be: on each connection a loop that writes
// the bytes of a request and looks through those of the answer, without net/http.
package overhttp
