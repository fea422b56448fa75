package budget_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/weirlimit/weir/budget"
)

// Three responses with the same status need three reactions.
func ExampleClassify() {
	for _, body := range []string{
		`{"error":{"type":"tokens","code":"rate_limit_exceeded"}}`,
		`{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}`,
		`{"error":{"type":"rate_limit_error","code":"slow_down"}}`,
	} {
		h := http.Header{"Retry-After": {"20"}}
		refusal, _ := budget.Classify(http.StatusTooManyRequests, h, []byte(body), time.Now())
		switch refusal.Class {
		case budget.RateLimited, budget.QuotaExhausted:
			fmt.Println("use another account for", refusal.Wait)
		case budget.AccessDenied:
			fmt.Println("tell the operator:", refusal.Reason)
		case budget.Overloaded:
			fmt.Println("send less to the provider for", refusal.Wait)
		}
	}
	// Output:
	// use another account for 20s
	// tell the operator: insufficient_quota
	// send less to the provider for 20s
}
