package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// A batch whose charges wait for hundreds of different days is answered: exactly for the first ones, and for the
// others as if nothing of the day was missing.
func TestManyLaterWindows(t *testing.T) {
	s := open(t, Config{Redis: server(redistest.Start(t).Addr()), Now: still})
	const day, n = 24 * time.Hour, 600
	p := newPolicy(t, "p",
		weir.Limit{Name: "long", Rate: 1, Per: weir.Every(day), Classes: weir.ClassesOf(weir.Class{Name: "a", Guaranteed: 1})},
		weir.Limit{Name: "day", Rate: 2, Per: weir.Calendar(weir.Day, nil), Pace: "a"})
	used, peeked := weir.Batch{Op: weir.DebitEach}, weir.Batch{Op: weir.PeekEach}
	for i := range int64(n) {
		used.Charges = append(used.Charges, weir.Charge{Policy: p, Key: fmt.Sprint(i), Cost: i + 1})
		peeked.Charges = append(peeked.Charges, weir.Charge{Policy: p, Key: fmt.Sprint(i), Cost: 1})
	}
	do(t, s, &used)
	toNoon := 12*time.Hour - time.Duration(still())%day
	for i, d := range do(t, s, &peeked).Decisions {
		comes := time.Duration(i+1) * day
		if d.Allowed || d.RetryAfter != comes+toNoon && (i < n/2 || d.RetryAfter != comes) {
			t.Errorf("day %d: %s, want to wait %v, until there is half of the day's units", i+1, show(d), comes+toNoon)
		}
	}
}

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
