package budget_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/weirlimit/weir/budget"
)

// A bucket that is full in 36 s gives back the 100 missing of 600 tokens in 6 s.
func ExampleView_Wait() {
	h := http.Header{}
	h.Set("x-ratelimit-limit-tokens", "1000")
	h.Set("x-ratelimit-remaining-tokens", "400")
	h.Set("x-ratelimit-reset-tokens", "36s")

	for _, v := range budget.ParseView(h, time.Now()) {
		fmt.Println(v.Unit, v.Wait(400), v.Wait(500), v.Wait(1000))
		fmt.Println("used elsewhere:", v.Excess(450))
	}
	// Output:
	// tokens 0s 6s 36s
	// used elsewhere: 50
}
