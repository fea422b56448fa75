package queue_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/queue"
	"github.com/weirlimit/weir/store/memstore"
)

// Mail goes out at the pace that its receiver allows, in the order in which it came.
// A caller that cannot wait so long is refused at once.
func ExampleNew() {
	table, _ := memstore.New(memstore.Config{})
	waiting, _ := queue.New(table, queue.Config{MaxPerKey: 100})
	policy, _ := weir.NewPolicy("mail", weir.Limit{Rate: 500, Per: weir.Every(time.Second), Burst: 1})
	for range 3 {
		d, err := waiting.Wait(context.Background(), policy, "example.org", 1)
		fmt.Println(d.Allowed, err)
	}

	slow, _ := weir.NewPolicy("slow", weir.Limit{Rate: 1, Per: weir.Every(time.Hour)})
	_, _ = waiting.Take(context.Background(), slow, "example.org", 1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	d, err := waiting.Wait(ctx, slow, "example.org", 1)
	fmt.Println(d.Reason, err != nil)
	// Output:
	// true <nil>
	// true <nil>
	// true <nil>
	// too_late true
}

// Jobs share the credits of an account. What a job costs is known only when it is done, so it reserves the most
// that it may need. The next one starts as soon as enough was given back.
func ExampleQueue_Reserve() {
	table, _ := memstore.New(memstore.Config{})
	waiting, _ := queue.New(table, queue.Config{})
	credits, _ := weir.NewPolicy("credits", weir.Limit{Rate: 1000, Per: weir.Every(time.Hour)})
	need := weir.Charge{Policy: credits, Key: "acme", Cost: 1000}
	first, _ := waiting.Reserve(context.Background(), time.Minute, need)

	need.Cost = 800
	done := make(chan error)
	go func() {
		second, err := waiting.Reserve(context.Background(), time.Minute, need)
		if err == nil {
			_, err = second.Commit(context.Background(), 650)
		}
		done <- err
	}()
	_, _ = first.Commit(context.Background(), 137) // 863 come back
	fmt.Println(<-done)
	// Output: <nil>
}
