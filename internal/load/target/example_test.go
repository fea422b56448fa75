package target_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/weirlimit/weir/internal/load/target"
)

func ExampleOpen() {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL)
		if r.URL.Path == "/items/2" {
			http.Error(w, "slow down", http.StatusTooManyRequests)
		}
	}))
	defer srv.Close()
	ctx := context.Background()
	t, err := target.Open(ctx, target.Config{URL: srv.URL + "/items/{{seq}}"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer t.Close()
	caller := t.Caller(0)
	for seq := range int64(3) {
		r := caller.Call(ctx, seq)
		fmt.Println(r.OK, r.Code, r.Bytes)
	}
	// Output:
	// GET /items/0
	// true 200 0
	// GET /items/1
	// true 200 0
	// GET /items/2
	// false 429 10
}
