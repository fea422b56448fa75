package tiered_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/tiered"
)

// A fleet has a store in Redis, package redisstore's, and a Bus, package redistier's. One in
// memory shows how it is used.
func ExampleNew() {
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	local, err := memstore.New(memstore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter, err := tiered.New(tiered.Config{
		Store: store, Local: local, Mode: tiered.Leased,
		OnError: weir.FailClosed, Timeout: 100 * time.Millisecond,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close() // gives back what is leased

	policy, err := weir.NewPolicy("api", weir.Limit{Rate: 100_000, Per: weir.Every(time.Hour)})
	if err != nil {
		fmt.Println(err)
		return
	}
	admitted := 0
	for range 10_000 {
		d, err := limiter.Take(context.Background(), policy, "alice", 1)
		if err != nil {
			fmt.Println(err)
			return
		}
		if d.Allowed {
			admitted++
		}
	}
	stats := limiter.Stats()
	fmt.Println(admitted, "of", stats.Decisions(), "were admitted")
	fmt.Println("the store was called for each:", stats.CallsPerDecision() >= 1)
	// Output:
	// 10000 of 10000 were admitted
	// the store was called for each: false
}

// Each limit may set its own OnError.
func ExampleConfig_onError() {
	// By itself, the first limit would admit each node's share while the store is
	// unavailable. The budget fails closed, and so decides for both.
	_, err := weir.NewPolicy("api",
		weir.Limit{Name: "burst", Rate: 100, Per: weir.Every(time.Second), OnError: weir.FailLocal},
		weir.Limit{Name: "budget", Rate: 1_000_000, Per: weir.Calendar(weir.Month, time.UTC), OnError: weir.FailClosed},
	)
	fmt.Println(err)
	// Output: <nil>
}
