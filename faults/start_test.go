package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirlimit/weir/faults/internal/history"
	"github.com/weirlimit/weir/faults/internal/rig"
	"github.com/weirlimit/weir/internal/redistest"
)

// foundWithin is how soon daemons that were started without Redis decide by it: the longest time
// between two attempts to connect, an attempt, and the longest time between two probes.
const foundWithin = 2 * time.Second

// F25: daemons start while Redis is down. They decide by on_error from the first call, with the
// share of each known from the configuration, since nobody can count them.
func TestStartedWithoutRedis(t *testing.T) {
	tr := try(t, "F25", "Redis down when three daemons start (`nodes: 3`), and for 5 s of load; then started",
		"they start degraded, and readiness and metrics say so; E ≤ 2B; every call has a decision, p99 ≤ 5 ms; decided by Redis ≤ 2 s after PONG")
	file := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(file, []byte("store:\n  redis:\n    nodes: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := redistest.Start(t)
	server.Stop()
	begun := time.Now()
	fleet := tr.fleet(3, "--config", file, "--redis", server.Addr())
	tr.note("three daemons, one after the other, listen after", "%s", brief(time.Since(begun)))
	degraded := countReady(tr, fleet, "ready, degraded: the store is unavailable\n")
	tr.atLeast("ready, degraded", float64(degraded), 3, "all")
	tr.atLeast("degraded by metrics", fleet.Total("weir_degraded"), 3, "all")

	load := fleet.StartLoad(mix())
	load.For(pick(5*time.Second, time.Second))
	server.Restart()
	mended := time.Now()
	back := fleet.AwaitAvailable(mended, patience)
	rig.Await(t, "all daemons to be ready and not degraded", patience, func() error {
		if n := countReady(tr, fleet, "ready\n"); n < 3 {
			return fmt.Errorf("%d of 3 are", n)
		}
		return nil
	})
	load.For(pick(5*time.Second, 500*time.Millisecond))
	fleet.AwaitShared(patience)
	list := load.Stop()
	tr.atMost("degraded by metrics then", fleet.Total("weir_degraded"), 0, "0")
	tr.atMost("units that were admitted alone and not charged to Redis", fleet.Total("weir_owed_units"), 0, "0")
	tier := fleet.Stop()

	tr.judge(list, 2*B, "2B")
	tr.note("decided alone", "%d", tier.Decisions.Fallback)
	tr.atLeast("decided by Redis", float64(tier.Decisions.Store), 1, "1")
	tr.stalled(list)
	tr.within("p99 without Redis", history.Percentile(history.Between(list, 0, load.At(mended)), 0.99), waitAfter)
	tr.within("by Redis after", max(0, back.Sub(mended)), foundWithin)
}

// countReady returns how many daemons answer GET /readyz with 200 and a text.
func countReady(tr *trial, fleet *rig.Fleet, text string) (n int) {
	tr.Helper()
	for i := range fleet.Daemons {
		got, err := fleet.Get(i, "/readyz")
		if err != nil {
			tr.Fatalf("a daemon is not ready: %v", err)
		}
		if got == text {
			n++
		}
	}
	return n
}
