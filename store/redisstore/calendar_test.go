package redisstore

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// Months differ in length. A row that is reset under other limits, after its month has
// ended, does not take the next one for as long.
func TestResetAfterTheMonth(t *testing.T) {
	now := weir.Instant(time.Date(2026, 5, 4, 5, 6, 7, 0, time.UTC).UnixNano())
	s := open(t, Config{Redis: server(redistest.Start(t).Addr()), Now: func() weir.Instant { return now }})
	month := weir.Calendar(weir.Month, nil)
	p := newPolicy(t, "monthly", weir.Limit{Rate: 2, Per: month})
	q := newPolicy(t, "monthly", weir.Limit{Rate: 1, Per: month})
	take := func(want time.Duration) {
		t.Helper()
		d, err := s.Take(t.Context(), p, "k", 1)
		if err != nil || !d.Allowed || d.ResetAfter != want {
			t.Errorf("%+v, %v; want it reset after %v", d, err, want)
		}
	}
	left := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC).Sub(time.Date(2026, 5, 4, 5, 6, 7, 0, time.UTC))
	take(left)
	now = now.Add(left)
	if err := weir.Reset(t.Context(), s, q, "k"); err != nil {
		t.Fatal(err)
	}
	take(30 * 24 * time.Hour)
}
