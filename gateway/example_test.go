package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/gateway"
	"github.com/weirlimit/weir/internal/mockrpc"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/upstream"
)

// Two endpoints share the work: one of an account with two requests a minute, and another for what is more.
func ExampleNew() {
	provider := httptest.NewServer(weir.Must(mockrpc.New(mockrpc.Config{Preset: mockrpc.Generic})))
	defer provider.Close()

	store := weir.Must(memstore.New(memstore.Config{}))
	route, err := gateway.New(store, gateway.Config{
		Pool: upstream.Config{
			Name: "ethereum", JSONRPC: true, MaxWait: -1, // no waiting
			Endpoints: []upstream.Endpoint{
				{Alias: "paid", RPC: secret.New(provider.URL), Priority: 10, Budget: "main"},
				{Alias: "public", RPC: secret.New(provider.URL), Priority: 20, Limits: upstream.Rate{PerMinute: 1}.Limits()},
			},
		},
	}, budget.Config{Name: "main", Classes: []budget.Class{}, Limits: []ruleset.Limit{
		{Limit: weir.Limit{Rate: 2, Per: weir.Every(time.Minute), Algorithm: weir.SlidingLog}},
	}})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/gw/ethereum", http.StripPrefix("/gw/ethereum", route))
	server := httptest.NewServer(mux)
	defer server.Close()

	for range 4 {
		resp, err := http.Post(server.URL+"/gw/ethereum", "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}`))
		if err != nil {
			panic(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		fmt.Println(resp.Status, resp.Header.Get("Weir-Upstream"), resp.Header.Get("RateLimit"))
	}
	// Output:
	// 200 OK paid "paid.budget";r=1
	// 200 OK paid "paid.budget";r=0;t=60
	// 200 OK public "public.minute";r=0;t=60
	// 429 Too Many Requests
}
