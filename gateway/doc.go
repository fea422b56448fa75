// Package gateway serves pools of upstream endpoints as a reverse proxy: programs send their requests to one address
// and need no keys, limits or retries of their own.
//
//	route, err := gateway.New(store, gateway.Config{Pool: upstream.Config{Name: "ethereum", JSONRPC: true, Endpoints: endpoints}})
//	go route.Run(ctx) // probes
//	http.Handle("/gw/ethereum", http.StripPrefix("/gw/ethereum", route))
//
// To send requests from inside a program, use the pool itself: package upstream.
package gateway
