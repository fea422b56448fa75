package server_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"strings"

	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/server"
	"github.com/weirlimit/weir/store/memstore"
)

func ExampleNew() {
	table, err := memstore.New(memstore.Config{MaxKeys: 1_000_000})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	srv, err := server.New(server.Config{
		HTTP:    server.Listener{Address: "127.0.0.1:0"}, // any free port
		Limiter: table,
		Log:     slog.New(slog.DiscardHandler),
		OnListen: func(b server.Bound) {
			go func() {
				defer stop()
				ask("http://" + b.HTTP.String())
			}()
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("stopped:", srv.Run(ctx))
	// Output:
	// {"allowed":true,"policy":"default","limited_by":"","limit":100,"remaining":99,"retry_after_ms":0,"reset_after_ms":10,"reason":"admitted"}
	// stopped: <nil>
}

func ask(url string) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post(url+"/v1/check", "application/json", strings.NewReader(`{"policy":"default","key":"alice"}`))
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(string(answer))
}

// A server with a client that may use one policy, and an operator who may read. Tokens come from
// outside the program, as here from constants of a test.
func ExampleClient() {
	const token, adminToken = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
	table, err := memstore.New(memstore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	srv, err := server.New(server.Config{
		HTTP:    server.Listener{Address: "127.0.0.1:0"},
		Limiter: table,
		Log:     slog.New(slog.DiscardHandler),
		Live: server.Live{
			Clients: []server.Client{{
				Name: "shop", Tokens: []secret.Secret{secret.New(token)}, Grants: server.Grants{Policies: []string{"default"}},
			}},
			Operators: []server.Operator{{
				Name: "ops", Tokens: []secret.Secret{secret.New(adminToken)}, Scopes: server.ScopeRead | server.ScopeWrite,
			}},
		},
		OnListen: func(b server.Bound) {
			go func() {
				defer stop()
				for _, token := range []string{token, adminToken, ""} {
					fmt.Println(statusOf("POST", "http://"+b.HTTP.String()+"/v1/check", token))
				}
				fmt.Println(statusOf("GET", "http://"+b.HTTP.String()+"/admin/v1/policies", adminToken))
			}()
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("stopped:", srv.Run(ctx))
	// Output:
	// 200 OK
	// 401 Unauthorized
	// 401 Unauthorized
	// 200 OK
	// stopped: <nil>
}

// statusOf makes a request with a token.
func statusOf(method, url, token string) string {
	req, err := http.NewRequest(method, url, strings.NewReader(`{"policy":"default","key":"alice"}`))
	if err != nil {
		log.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.Status
}
