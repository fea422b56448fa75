package budget

import (
	"log/slog"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
)

// threeClasses is a budget that is never used up: two horizons, and three classes.
func threeClasses() Config {
	return Config{
		Name: "main", Logger: slog.New(slog.DiscardHandler),
		Limits: []ruleset.Limit{
			{Limit: weir.PerSecond(100_000_000)},
			{Limit: weir.Limit{Name: "month", Rate: 1_000_000_000_000, Per: weir.Calendar(weir.Month, nil)}},
		},
		Classes: []Class{{Name: "realtime", Share: 50}, {Name: "interactive", Share: 30}, {Name: "backfill", Share: 20}},
	}
}

// BenchmarkReserveSettle is a reservation of ten units of which six are used, in memory.
func BenchmarkReserveSettle(b *testing.B) {
	a, err := New(weir.Must(memstore.New(memstore.Config{})), threeClasses())
	if err != nil {
		b.Fatal(err)
	}
	c, err := a.Controller("interactive")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		r, err := c.Reserve(b.Context(), time.Minute, Units(10))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := r.Settle(b.Context(), Units(6)); err != nil {
			b.Fatal(err)
		}
	}
}
