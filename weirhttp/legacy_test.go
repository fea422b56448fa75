package weirhttp

import (
	"encoding/json"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

func TestLegacyFields(t *testing.T) {
	now := time.Unix(1_800_000_000, 900_000_000).In(time.FixedZone("X", -7200))
	admitted := weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: 100, Remaining: 58, ResetAfter: 200 * time.Millisecond}
	refused := weir.Decision{Reason: weir.Exhausted, Limit: 100, RetryAfter: time.Second, ResetAfter: time.Minute}
	tests := []struct {
		name  string
		style Legacy
		d     weir.Decision
		want  string
	}{
		{"off", LegacyOff, admitted, ""},
		{"unknown", Legacy(9), admitted, ""},
		{"delta", LegacyDelta, admitted, "X-Ratelimit-Limit: 100 | X-Ratelimit-Remaining: 58 | X-Ratelimit-Reset: 1"},
		{"delta, refused", LegacyDelta, refused, "X-Ratelimit-Limit: 100 | X-Ratelimit-Remaining: 0 | X-Ratelimit-Reset: 60"},
		{"delta, unused", LegacyDelta, weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: 9, Remaining: 9}, "X-Ratelimit-Limit: 9 | X-Ratelimit-Remaining: 9 | X-Ratelimit-Reset: 0"},
		{"delta, refused, never 0", LegacyDelta, weir.Decision{Limit: 9}, "X-Ratelimit-Limit: 9 | X-Ratelimit-Remaining: 0 | X-Ratelimit-Reset: 1"},
		{"delta, retry is later", LegacyDelta, weir.Decision{Limit: 9, RetryAfter: 3 * time.Second, ResetAfter: time.Second}, "X-Ratelimit-Limit: 9 | X-Ratelimit-Remaining: 0 | X-Ratelimit-Reset: 3"},
		{"delta, waiting cannot help", LegacyDelta, weir.Decision{Limit: 9, Remaining: 8, RetryAfter: weir.Never, ResetAfter: 2 * time.Second}, "X-Ratelimit-Limit: 9 | X-Ratelimit-Remaining: 8 | X-Ratelimit-Reset: 2"},
		{"delta, nobody knows", LegacyDelta, weir.Decision{Limit: 9, RetryAfter: 1, ResetAfter: weir.Never}, "X-Ratelimit-Limit: 9 | X-Ratelimit-Remaining: 0"},
		{"github", LegacyGitHub, admitted, "X-Ratelimit-Limit: 100 | X-Ratelimit-Remaining: 58 | X-Ratelimit-Reset: 1800000002 | X-Ratelimit-Used: 42"},
		{
			"github, a whole second", LegacyGitHub,
			weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: 1, ResetAfter: 100 * time.Millisecond},
			"X-Ratelimit-Limit: 1 | X-Ratelimit-Remaining: 0 | X-Ratelimit-Reset: 1800000001 | X-Ratelimit-Used: 1",
		},
		{"github, in debt", LegacyGitHub, weir.Decision{Limit: 5, Remaining: -7, ResetAfter: weir.Never}, "X-Ratelimit-Limit: 5 | X-Ratelimit-Remaining: 0 | X-Ratelimit-Used: 5"},
		{"github, more than all", LegacyGitHub, weir.Decision{Limit: 5, Remaining: 7, ResetAfter: weir.Never}, "X-Ratelimit-Limit: 5 | X-Ratelimit-Remaining: 7 | X-Ratelimit-Used: 0"},
		{
			"github, greatest", LegacyGitHub,
			weir.Decision{Limit: math.MaxInt64, RetryAfter: weir.Never - 1, ResetAfter: weir.Never - 1},
			"X-Ratelimit-Limit: 999999999999999 | X-Ratelimit-Remaining: 0 | X-Ratelimit-Reset: 11023372038 | X-Ratelimit-Used: 999999999999999",
		},
		{"not counted", LegacyGitHub, weir.Decision{Reason: weir.StoreDown, RetryAfter: time.Second}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{}
			tt.style.Set(h, tt.d, now)
			if got := fieldsOf(h); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestLegacyText(t *testing.T) {
	for _, l := range []Legacy{LegacyOff, LegacyGitHub, LegacyDelta} {
		text, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		got := Legacy(77)
		if err := json.Unmarshal(text, &got); err != nil || got != l {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	var l Legacy
	err := l.UnmarshalText([]byte("GitHub"))
	want := `weirhttp: no style of legacy headers is called "GitHub"; there are ["off" "github" "delta"]`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if got := Legacy(9).String(); got != "legacy(9)" {
		t.Errorf("got %s", got)
	}
}
