package redisstore

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/internal/storeapi"
)

// Levels start like those in memory, also if half of a burst is no whole number of the parts that the script counts.
func TestInitialLevels(t *testing.T) {
	s := open(t, Config{Redis: server(redistest.Start(t).Addr()), Now: still})
	p := newPolicy(t, "p", weir.Limit{
		Rate: 4, Per: weir.Every(142_857 * time.Microsecond), Burst: 2, Initial: weir.Filled(0.5),
		Classes: weir.ClassesOf(weir.Class{Name: "fast", Guaranteed: 2, Burst: 1}, weir.Class{Name: "slow", Guaranteed: 1, Burst: 1}),
	})
	for _, name := range p.ClassNames() {
		class := weir.Must(p.Class(name))
		got, err := weir.Peek(t.Context(), s, class, "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		l := algo.NewLedger(p.Compiled().Rules, s.epoch*1000)
		l.SetClass(name)
		want := storeapi.Decision(l.Peek(int64(still()), 1), still())
		want.RetryAfter, want.ResetAfter = upToMicros(want.RetryAfter), upToMicros(want.ResetAfter)
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, show(got), show(want))
		}
	}
}
