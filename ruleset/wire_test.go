package ruleset

import (
	"math"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

func TestMillis(t *testing.T) {
	for _, tt := range []struct {
		d    time.Duration
		want int64
	}{
		{0, 0},
		{1, 1},
		{time.Millisecond, 1},
		{time.Millisecond + 1, 2},
		{weir.Never, -1},
		{time.Second, 1000},
		{weir.Never - 1, math.MaxInt64/1_000_000 + 1},
	} {
		if got := Millis(tt.d); got != tt.want {
			t.Errorf("%v: %d, want %d", tt.d, got, tt.want)
		}
	}
}

func TestRetryMillis(t *testing.T) {
	for _, tt := range []struct {
		d    weir.Decision
		want int64
	}{
		{weir.Decision{Allowed: true, Reason: weir.Admitted, RetryAfter: time.Second}, 0},
		{weir.Decision{Reason: weir.NotCharged, RetryAfter: time.Second}, 0}, // of a batch that another refused
		{weir.Decision{Reason: weir.Exhausted, RetryAfter: 1}, 1},
		{weir.Decision{Reason: weir.QueueFull}, 1},
		{weir.Decision{Reason: weir.TooCostly, RetryAfter: weir.Never}, -1},
		{weir.Decision{Reason: weir.Exhausted, RetryAfter: 1500 * time.Millisecond}, 1500},
	} {
		if got := (&Verdict{Decision: tt.d}).RetryMillis(); got != tt.want {
			t.Errorf("%+v: %d, want %d", tt.d, got, tt.want)
		}
	}
}
