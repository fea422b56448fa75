package client_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/gen/weir/v1/weirv1connect"
)

// pretend stands for a daemon, so that the examples run by themselves.
func pretend() *httptest.Server {
	mux := http.NewServeMux()
	mux.Handle(weirv1connect.NewLimiterServiceHandler(&service{checkBatch: admit}))
	return httptest.NewServer(mux)
}

func ExampleClient_Take() {
	daemon := pretend() // in earnest: weir serve
	defer daemon.Close()

	limiter, err := client.New(client.Config{
		Address: daemon.URL, // in earnest: "127.0.0.1:8080", or nothing
		Token:   func() string { return os.Getenv("WEIR_TOKEN") },
		Timeout: 10 * time.Second, // of an exchange
	})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()

	api, err := weir.NewPolicy("api", weir.Limit{Rate: 100, Per: weir.Every(time.Second)})
	if err != nil {
		log.Fatal(err)
	}
	d, err := limiter.Take(context.Background(), api, "alice", 1)
	if err != nil {
		log.Fatal(err) // no decision: see package tiered for what to do then
	}
	fmt.Println(d.Allowed)
	// Output: true
}
