package server_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"strings"

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
