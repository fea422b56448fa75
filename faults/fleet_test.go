package faults

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/faults/internal/history"
	"github.com/weirlimit/weir/internal/redistest"
)

// leaseTTL is how long a daemon's leases last.
const leaseTTL = 5 * time.Second

// F11: a daemon crashes with units that it has leased. They are forfeited: no other daemon
// gets them, so nothing is exceeded, and when they have expired the others have all of
// the limit again.
func TestDaemonKilled(t *testing.T) {
	tr := try(t, "F11", "one daemon of three killed (SIGKILL), consistency leased",
		"E ≤ 0; the others are not affected; when its leases have expired, the others admit the whole rate")
	server := redistest.Start(t)
	fleet := tr.fleet(3, "--redis", server.Addr(), "--consistency", "leased")
	load := fleet.StartLoad(mix())
	load.For(pick(5*time.Second, time.Second))
	fault := load.Now()
	fleet.Daemons[0].Kill()
	load.For(leaseTTL)
	expired := load.Now()
	load.For(pick(5*time.Second, 2*time.Second))
	end := load.Now()
	list := load.Stop()
	fleet.AwaitShared(patience, 1, 2)
	tier := fleet.Stop()

	var others []history.Decision
	broken := 0
	for _, d := range list {
		switch {
		case d.Node != 0 || d.Status == 200 || d.Received < fault:
			others = append(others, d) // whatever it is, it is judged
		default:
			broken++
		}
	}
	bound, formula := healthy(tier, 0, "0")
	tr.judge(others, bound, formula)
	tr.note("resets and refused connections of the killed one", "%d", broken)
	tr.note("by leases", "%d", tier.Decisions.Lease)
	tr.note("decided alone", "%d", tier.Decisions.Fallback)
	tr.note("rate of a hot key while leases are stranded", "%.1f/s", grantRate(others, "hot0", fault, expired))
	tr.wholeRate("rate of a hot key then", grantRate(others, "hot0", expired, end), tier)
	before := history.Percentile(history.Between(others, 0, fault), 0.99)
	tr.stalled(list)
	tr.note("p99 before", "%s", brief(before))
	tr.within("p99 of the others then", history.Percentile(history.Between(others, fault, end), 0.99), max(2*before, waitAfter))
}

// grantRate is how many units of a key were admitted per second.
func grantRate(list []history.Decision, key string, begin, end time.Duration) float64 {
	n := 0
	for _, d := range history.Between(list, begin, end) {
		if d.Key == key && d.Allowed {
			n++
		}
	}
	return float64(n) / (end - begin).Seconds()
}
