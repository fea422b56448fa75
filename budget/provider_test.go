package budget

import (
	"math"
	"math/big"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

var viewTime = time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)

// header makes a header of lines such as "Name: value".
func header(lines ...string) http.Header {
	h := make(http.Header)
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		h.Add(name, strings.TrimPrefix(value, " "))
	}
	return h
}

func TestParseView(t *testing.T) {
	const s, m = time.Second, time.Minute
	tests := []struct {
		name  string
		lines []string
		want  []View
	}{
		{"nothing", nil, nil},
		{
			"the draft",
			[]string{`RateLimit-Policy: "burst";q=100;w=60, "daily";q=1000;w=86400`, `RateLimit: "burst";r=50;t=30`},
			[]View{{Unit: "requests", Policy: "burst", Limit: 100, Remaining: 50, MoreAfter: 30 * s}},
		},
		{
			"the draft with a unit",
			[]string{`RateLimit-Policy: "b";q=9;qu="content-bytes";pk=:aGk=:`, `RateLimit: "b";r=0`},
			[]View{{Unit: "content-bytes", Policy: "b", Limit: 9}},
		},
		{"the draft as tokens", []string{`RateLimit: quota;r=1;t=2`}, []View{{Unit: "requests", Policy: "quota", Remaining: 1, MoreAfter: 2 * s}}},
		{"the draft with new names", []string{`RateLimit: "x";a=7;w=60`}, []View{{Unit: "requests", Policy: "x", Remaining: 7, MoreAfter: m}}},
		{
			"the draft in two lines",
			[]string{`RateLimit: "b";r=1`, `RateLimit: "a";r=2`},
			[]View{{Unit: "requests", Policy: "a", Remaining: 2}, {Unit: "requests", Policy: "b", Remaining: 1}},
		},
		{"the draft without a policy", []string{`RateLimit-Policy: "a";w=1`, `RateLimit: "a";r=1`}, []View{{Unit: "requests", Policy: "a", Remaining: 1}}},
		{"the draft, one member malformed", []string{`RateLimit: "a";r=1, "b";t=1`}, nil},
		{"the draft, negative", []string{`RateLimit: "a";r=-1`}, nil},
		{"the draft, a decimal", []string{`RateLimit: "a";r=1.5`}, nil},
		{"the draft, a negative time", []string{`RateLimit: "a";r=1;t=-5`}, []View{{Unit: "requests", Policy: "a", Remaining: 1}}},
		{"the draft, a long time", []string{`RateLimit: "a";r=1;t=999999999999999`}, []View{{Unit: "requests", Policy: "a", Remaining: 1, MoreAfter: maxReset}}},
		{"the draft, a long name", []string{`RateLimit: "` + strings.Repeat("a", 257) + `";r=1`}, nil},
		{"the draft, a long unit", []string{`RateLimit-Policy: "a";q=5;qu="` + strings.Repeat("u", 65) + `"`, `RateLimit: "a";r=1`}, []View{{Unit: "requests", Policy: "a", Remaining: 1}}},
		{"an older draft", []string{`RateLimit: limit=100, remaining=50, reset=5`}, nil},
		{
			"GitHub",
			[]string{"X-RateLimit-Limit: 5000", "X-RateLimit-Remaining: 4999", "X-RateLimit-Reset: 1795003260", "X-RateLimit-Used: 1", "X-RateLimit-Resource: core"},
			[]View{{Unit: "requests", Limit: 5000, Remaining: 4999, MoreAfter: time.Minute}},
		},
		{"a reset in seconds", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 60"}, []View{{Unit: "requests", MoreAfter: m}}},
		{"a reset in years", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 99999999"}, []View{{Unit: "requests"}}},
		{"a malformed reset", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: soon"}, []View{{Unit: "requests"}}},
		{"a malformed time", []string{"anthropic-ratelimit-tokens-remaining: 0", "anthropic-ratelimit-tokens-reset: 60"}, []View{{Unit: "tokens"}}},
		{"a reset in the past", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1600000000"}, []View{{Unit: "requests"}}},
		{"a reset in milliseconds", []string{"X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1795003260000"}, []View{{Unit: "requests"}}},
		{"without X", []string{"RateLimit-Limit: 10", "RateLimit-Remaining: 3", "RateLimit-Reset: 5"}, []View{{Unit: "requests", Limit: 10, Remaining: 3, MoreAfter: 5 * s}}},
		{"Envoy", []string{`X-RateLimit-Limit: 10, 10;w=1;name="x"`, "X-RateLimit-Remaining: 9", "X-RateLimit-Reset: 1"}, []View{{Unit: "requests", Limit: 10, Remaining: 9, MoreAfter: s}}},
		{"no remainder", []string{"X-RateLimit-Limit: 5000", "X-RateLimit-Reset: 60"}, nil},
		{"a remainder with a sign", []string{"X-RateLimit-Remaining: +5"}, nil},
		{"a remainder out of range", []string{"X-RateLimit-Remaining: 9999999999999999999"}, nil},
		{"a remainder twice", []string{"X-RateLimit-Remaining: 5", "X-RateLimit-Remaining: 6"}, nil},
		{"a malformed limit", []string{"X-RateLimit-Limit: many", "X-RateLimit-Remaining: 5"}, []View{{Unit: "requests", Remaining: 5}}},
		{
			"OpenAI",
			[]string{
				"x-ratelimit-limit-requests: 60", "x-ratelimit-remaining-requests: 59", "x-ratelimit-reset-requests: 1s",
				"x-ratelimit-limit-tokens: 150000", "x-ratelimit-remaining-tokens: 149984", "x-ratelimit-reset-tokens: 6m0s",
				"x-ratelimit-limit-project-tokens: 7", "x-ratelimit-remaining-project-tokens: 7", "x-ratelimit-reset-project-tokens: 0s",
			},
			[]View{
				{Unit: "project-tokens", Limit: 7, Remaining: 7},
				{Unit: "requests", Limit: 60, Remaining: 59, FullAfter: s},
				{Unit: "tokens", Limit: 150000, Remaining: 149984, FullAfter: 6 * m},
			},
		},
		{"a short reset", []string{"x-ratelimit-remaining-tokens: 1", "x-ratelimit-reset-tokens: 120ms"}, []View{{Unit: "tokens", Remaining: 1, FullAfter: 120 * time.Millisecond}}},
		{"a reset in seconds for a unit", []string{"x-ratelimit-remaining-tokens: 1", "x-ratelimit-reset-tokens: 7.66"}, []View{{Unit: "tokens", Remaining: 1, FullAfter: 7660 * time.Millisecond}}},
		{"a negative reset", []string{"x-ratelimit-remaining-tokens: 1", "x-ratelimit-reset-tokens: -1s"}, []View{{Unit: "tokens", Remaining: 1}}},
		{"a long reset", []string{"x-ratelimit-remaining-tokens: 1", "x-ratelimit-reset-tokens: 99999h"}, []View{{Unit: "tokens", Remaining: 1}}},
		{"a long reset in seconds", []string{"x-ratelimit-remaining-tokens: 1", "x-ratelimit-reset-tokens: 99999999999"}, []View{{Unit: "tokens", Remaining: 1}}},
		{"Azure does not know", []string{"x-ratelimit-limit-requests: -1", "x-ratelimit-remaining-requests: -1", "x-ratelimit-remaining-tokens: -1"}, nil},
		{"Azure does not count", []string{"x-ratelimit-limit-requests: 0", "x-ratelimit-remaining-requests: 0", "x-ratelimit-limit-tokens: -1", "x-ratelimit-remaining-tokens: 0"}, nil},
		{"Discord's reset-after is no unit", []string{"X-RateLimit-Reset-After: 64.57"}, nil},
		{"a long unit", []string{"x-ratelimit-remaining-" + strings.Repeat("a", 65) + ": 1"}, nil},
		{"no unit", []string{"x-ratelimit-remaining-: 1", "anthropic-ratelimit--remaining: 1", "anthropic-ratelimit-remaining: 1"}, nil},
		{
			"Anthropic",
			[]string{
				"anthropic-ratelimit-requests-limit: 50", "anthropic-ratelimit-requests-remaining: 49", "anthropic-ratelimit-requests-reset: 2026-11-18T12:00:01Z",
				"anthropic-ratelimit-input-tokens-limit: 40000", "anthropic-ratelimit-input-tokens-remaining: 39000", "anthropic-ratelimit-input-tokens-reset: 2026-11-18T13:01:00+01:00",
				"anthropic-priority-input-tokens-limit: 10000", "anthropic-priority-input-tokens-remaining: 9618", "anthropic-priority-input-tokens-reset: 2026-11-18T11:59:59Z",
				"anthropic-organization-id: 7", "anthropic-other-tokens-remaining: 1",
			},
			[]View{
				{Unit: "input-tokens", Limit: 40000, Remaining: 39000, FullAfter: m},
				{Unit: "input-tokens", Policy: "priority", Limit: 10000, Remaining: 9618},
				{Unit: "requests", Limit: 50, Remaining: 49, FullAfter: s},
			},
		},
		{"another prefix", []string{"My-X-RateLimit-Remaining: 1", "Y-RateLimit-Remaining: 1"}, nil},
		{"from a cache", []string{"Age: 1", "X-RateLimit-Remaining: 1", `RateLimit: "a";r=1`}, nil},
		{"through a cache", []string{"Age: 0", "X-RateLimit-Remaining: 1"}, []View{{Unit: "requests", Remaining: 1}}},
		{"a malformed age", []string{"Age: old", "X-RateLimit-Remaining: 1"}, []View{{Unit: "requests", Remaining: 1}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := ParseView(header(tt.lines...), viewTime); !slices.Equal(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestParseViewIsBounded(t *testing.T) {
	h := make(http.Header)
	for i := range 100 {
		h.Set("x-ratelimit-remaining-"+strings.Repeat("a", i), "1")
	}
	if got := ParseView(h, viewTime); len(got) != maxViews {
		t.Errorf("%d views", len(got))
	}
	list := strings.Repeat(`"a";r=1,`, maxViews) + `"a";r=1`
	if got := ParseView(header("RateLimit: "+list), viewTime); got != nil {
		t.Errorf("%d views of a long list", len(got))
	}
	h = http.Header{"x-ratelimit-remaining": {"1"}, "X-Ratelimit-Remaining": {"2"}}
	if got := ParseView(h, viewTime); len(got) != 1 || got[0].Remaining != 2 {
		t.Errorf("got %+v", got)
	}
}

func TestParseList(t *testing.T) {
	good := []string{
		`a`, `"a"`, `"a", b`, `a ,	b`, ` a `, `"\"\\"`, `a;b`, `a;b;c=1`, `a; b=1`, `a;b=?0`, `a;b=?1`, `a;b=-1`, `a;b=1.5`, `a;b=999999999999999`,
		`a;b=:aGk=:`, `a;b=::`, `a;b=@12`, `a;b=%"f%c3%bc"`, `*a;*b=*`, `a/b:c`, `a;b=1;b=2`,
	}
	for _, text := range good {
		if _, ok := parseList(text); !ok {
			t.Errorf("%s is refused", text)
		}
	}
	bad := []string{
		``, ` `, `,`, `a,`, `,a`, `a b`, `1`, `(a)`, `"a`, `"a\`, `"\a"`, "\"\x7f\"", `"ü"`, `a;`, `a;B=1`, `a;_=1`, `a;b=`, `a;b=-`, `a;b=1.`, `a;b=1.2345`,
		`a;b=1234567890123456`, `a;b=1234567890123.1`, `a;b=.5`, `a;b=:a`, `a;b=:%:`, `a;b=?2`, `a;b=?`, `a;b=@`, `a;b=@1.5`, `a;b=%a`, `a;b=%"a`, `a;b=(1)`, `a=1`, `é`,
	}
	for _, text := range bad {
		if list, ok := parseList(text); ok {
			t.Errorf("%s: %v", text, list)
		}
	}
	list, _ := parseList(`"a \"b\"";x=1;y="z";x=2, tok;q`)
	if len(list) != 2 || list[0].name != `a "b"` || list[0].params["x"] != int64(2) || list[0].params["y"] != "z" || list[1].name != "tok" {
		t.Errorf("got %+v", list)
	}
}

func TestRetryAfter(t *testing.T) {
	const s = time.Second
	tests := []struct {
		name  string
		lines []string
		want  time.Duration
		ok    bool
	}{
		{"nothing", nil, 0, false},
		{"seconds", []string{"Retry-After: 30"}, 30 * s, true},
		{"zero", []string{"Retry-After: 0"}, 0, true},
		{"a date", []string{"Retry-After: Wed, 18 Nov 2026 12:01:00 GMT"}, 60 * s, true},
		{"a date in the past", []string{"Retry-After: Wed, 18 Nov 2026 11:59:00 GMT"}, 0, true},
		{"a date far away", []string{"Retry-After: Wed, 18 Nov 2099 12:00:00 GMT"}, maxReset, true},
		{"weeks", []string{"Retry-After: 2592000"}, 30 * 24 * time.Hour, true},
		{"too long", []string{"Retry-After: 99999999999999999999999"}, maxReset, true},
		{"negative", []string{"Retry-After: -1"}, 0, false},
		{"a fraction", []string{"Retry-After: 1.5"}, 1500 * time.Millisecond, true},
		{"a list", []string{"Retry-After: 5, 60, 7"}, 60 * s, true},
		{"dates", []string{"Retry-After: 5", "Retry-After: Wed, 18 Nov 2026 12:01:00 GMT"}, 60 * s, true},
		{"one can be read", []string{"Retry-After: soon, 5"}, 5 * s, true},
		{"longer than milliseconds", []string{"retry-after-ms: 0", "Retry-After: 60"}, 60 * s, true},
		{"shorter than milliseconds", []string{"retry-after-ms: 61000", "Retry-After: 60"}, 61 * s, true},
		{"a unit", []string{"Retry-After: 5s"}, 0, false},
		{"twice", []string{"Retry-After: 5", "Retry-After: 6"}, 6 * s, true},
		{"milliseconds", []string{"retry-after-ms: 1500"}, 1500 * time.Millisecond, true},
		{"a fraction of a millisecond", []string{"retry-after-ms: 20.5"}, 20500 * time.Microsecond, true},
		{"below a nanosecond", []string{"retry-after-ms: 0.0000001"}, 1, true},
		{"zeros below a nanosecond", []string{"retry-after-ms: 1.000000000"}, time.Millisecond, true},
		{"milliseconds are finer", []string{"retry-after-ms: 20", "Retry-After: 1"}, 20 * time.Millisecond, true},
		{"malformed milliseconds", []string{"retry-after-ms: x", "Retry-After: 1"}, s, true},
		{"no digits after the point", []string{"retry-after-ms: 1."}, 0, false},
		{"milliseconds too long", []string{"retry-after-ms: 999999999999999999"}, maxReset, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := RetryAfter(header(tt.lines...), viewTime)
			if got != tt.want || ok != tt.ok {
				t.Errorf("got %v, %v; want %v, %v", got, ok, tt.want, tt.ok)
			}
		})
	}
}

func TestViewWait(t *testing.T) {
	const s = time.Second
	bucket := View{Limit: 1000, Remaining: 400, FullAfter: 36 * s}
	window := View{Limit: 1000, Remaining: 400, MoreAfter: 36 * s}
	tests := []struct {
		name string
		v    View
		cost int64
		want time.Duration
	}{
		{"fits", bucket, 400, 0},
		{"nothing", View{}, 0, 0},
		{"negative", bucket, -1, 0},
		{"one more", bucket, 401, 60 * time.Millisecond},
		{"a hundred more", bucket, 500, 6 * s},
		{"all", bucket, 1000, 36 * s},
		{"never", bucket, 1001, weir.Never},
		{"rounded up", View{Limit: 3, FullAfter: 10}, 1, 4},
		{"nothing remains", View{Limit: 60, FullAfter: 60 * s}, 1, s},
		{"a window", window, 401, 36 * s},
		{"a window, never", window, 1001, weir.Never},
		{"no limit", View{Remaining: 1, FullAfter: 5 * s}, 2, 5 * s},
		{"no reset", View{Limit: 10, Remaining: 1}, 2, 0},
		{"more than the limit remain", View{Limit: 10, Remaining: 20, FullAfter: s}, 15, 0},
		{"a negative remainder", View{Limit: 10, Remaining: math.MinInt64, FullAfter: 10 * s}, 1, s},
		{"large", View{Limit: math.MaxInt64, FullAfter: maxReset}, math.MaxInt64, maxReset},
		{"half of large", View{Limit: math.MaxInt64 - 1, FullAfter: maxReset}, math.MaxInt64 / 2, maxReset / 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.v.Wait(tt.cost); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestViewWaitIsExact compares with integers of any size.
func TestViewWaitIsExact(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 10_000 {
		limit := 2 + r.Int64N(1<<r.Int64N(62))
		v := View{Limit: limit, Remaining: r.Int64N(limit - 1), FullAfter: 1 + time.Duration(r.Int64N(int64(maxReset)))}
		cost := v.Remaining + 1 + r.Int64N(limit-v.Remaining)
		c := big.NewInt(limit - v.Remaining)
		want := new(big.Int).Mul(big.NewInt(cost-v.Remaining), big.NewInt(int64(v.FullAfter)))
		want.Add(want, c).Sub(want, big.NewInt(1)).Div(want, c)
		if got := v.Wait(cost); int64(got) != want.Int64() {
			t.Fatalf("%+v, cost %d: %d, want %v", v, cost, got, want)
		}
	}
}

func TestViewExcess(t *testing.T) {
	tests := []struct{ provider, local, want int64 }{
		{100, 100, 0},
		{100, 130, 30},
		{130, 100, 0},
		{0, 50, 50},
		{-5, 50, 50},
		{5, -50, 0},
		{5, math.MinInt64, 0},
		{math.MinInt64, math.MaxInt64, math.MaxInt64},
	}
	for _, tt := range tests {
		if got := (View{Remaining: tt.provider}).Excess(tt.local); got != tt.want {
			t.Errorf("%d at the provider, %d here: %d, want %d", tt.provider, tt.local, got, tt.want)
		}
	}
}
