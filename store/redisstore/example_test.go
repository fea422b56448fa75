package redisstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/redisstore"
)

// Two processes that share a limit; here they are two stores.
func ExampleNew() {
	ctx := context.Background()
	perUser, err := weir.NewPolicy("per-user", weir.Limit{Rate: 3, Per: weir.Every(time.Hour)})
	if err != nil {
		panic(err)
	}
	for range 2 {
		store, err := redisstore.New(ctx, redisstore.Config{
			Redis:   redisstore.Server{Addrs: []string{redisstore.ExampleAddr}},
			Timeout: time.Minute, // the default of 100 ms is for servers that need fast decisions
		})
		if err != nil {
			panic(err)
		}
		for range 2 {
			d, err := store.Take(ctx, perUser, "alice", 1)
			fmt.Println(d.Allowed, d.Remaining, err)
		}
		store.Close()
	}
	// Output:
	// true 2 <nil>
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
}
