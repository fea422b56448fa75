package weirhttp

import (
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// fieldsOf returns what is in h, sorted, without the field that never changes.
func fieldsOf(h http.Header) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if name != fieldPolicy {
			lines = append(lines, name+": "+strings.Join(h[name], " AND "))
		}
	}
	return strings.Join(lines, " | ")
}

func TestHeadersOfDecisions(t *testing.T) {
	quotas := PolicyQuotas(apiPolicy(t), "")
	tests := []struct {
		name string
		d    weir.Decision
		want string
	}{
		{"admitted", weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: 100, Remaining: 99, ResetAfter: 10 * time.Millisecond}, `Ratelimit: "api";r=99`},
		{"admitted, another is tightest", weir.Decision{Allowed: true, Reason: weir.Admitted, By: 1, Limit: 1000, Remaining: 1, ResetAfter: time.Hour}, `Ratelimit: "api.daily";r=1`},
		{"admitted, the last", weir.Decision{Allowed: true, Reason: weir.Admitted, By: 1, Limit: 1000, ResetAfter: time.Hour + 1}, `Ratelimit: "api.daily";r=0;t=3601`},
		{"admitted, the last of gcra", weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: 100, ResetAfter: time.Second}, `Ratelimit: "api";r=0;t=1`},
		{"admitted, in debt", weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: 100, Remaining: -100, ResetAfter: 2*time.Second + 1}, `Ratelimit: "api";r=0;t=2`},
		{"admitted, nobody knows when", weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: 100, ResetAfter: weir.Never}, `Ratelimit: "api";r=0`},
		{"admitted, and held", weir.Decision{Allowed: true, Reason: weir.Admitted, Held: true, Limit: 100, ResetAfter: time.Second}, `Ratelimit: "api";r=0`},
		{"admitted, never t=0", weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: 100}, `Ratelimit: "api";r=0;t=1`},
		{"admitted, retry plays no part", weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: 100, Remaining: 1, RetryAfter: time.Hour}, `Ratelimit: "api";r=1`},
		{"admitted, not counted", weir.Decision{Allowed: true, Reason: weir.Admitted, Estimate: true}, ""},
		{"refused", weir.Decision{Reason: weir.Exhausted, Limit: 100, RetryAfter: 250 * time.Millisecond, ResetAfter: time.Second}, `Ratelimit: "api";r=0;t=1 | Retry-After: 1`},
		{"refused, exact seconds", weir.Decision{Reason: weir.Exhausted, By: 1, Limit: 1000, RetryAfter: 7 * time.Second}, `Ratelimit: "api.daily";r=0;t=7 | Retry-After: 7`},
		{"refused, rounded up", weir.Decision{Reason: weir.Exhausted, Limit: 100, RetryAfter: 7*time.Second + 1}, `Ratelimit: "api";r=0;t=8 | Retry-After: 8`},
		{"refused, some remain", weir.Decision{Reason: weir.Exhausted, Limit: 100, Remaining: 3, RetryAfter: 2 * time.Second}, `Ratelimit: "api";r=3;t=2 | Retry-After: 2`},
		{"refused, never 0", weir.Decision{Reason: weir.QueueFull, Limit: 100}, `Ratelimit: "api";r=0;t=1 | Retry-After: 1`},
		{"refused, in debt", weir.Decision{Reason: weir.Exhausted, Limit: 100, Remaining: -20, RetryAfter: time.Second}, `Ratelimit: "api";r=0;t=1 | Retry-After: 1`},
		{"waiting cannot help", weir.Decision{Reason: weir.TooCostly, Limit: 100, Remaining: 100, RetryAfter: weir.Never}, `Ratelimit: "api";r=100`},
		{"store down", weir.Decision{Reason: weir.StoreDown, RetryAfter: time.Second, ResetAfter: time.Second}, `Retry-After: 1`},
		{"blocked", weir.Decision{Reason: weir.Blocked, RetryAfter: time.Hour}, `Retry-After: 3600`},
		{"blocked for good", weir.Decision{Reason: weir.Blocked, RetryAfter: weir.Never}, ""},
		{"a limit that is not there", weir.Decision{Reason: weir.Exhausted, By: 2, Limit: 1, RetryAfter: time.Second}, `Retry-After: 1`},
		{
			"greatest",
			weir.Decision{Reason: weir.Exhausted, Limit: math.MaxInt64, Remaining: math.MaxInt64, RetryAfter: weir.Never - 1},
			`Ratelimit: "api";r=999999999999999;t=9223372037 | Retry-After: 9223372037`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{"Ratelimit": {"old"}}
			h.Del("RateLimit")
			SetHeaders(h, quotas, int(tt.d.By), tt.d)
			if got := fieldsOf(h); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if got, want := h.Get("RateLimit-Policy"), `"api";q=100;w=1, "api.daily";q=1000;w=86400`; got != want {
				t.Errorf("RateLimit-Policy: got  %s\nwant %s", got, want)
			}
		})
	}
}

