package topk_test

import (
	"fmt"

	"github.com/weirlimit/weir/internal/topk"
)

func ExampleNew() {
	limited := topk.New(100)
	for range 3 {
		limited.Add("203.0.113.9", 1)
	}
	limited.Add("198.51.100.7", 1)

	for _, e := range limited.Top(1) {
		fmt.Printf("%s was refused %d times, give or take %d\n", e.Label, e.Count, e.Error)
	}
	// Output: 203.0.113.9 was refused 3 times, give or take 0
}
