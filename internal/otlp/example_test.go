package otlp_test

import (
	"context"
	"fmt"

	"github.com/weirlimit/weir/internal/otlp"
)

func ExampleNew() {
	exporter, err := otlp.New(otlp.Config{
		Endpoint: "http://user:password@127.0.0.1:4318",
		Headers:  map[string]string{"X-Api-Key": "secret"},
		Ratio:    0.01,
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(exporter)

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = exporter.Run(ctx)
	}()

	span := exporter.Start("POST /v1/check", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00")
	fmt.Println("traced:", span != nil) // its caller does not trace it
	span.Str("weir.policy", "login")
	span.End()

	cancel()
	<-done
	// Output:
	// otlp to http://***@127.0.0.1:4318
	// traced: false
}