func TestHeadersReplaceAndAreFound(t *testing.T) {
	h := http.Header{}
	h.Set("RateLimit", "old")
	h.Set("RateLimit-Policy", "old")
	h.Set("Retry-After", "old")
	SetHeaders(h, PolicyQuotas(apiPolicy(t), ""), 0, weir.Decision{Limit: 100, RetryAfter: 2 * time.Second})
	for _, name := range []string{"RateLimit", "RateLimit-Policy", "Retry-After"} {
		if got := h.Values(name); len(got) != 1 || got[0] == "old" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestNoQuotasSetNoPolicy(t *testing.T) {
	h := http.Header{}
	SetHeaders(h, Quotas{}, 0, weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: 1})
	SetHeaders(h, NewQuotas(), -1, weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: 1})
	if len(h) > 0 {
		t.Errorf("got %v, want nothing: an empty list is not allowed", h)
	}
}

// TestResponsesDoNotShare adds to each field of one response and looks at the
// others.
func TestResponsesDoNotShare(t *testing.T) {
	quotas := PolicyQuotas(apiPolicy(t), "")
	one, two := http.Header{}, http.Header{}
	d := weir.Decision{Reason: weir.Exhausted, Limit: 100, RetryAfter: 7 * time.Second}
	SetHeaders(one, quotas, 0, d)
	for name := range one {
		one.Add(name, "added")
	}
	SetHeaders(two, quotas, 0, d)
	if got, want := fieldsOf(one), `Ratelimit: "api";r=0;t=7 AND added | Retry-After: 7 AND added`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := two.Values(fieldPolicy); len(got) != 1 {
		t.Errorf("the policy of another response is %q", got)
	}
}

// TestSetAllocates holds the cost: one block for all values and their slices.
func TestSetAllocates(t *testing.T) {
	quotas := NewQuotas(NewQuota(longest(), weir.Limit{Rate: 100, Per: weir.Every(time.Second)}, ""))
	h := http.Header{}
	now := time.Unix(1_800_000_000, 0)
	refused := weir.Decision{Reason: weir.Exhausted, Limit: math.MaxInt64, Remaining: math.MaxInt64, RetryAfter: weir.Never - 1}
	admitted := weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: 100, Remaining: 42}
	tests := []struct {
		name string
		most float64
		set  func()
	}{
		{"refused", 1, func() { SetHeaders(h, quotas, 0, refused) }},
		{"admitted", 1, func() { SetHeaders(h, quotas, 0, admitted) }},
		{"only the policy", 0, func() { SetHeaders(h, quotas, 0, weir.Decision{Allowed: true, Reason: weir.Admitted}) }},
		{"github", 1, func() { LegacyGitHub.Set(h, refused, now) }},
		{"delta", 1, func() { LegacyDelta.Set(h, admitted, now) }},
		{"off", 0, func() { LegacyOff.Set(h, admitted, now) }},
	}
	for _, tt := range tests {
		if n := testing.AllocsPerRun(100, tt.set); n > tt.most {
			t.Errorf("%s: %v allocations, want at most %v", tt.name, n, tt.most)
		}
	}
}

func BenchmarkSetHeaders(b *testing.B) {
	quotas := PolicyQuotas(apiPolicy(b), "")
	h := http.Header{}
	d := weir.Decision{Reason: weir.Exhausted, By: 1, Limit: 1000, RetryAfter: time.Hour}
	b.ReportAllocs()
	for b.Loop() {
		SetHeaders(h, quotas, 1, d)
	}
}
