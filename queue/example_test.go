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
