package weir_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
)

// The README's example: a limiter, yes or no, and why not.
func Example() {
	lim, err := weir.New(weir.Limit{Rate: 100, Per: weir.Every(time.Second), Burst: 3})
	if err != nil {
		panic(err)
	}
	now := weir.Now() // one instant, so that the output is the same every time
	for range 4 {
		d := lim.TakeAt(now, 1)
		fmt.Println(d.Allowed, d.Remaining, d.RetryAfter)
	}
	// Output:
	// true 2 0s
	// true 1 0s
	// true 0 0s
	// false 0 10ms
}

func ExampleNew() {
	lim, err := weir.New(
		weir.Limit{Rate: 10, Per: weir.Every(time.Second)},
		weir.Limit{Name: "daily", Rate: 2, Per: weir.Calendar(weir.Day, time.UTC)},
	)
	if err != nil {
		panic(err)
	}
	noon := weir.Instant(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	for range 3 {
		d := lim.TakeAt(noon, 1)
		fmt.Println(d.Allowed, lim.Limits()[d.By].Name, d)
	}
	// Output:
	// true daily admitted, 1 of 2 remain, reset after 12h0m0s
	// true daily admitted, 0 of 2 remain, reset after 12h0m0s
	// false daily refused: exhausted, retry after 12h0m0s
}

func ExampleNew_badLimit() {
	_, err := weir.New(weir.Limit{Rate: 100, Per: weir.Calendar(weir.Month, nil), Algorithm: weir.GCRA})
	fmt.Println(err)
	var bad *weir.LimitError
	fmt.Println(errors.As(err, &bad), bad.Field)
	// Output:
	// weir: limit "main": algorithm gcra: calendar periods differ in length; use FixedWindow, or Every with a duration
	// true algorithm
}

func ExampleSingle_Allow() {
	lim, _ := weir.New(weir.Limit{Rate: 2, Per: weir.Every(time.Hour)})
	fmt.Println(lim.Allow(), lim.Allow(), lim.Allow())
	// Output: true true false
}

func ExampleSingle_Wait() {
	lim, _ := weir.New(weir.Limit{Rate: 1000, Per: weir.Every(time.Second), Burst: 1})
	for range 3 {
		if err := lim.Wait(context.Background()); err != nil {
			fmt.Println(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	slow, _ := weir.New(weir.Limit{Rate: 1, Per: weir.Every(time.Hour)})
	slow.Allow()
	var denied *weir.DeniedError
	fmt.Println(errors.As(slow.Wait(ctx), &denied), denied.Decision.Reason)
	// Output: true too_late
}

func ExampleSingle_Reserve() {
	lim, _ := weir.New(weir.Limit{Rate: 1000, Per: weir.Every(time.Hour)})
	hold, d := lim.Reserve(800, time.Minute) // a guess at the cost
	fmt.Println(d.Allowed, d.Remaining)
	fmt.Printf("%+v\n", hold.Commit(150)) // what it was
	fmt.Println(lim.Peek(1).Remaining)
	// Output:
	// true 200
	// {Refunded:650 Overrun:0 Late:false}
	// 850
}

func ExampleSingle_Set() {
	lim, _ := weir.New(weir.Limit{Rate: 10, Per: weir.Every(time.Hour)})
	lim.Take(8)
	_ = lim.Set(weir.Limit{Rate: 100, Per: weir.Every(time.Hour)})
	fmt.Println(lim.Peek(1).Remaining)
	// Output: 92
}

func ExampleNewPolicy() {
	ctx := context.Background()
	policy, _ := weir.NewPolicy("api", weir.Limit{Rate: 2, Per: weir.Every(time.Hour)})
	table, _ := memstore.New(memstore.Config{})
	for _, user := range []string{"alice", "alice", "alice", "bob"} {
		d, _ := table.Take(ctx, policy, user, 1)
		fmt.Println(user, d.Allowed, d.Remaining)
	}
	// Output:
	// alice true 1
	// alice true 0
	// alice false 0
	// bob true 1
}

func ExampleReserve() {
	ctx := context.Background()
	user, _ := weir.NewPolicy("user", weir.Limit{Rate: 100, Per: weir.Every(time.Hour)})
	all, _ := weir.NewPolicy("all", weir.Limit{Rate: 1000, Per: weir.Every(time.Hour)})
	table, _ := memstore.New(memstore.Config{Now: func() weir.Instant { return 1_800_000_000_000_000_000 }})

	r, _ := weir.Reserve(ctx, table, time.Minute, weir.Charge{Policy: user, Key: "alice", Cost: 60}, weir.Charge{Policy: all, Cost: 60})
	fmt.Println(r.Decision.Allowed)
	settled, _ := r.Commit(ctx, 10, 10) // both were charged 60, both cost 10
	fmt.Println(settled[0].Refunded, settled[1].Refunded)
	d, _ := weir.Peek(ctx, table, user, "alice", 1)
	fmt.Println(d.Remaining)
	// Output:
	// true
	// 50 50
	// 90
}

// Fifty per second and 2,400 per minute, as upstream servers publish it. As both
// limits are a DualWindow, they share one word, and a decision is one
// compare-and-swap.
func ExampleNew_dualWindow() {
	lim, err := weir.New(
		weir.Limit{Name: "second", Rate: 50, Per: weir.Every(time.Second), Algorithm: weir.DualWindow},
		weir.Limit{Name: "minute", Rate: 2400, Per: weir.Every(time.Minute), Algorithm: weir.DualWindow},
	)
	if err != nil {
		panic(err)
	}
	noon := weir.Instant(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	fmt.Println(lim.TakeAt(noon, 50))
	fmt.Println(lim.TakeAt(noon, 1))
	// Output:
	// admitted, 0 of 50 remain, reset after 1s
	// refused: exhausted, retry after 1s
}
