package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/faults/internal/history"
	"github.com/weirlimit/weir/faults/internal/rig"
	"github.com/weirlimit/weir/internal/redistest"
)

// backAfterCuts is how soon after the last cut everything must be exact again.
const backAfterCuts = 300 * time.Millisecond

// unknownUnits is how many units daemons have granted without knowing whether Redis has
// charged them.
const unknownUnits = "weir_store_unknown_units_total"

// F23: all connections to Redis are cut again and again, so that no outage lasts, and many
// calls end without an answer. A call that had no answer is decided alone and neither sent
// nor charged again, so each may add what it granted to the excess: these units are U.
func TestCuts(t *testing.T) {
	for _, mode := range []string{"exact", "async"} {
		t.Run(mode, func(t *testing.T) { cuts(t, mode) })
	}
}

func cuts(t *testing.T, mode string) {
	tr := try(t, map[string]string{"exact": "F23", "async": "F23b"}[mode],
		fmt.Sprintf("all connections to Redis cut every 100 ms for 30 s, consistency %s", mode),
		"E ≤ 2B + U, U being the units that the daemons say they granted under unknown outcomes; no error reaches a caller; exact again ≤ 300 ms after the last cut")
	server := redistest.Start(t)
	relay := rig.NewRelay(t, server.Addr())
	fleet := tr.fleet(3, "--redis", relay.Addr(), "--consistency", mode)
	fleet.AwaitShared(patience)
	load := fleet.StartLoad(rig.Mix{Rate: pick(300, 200), Hot: 1, Cold: 1, HotShare: 1}) // one key, so that U is its own
	load.For(pick(5*time.Second, time.Second))                                           // the hot keys have no burst left
	fault := load.Now()
	cuts := 0
	for end := fault + pick(30*time.Second, 3*time.Second); load.Now() < end; {
		cuts += relay.Reset(1)
		load.For(100 * time.Millisecond)
	}
	cuts += relay.Reset(1)
	mended := load.Now()
	back := fleet.AwaitShared(patience)
	load.For(pick(5*time.Second, 500*time.Millisecond))
	list := load.Stop()
	fleet.AwaitShared(patience)
	unknown := fleet.Total(unknownUnits)
	tier := fleet.Stop()

	tr.note("connections cut", "%d", cuts)
	tr.note("U", "%.0f units", unknown)
	tr.judge(list, 2*B+unknown, "2B + U")
	tr.note("admitted", "%d", admissions(list))
	tr.note("decided alone", "%d", tier.Decisions.Fallback)
	tr.note("calls with an unknown outcome", "%d, and %d units flushed without a reply", tier.Unknown, tier.Lost)
	tr.within("exact again after", back, backAfterCuts)
	tr.stalled(list)
	tr.note("p99 meanwhile", "%s", brief(history.Percentile(history.Between(list, fault, mended), 0.99)))
	tr.note("longest", "%s", brief(history.Percentile(history.Between(list, fault, mended), 1)))
	if cuts == 0 {
		tr.Error("no connection was cut: nothing was tried")
	}
}

// admissions counts the units that were admitted.
func admissions(list []history.Decision) (n int) {
	for _, d := range list {
		if d.Allowed {
			n++
		}
	}
	return n
}
