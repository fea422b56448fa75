package weir_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
)

// Mail goes out at the pace that its receiver allows, in the order in which it came.
// Who cannot wait so long is told at once.
func ExampleNewQueue() {
	table, _ := memstore.New(memstore.Config{})
	queue, _ := weir.NewQueue(table, weir.QueueConfig{MaxPerKey: 100})
	policy, _ := weir.NewPolicy("mail", weir.Limit{Rate: 500, Per: weir.Every(time.Second), Burst: 1})
	for range 3 {
		d, err := queue.Wait(context.Background(), policy, "example.org", 1)
		fmt.Println(d.Allowed, err)
	}

	slow, _ := weir.NewPolicy("slow", weir.Limit{Rate: 1, Per: weir.Every(time.Hour)})
	_, _ = queue.Take(context.Background(), slow, "example.org", 1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	d, err := queue.Wait(ctx, slow, "example.org", 1)
	fmt.Println(d.Reason, err)
	// Output:
	// true <nil>
	// true <nil>
	// true <nil>
	// too_late <nil>
}
