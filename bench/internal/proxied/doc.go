// Package proxied compares a route of the gateway with a bare httputil.ReverseProxy in front of the same upstream:
// requests per second of several connections, how long one takes, and how fast a long response passes.
//
// The route is the real one, gateway.New with a table in memory. Callers, proxies and the upstream share the process.
// The callers are as lean as can be: on each connection a loop that writes the bytes of a request and looks through
// those of the answer, without net/http.
package proxied
