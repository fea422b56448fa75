package weirhttp

import (
	"encoding/json"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

func TestDeniedBodies(t *testing.T) {
	const draft = "https://iana.org/assignments/http-problem-types#"
	tests := []struct {
		name     string
		violated string
		d        weir.Decision
		want     string
	}{
		{
			"exhausted", "api.daily",
			weir.Decision{Reason: weir.Exhausted, Limit: 1000, RetryAfter: 250 * time.Millisecond},
			`{"type":"` + draft + `quota-exceeded","title":"Quota exceeded","status":429,"detail":"limit api.daily of policy api is used up; retry after 250ms","violated-policies":["api.daily"]}`,
		},
		{
			"exhausted, the main limit", "api",
			weir.Decision{Reason: weir.Exhausted, RetryAfter: time.Second + 1},
			`{"type":"` + draft + `quota-exceeded","title":"Quota exceeded","status":429,"detail":"policy api is used up; retry after 1.001s","violated-policies":["api"]}`,
		},
		{
			"exhausted, no name", "",
			weir.Decision{Reason: weir.Exhausted},
			`{"type":"` + draft + `quota-exceeded","title":"Quota exceeded","status":429,"detail":"policy api is used up; retry after 1ms"}`,
		},
		{
			"exhausted for long", "",
			weir.Decision{Reason: weir.Exhausted, RetryAfter: weir.Never - 1},
			`{"type":"` + draft + `quota-exceeded","title":"Quota exceeded","status":429,"detail":"policy api is used up; retry after 2562047h47m16.854s"}`,
		},
		{
			"exhausted for good", "",
			weir.Decision{Reason: weir.Exhausted, RetryAfter: weir.Never},
			`{"type":"` + draft + `quota-exceeded","title":"Quota exceeded","status":429,"detail":"policy api is used up; waiting cannot help"}`,
		},
		{
			"too costly", "api.daily",
			weir.Decision{Reason: weir.TooCostly, Limit: 1000, RetryAfter: weir.Never},
			`{"type":"` + draft + `quota-exceeded","title":"Quota exceeded","status":429,"detail":"the cost is more than limit api.daily of policy api ever admits, which is 1000; waiting cannot help","violated-policies":["api.daily"]}`,
		},
		{
			"queue full", "api",
			weir.Decision{Reason: weir.QueueFull, RetryAfter: time.Second},
			`{"type":"` + draft + `quota-exceeded","title":"Quota exceeded","status":429,"detail":"too many are waiting for policy api; retry after 1s","violated-policies":["api"]}`,
		},
		{
			"too late", "api",
			weir.Decision{Reason: weir.TooLate, RetryAfter: time.Minute},
			`{"type":"` + draft + `quota-exceeded","title":"Quota exceeded","status":429,"detail":"policy api has no room before the deadline; retry after 1m0s","violated-policies":["api"]}`,
		},
		{
			"part of a batch", "",
			weir.Decision{},
			`{"type":"` + draft + `quota-exceeded","title":"Quota exceeded","status":429,"detail":"not charged to policy api: another charge of the batch was refused"}`,
		},
		{
			"store down", "api.daily",
			weir.Decision{Reason: weir.StoreDown, RetryAfter: time.Second},
			`{"type":"` + draft + `temporary-reduced-capacity","title":"Temporary reduced capacity","status":503,"detail":"limit api.daily of policy api cannot be counted at the moment; retry after 1s","violated-policies":["api.daily"]}`,
		},
		{
			"blocked", "api.daily",
			weir.Decision{Reason: weir.Blocked, RetryAfter: time.Hour},
			`{"type":"urn:weir:blocked","title":"Blocked","status":403,"detail":"this caller is blocked by policy api; retry after 1h0m0s"}`,
		},
		{
			"invalid", "api",
			weir.Decision{Reason: weir.Invalid, RetryAfter: weir.Never},
			`{"type":"about:blank","title":"Bad Request","status":400,"detail":"the cost or the time to live is out of range for policy api, or the policy must be reserved from"}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			p := Denied("api", tt.violated, tt.d)
			p.Write(w)
			if got := w.Body.String(); got != tt.want+"\n" {
				t.Errorf("got  %swant %s", got, tt.want)
			}
			if w.Code != p.Status {
				t.Errorf("status %d, in the body %d", w.Code, p.Status)
			}
			if got := fieldsOf(w.Header()); got != "Cache-Control: no-store | Content-Type: application/problem+json" {
				t.Error(got)
			}
		})
	}
}

func TestProblemDefaults(t *testing.T) {
	tests := []struct {
		p    Problem
		want string
	}{
		{Problem{}, `{"type":"about:blank","title":"Internal Server Error","status":500}`},
		{Problem{Status: 404}, `{"type":"about:blank","title":"Not Found","status":404}`},
		{Problem{Status: 101}, `{"type":"about:blank","title":"Internal Server Error","status":500}`},
		{Problem{Status: 1000}, `{"type":"about:blank","title":"Internal Server Error","status":500}`},
		{Problem{Status: 200, Title: "t"}, `{"type":"about:blank","title":"t","status":500}`},
	}
	for _, tt := range tests {
		w := httptest.NewRecorder()
		tt.p.Write(w)
		if got := strings.TrimSuffix(w.Body.String(), "\n"); got != tt.want {
			t.Errorf("%+v\ngot  %s\nwant %s", tt.p, got, tt.want)
		}
	}
}

// TestProblemsEscape puts what breaks texts into every member.
func TestProblemsEscape(t *testing.T) {
	const bad = "a\r\n\x00\"\\</script>\u2028\xff"
	const shown = "a\r\n\x00\"\\</script>\u2028\ufffd"
	w := httptest.NewRecorder()
	Problem{Type: bad, Title: bad, Status: 429, Detail: bad, Violated: []string{bad, bad}}.Write(w)
	for _, b := range w.Body.Bytes()[:w.Body.Len()-1] {
		if b < ' ' || b == '<' {
			t.Errorf("the body has a raw %q: %s", b, w.Body)
		}
	}
	var got Problem
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := Problem{Type: shown, Title: shown, Status: 429, Detail: shown, Violated: []string{shown, shown}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
