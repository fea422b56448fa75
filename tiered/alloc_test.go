package tiered_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/tiered"
)

// timely is a store that ends its calls by itself.
type timely struct{ *memstore.Table }

func (timely) Timeout() time.Duration { return time.Millisecond }

// No decision allocates memory: neither by a cached denial, a lease or an allowance, nor by a
// store that does not allocate.
func TestTakeDoesNotAllocate(t *testing.T) {
	plenty := weir.Limit{Rate: 100_000_000, Per: weir.Every(time.Second)}
	scarce := weir.Limit{Rate: 1, Per: weir.Every(time.Hour)}
	for _, tt := range []struct {
		name  string
		mode  tiered.Mode
		limit weir.Limit
	}{
		{"denied", tiered.Exact, scarce},
		{"exact", tiered.Exact, plenty},
		{"leased", tiered.Leased, plenty},
		{"async", tiered.Async, plenty},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newTier(t, tiered.Config{Store: timely{newTable(t)}, Mode: tt.mode, MaxDeny: time.Hour})
			p := newPolicy(t, tt.limit)
			takeMany(t, l, p, "k", 100)
			if n := testing.AllocsPerRun(10_000, func() { _, _ = l.Take(ctx, p, "k", 1) }); n > 0.01 {
				t.Errorf("%v allocations per decision", n)
			}
		})
	}
}
