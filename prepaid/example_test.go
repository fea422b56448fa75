package prepaid_test

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/prepaid"
)

func ExampleNew() {
	lim, _ := prepaid.New(weir.Limit{Rate: 5, Per: weir.Every(time.Hour)})
	n := 0
	for lim.Allow() {
		n++
	}
	fmt.Println(n)
	// Output: 5
}
