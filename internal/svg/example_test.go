package svg_test

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir/internal/svg"
)

func ExampleLinear() {
	up := svg.Linear(0, 5200, 200, 20, 5)
	for _, tick := range up.Ticks {
		fmt.Println(svg.Number(tick), "at", up.At(tick))
	}
	// Output:
	// 0 at 200
	// 2k at 140
	// 4k at 80
	// 6k at 20
}

func ExampleLog() {
	up := svg.Log(0.8, 40, 200, 20) // milliseconds
	for _, tick := range up.Ticks {
		fmt.Print(svg.Duration(time.Duration(tick*1e6)), "  ")
	}
	// Output: 500 µs  1 ms  2 ms  5 ms  10 ms  20 ms  50 ms
}
