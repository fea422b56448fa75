package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// Three units per 10 ms come back after 3,333 µs and a third each: before that third is
// over, nothing is admitted.
func TestThirdsOfAMicrosecond(t *testing.T) {
	now := weir.Instant(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	s := open(t, Config{Redis: server(redistest.Start(t).Addr()), Now: func() weir.Instant { return now }})
	p := newPolicy(t, "thirds", weir.Limit{Rate: 3, Per: weir.Every(10 * time.Millisecond), Burst: 1})
	for i, step := range []struct {
		after   time.Duration
		allowed bool
		retry   time.Duration
	}{
		{0, true, 0},
		{0, false, 3334 * time.Microsecond},
		{3333 * time.Microsecond, false, time.Microsecond},
		{time.Microsecond, true, 0},
		{3333 * time.Microsecond, false, time.Microsecond},
		{time.Microsecond, true, 0},
	} {
		now = now.Add(step.after)
		d, err := s.Take(context.Background(), p, "k", 1)
		if err != nil || d.Allowed != step.allowed || d.RetryAfter != step.retry {
			t.Fatalf("step %d: %s, error %v, want allowed %t, retry after %v", i, show(d), err, step.allowed, step.retry)
		}
	}
}
