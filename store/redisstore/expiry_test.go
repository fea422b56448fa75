package redisstore

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// A row is there until it is as if unused, and not much longer, although Redis is not
// sent the expiry with every write. Other operations, by other scripts, come in between.
func TestRowsOutliveTheirUse(t *testing.T) {
	redis := redistest.Start(t)
	s := open(t, Config{Redis: server(redis.Addr())})
	for name, l := range map[string]weir.Limit{
		"second": {Rate: 3600, Per: weir.Every(time.Hour)},
		"third":  {Rate: 3, Per: weir.Every(time.Second), Burst: 1000},
		"minute": {Rate: 1000, Per: weir.Every(1000 * time.Minute)},
		"class":  {Rate: 3600, Per: weir.Every(time.Hour), Classes: weir.ClassesOf(weir.Class{Name: "a", Guaranteed: 3600})},
	} {
		p := newPolicy(t, name, l)
		unit := l.Per.Duration() / time.Duration(l.Rate)
		for i := range 150 {
			began := time.Now()
			d, err := takeBy(s, i%3 == 0, p)
			if err != nil || !d.Allowed {
				t.Fatalf("%s: take %d: %s, error %v", name, i, show(d), err)
			}
			ms, err := strconv.ParseInt(redis.MustDo("PTTL", rowKey(s.rowPrefix(name), "k")).Text, 10, 64)
			kept, spent := time.Duration(ms)*time.Millisecond, time.Since(began)
			if err != nil || kept+spent < d.ResetAfter || kept > d.ResetAfter+2*time.Second+17*unit {
				t.Fatalf("%s: after take %d the row is kept for %v, and in use for %v, error %v", name, i, kept, d.ResetAfter, err)
			}
			if i%20 == 19 {
				undo(t, s, p, "k", 1, s.nowMicros())
			}
		}
	}
}

// takeBy takes a unit by itself, or together with one from another row.
func takeBy(s *Store, batch bool, p *weir.Policy) (weir.Decision, error) {
	if !batch {
		return s.Take(context.Background(), p, "k", 1)
	}
	b := weir.Batch{Op: weir.TakeAll, Charges: []weir.Charge{{Policy: p, Key: "k", Cost: 1}, {Policy: p, Key: "other", Cost: 1}}}
	err := s.Do(context.Background(), &b)
	return b.Decisions[0], err
}
