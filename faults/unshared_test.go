package faults

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/faults/internal/history"
	"github.com/weirlimit/weir/faults/internal/rig"
)

// Daemons that share nothing give each key as many bursts as there are daemons. If the
// client and the checker did not see that, the other tests could not fail.
func TestUnsharedIsSeen(t *testing.T) {
	t.Parallel()
	fleet := rig.StartFleet(t, program, 3)
	load := fleet.StartLoad(rig.Mix{Rate: 600, Hot: 1, Cold: 1, HotShare: 1})
	load.For(time.Second)
	list := load.Stop()
	if n := len(history.Failures(list)); n > 0 {
		t.Errorf("%d of %d calls had no decision", n, len(list))
	}
	_, excess := history.Worst(history.Excesses(list, limit))
	t.Logf("three daemons without a store exceed the limit by %.1f", excess)
	if excess < B {
		t.Errorf("the excess is %.1f, want at least one more burst", excess)
	}
}
