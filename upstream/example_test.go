package upstream_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/mockrpc"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/upstream"
)

// Two accounts with one provider, and a public endpoint for what is beyond them. Sticky, so that the output is always
// the same.
func ExampleNew() {
	quiet := slog.New(slog.DiscardHandler)
	provider := weir.Must(mockrpc.New(mockrpc.Config{Accounts: []mockrpc.Account{
		{Name: "first", Keys: []string{"key-1"}}, {Name: "second", Keys: []string{"key-2"}}, {Name: "everybody", Keys: []string{"key-3"}},
	}}))
	pool, err := upstream.New(weir.Must(memstore.New(memstore.Config{})), upstream.Config{
		Name: "ethereum", JSONRPC: true, Strategy: upstream.Sticky, MaxWait: -1,
		Endpoints: []upstream.Endpoint{
			{Alias: "alchemy-1", RPC: secret.New("https://alchemy.example/v2/key-1"), Budget: "first"},
			{Alias: "alchemy-2", RPC: secret.New("https://alchemy.example/v2/key-2"), Budget: "second"},
			{Alias: "public", RPC: secret.New("https://public.example/v2/key-3"), Priority: 20, Limits: upstream.Rate{PerSecond: 2}.Limits()},
		},
		Transport: provider, // in place of the network
	},
		budget.Config{Name: "first", Preset: "alchemy-free", Classes: []budget.Class{}, Logger: quiet},
		budget.Config{Name: "second", Preset: "alchemy-free", Classes: []budget.Class{}, Logger: quiet})
	if err != nil {
		panic(err)
	}
	const method = "eth_getBlockReceipts" // 500 units, of 1,250 that an account has at once
	for range 7 {
		r, _ := http.NewRequest(http.MethodPost, "/", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":["latest"]}`))
		reply, err := pool.Send(r, &upstream.Call{Methods: []string{method}, Repeatable: true})
		if limited, ok := errors.AsType[*upstream.LimitedError](err); ok {
			fmt.Println("refused:", limited.Reason)
			continue
		} else if err != nil {
			panic(err)
		}
		_ = reply.Body.Close()
		fmt.Println(reply.StatusCode, "from", reply.Alias)
	}
	// Output:
	// 200 from alchemy-1
	// 200 from alchemy-1
	// 200 from alchemy-2
	// 200 from alchemy-2
	// 200 from public
	// 200 from public
	// refused: exhausted
}

// A limit per second and per minute, in the short form of configuration files.
func ExampleRate_Limits() {
	for _, l := range (upstream.Rate{PerSecond: 100, PerMinute: 5000}).Limits() {
		fmt.Println(l)
	}
	for _, l := range (upstream.Rate{PerMinute: 5000, Smooth: true}).Limits() {
		fmt.Println(l)
	}
	// Output:
	// 100 per 1s (sliding_log)
	// 5000 per 1m0s (sliding_log)
	// 4917 per 1m0s burst 83 (gcra)
}
