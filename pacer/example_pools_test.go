package pacer_test

import (
	"fmt"

	"github.com/weirlimit/weir/pacer"
)

// Somebody is busy elsewhere while 3000 tokens come in, and then catches up.
func ExampleNewPools() {
	pools, err := pacer.NewPools(1000, 1.25)
	if err != nil {
		panic(err)
	}
	pools.Refill(3000)
	pools.Take(1250) // all that may be had at once
	fmt.Println(pools.State().Waiting, "wait")

	pools.Refill(500)
	s := pools.State()
	fmt.Println(s.Active, "and", s.Backfill, "more")
	// Output:
	// 1750 wait
	// 500 and 125 more
}
