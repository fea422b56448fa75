package weirhttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/weirhttp"
)

func newPolicy() *weir.Policy {
	p, err := weir.NewPolicy("api",
		weir.Limit{Rate: 100, Per: weir.Every(time.Second)},
		weir.Limit{Name: "daily", Rate: 1000, Per: weir.Calendar(weir.Day, nil)})
	if err != nil {
		panic(err)
	}
	return p
}

// A refusal, as a handler answers it.
func Example() {
	policy := newPolicy()
	quotas := weirhttp.PolicyQuotas(policy, "")
	d := weir.Decision{Reason: weir.Exhausted, By: 1, Limit: 1000, RetryAfter: 6200 * time.Millisecond}

	w := httptest.NewRecorder()
	weirhttp.SetHeaders(w.Header(), quotas, int(d.By), d)
	weirhttp.Denied(policy.Name(), policy.LimitName(int(d.By)), d).Write(w)

	fmt.Println(w.Code)
	for _, name := range []string{"RateLimit-Policy", "RateLimit", "Retry-After", "Content-Type", "Cache-Control"} {
		fmt.Printf("%s: %s\n", name, w.Header().Get(name))
	}
	fmt.Print(w.Body)
	// Output:
	// 429
	// RateLimit-Policy: "api";q=100;w=1, "api.daily";q=1000;w=86400
	// RateLimit: "api.daily";r=0;t=7
	// Retry-After: 7
	// Content-Type: application/problem+json
	// Cache-Control: no-store
	// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"detail":"limit api.daily of policy api is used up; retry after 6.2s","violated-policies":["api.daily"]}
}

func ExampleNewQuota() {
	fmt.Println(weirhttp.NewQuota("api", weir.Limit{Rate: 10, Per: weir.Every(time.Second), Burst: 50}, ""))
	fmt.Println(weirhttp.NewQuota("llm", weir.Limit{Rate: 90_000, Per: weir.Every(time.Minute)}, "tokens"))
	fmt.Println(weirhttp.NewQuota("jobs", weir.Limit{Rate: 8, Algorithm: weir.Concurrency}, ""))
	// Output:
	// "api";q=50;w=5
	// "llm";q=90000;w=60;qu="tokens"
	// "jobs";q=8;qu="concurrent-requests"
}

func ExampleNewQuotas() {
	minute := weirhttp.NewQuota("llm.requests", weir.Limit{Rate: 60, Per: weir.Every(time.Minute)}, "")
	tokens := weirhttp.NewQuota("llm.tokens", weir.Limit{Rate: 90_000, Per: weir.Every(time.Minute)}, "tokens")
	fmt.Println(weirhttp.NewQuotas(minute, tokens))
	// Output:
	// "llm.requests";q=60;w=60, "llm.tokens";q=90000;w=60;qu="tokens"
}

func ExampleSetHeaders() {
	h := http.Header{}
	d := weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: 100, Remaining: 42, ResetAfter: 580 * time.Millisecond}
	weirhttp.SetHeaders(h, weirhttp.PolicyQuotas(newPolicy(), ""), int(d.By), d)
	fmt.Println(h.Get("RateLimit"))
	// Output: "api";r=42
}

func ExampleLegacy_Set() {
	h := http.Header{}
	d := weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: 5000, Remaining: 4999, ResetAfter: 59*time.Minute + 30*time.Second}
	weirhttp.LegacyGitHub.Set(h, d, time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC))
	for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Used", "X-RateLimit-Reset"} {
		fmt.Println(name, h.Get(name))
	}
	// Output:
	// X-RateLimit-Limit 5000
	// X-RateLimit-Remaining 4999
	// X-RateLimit-Used 1
	// X-RateLimit-Reset 1779022770
}

func ExampleParseRetryAfter() {
	now := time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC)
	fmt.Println(weirhttp.ParseRetryAfter("120", now, time.Hour))
	fmt.Println(weirhttp.ParseRetryAfter("Sun, 17 May 2026 12:00:30 GMT", now, time.Hour))
	fmt.Println(weirhttp.ParseRetryAfter("86400", now, time.Hour))
	fmt.Println(weirhttp.ParseRetryAfter("1.5", now, time.Hour))
	// Output:
	// 2m0s true
	// 30s true
	// 1h0m0s true
	// 0s false
}
