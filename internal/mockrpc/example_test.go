package mockrpc_test

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/weirlimit/weir/internal/mockrpc"
)

// A Provider is a RoundTripper, so a client can be tested without a network.
func ExampleNew() {
	provider, err := mockrpc.New(mockrpc.Config{
		Accounts: []mockrpc.Account{{Name: "a", Keys: []string{"k1", "k2"}, Rate: 2}}, // 20 units in ten seconds
	})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: provider}
	for _, key := range []string{"k1", "k2"} {
		call := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"eth_getBalance"}`)
		resp, err := client.Post("http://provider.example"+mockrpc.Path(key), "application/json", call)
		if err != nil {
			panic(err)
		}
		_ = resp.Body.Close()
		fmt.Println(key, resp.Status)
	}
	stats := provider.Stats()
	fmt.Println(stats.Total.Served, "served,", stats.Total.Refused["rate"], "refused,", stats.Accounts[0].Units, "units")
	// Output:
	// k1 200 OK
	// k2 429 Too Many Requests
	// 1 served, 1 refused, 20 units
}

// A fault makes requests fail while the provider serves.
func ExampleProvider_AddFault() {
	provider, err := mockrpc.New(mockrpc.Config{})
	if err != nil {
		panic(err)
	}
	if _, err := provider.AddFault(mockrpc.Fault{Refusal: "daily-quota", Key: mockrpc.DefaultKey, Count: 1}); err != nil {
		panic(err)
	}
	client := &http.Client{Transport: provider}
	for range 2 {
		call := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}`)
		resp, err := client.Post("http://provider.example/v2/demo", "application/json", call)
		if err != nil {
			panic(err)
		}
		_ = resp.Body.Close()
		fmt.Println(resp.Status)
	}
	// Output:
	// 402 Payment Required
	// 200 OK
}
