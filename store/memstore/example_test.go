package memstore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
)

func ExampleNew() {
	ctx := context.Background()
	table, err := memstore.New(memstore.Config{MaxKeys: 1_000_000})
	if err != nil {
		panic(err)
	}
	perUser, err := weir.NewPolicy("per-user", weir.Limit{Rate: 100, Per: weir.Every(time.Minute)})
	if err != nil {
		panic(err)
	}
	d, err := table.Take(ctx, perUser, "alice", 1)
	fmt.Println(d.Allowed, d.Remaining, err)
	// Output: true 99 <nil>
}

// A request is charged to its user and to everybody together, or to nobody.
func ExampleTable_Do() {
	ctx := context.Background()
	table, _ := memstore.New(memstore.Config{})
	user, _ := weir.NewPolicy("user", weir.Limit{Rate: 2, Per: weir.Every(time.Hour)})
	all, _ := weir.NewPolicy("all", weir.Limit{Rate: 1000, Per: weir.Every(time.Hour)})
	for range 3 {
		b := weir.Batch{Op: weir.TakeAll, Charges: []weir.Charge{{Policy: user, Key: "alice", Cost: 1}, {Policy: all, Cost: 1}}}
		if err := table.Do(ctx, &b); err != nil {
			panic(err)
		}
		fmt.Println(b.Allowed(), b.Decisions[0].Reason)
	}
	left, _ := weir.Peek(ctx, table, all, "", 1)
	fmt.Println(left.Remaining, "remain for all")
	// Output:
	// true admitted
	// true admitted
	// false exhausted
	// 998 remain for all
}

// What was used before a restart is used after it.
func ExampleTable_Save() {
	dir, _ := os.MkdirTemp("", "weir")
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "weir.snap")

	ctx := context.Background()
	policy, _ := weir.NewPolicy("p", weir.Limit{Rate: 10, Per: weir.Every(time.Hour)})
	table, _ := memstore.New(memstore.Config{Snapshots: true})
	_, _ = table.Take(ctx, policy, "alice", 10)
	if err := table.Save(file); err != nil {
		panic(err)
	}

	restarted, err := memstore.Load(file, memstore.Config{})
	if err != nil {
		panic(err)
	}
	d, _ := restarted.Take(ctx, policy, "alice", 1)
	fmt.Println(d.Allowed, d.Reason)
	// Output: false exhausted
}
