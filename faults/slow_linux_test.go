package faults

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/faults/internal/history"
	"github.com/weirlimit/weir/faults/internal/rig"
)

// F16: more clients than the daemon takes connect and do not get on.
func TestSlowClients(t *testing.T) {
	tr := try(t, "F16", "5,000 clients connect to one daemon, 1,000 each second, and send nothing, a byte each second, or half a body; it takes 4,096 connections",
		"p99 of the others ≤ 1.5 × before, those with a new connection included; none of these waits longer than 2 s; the slow ones are disconnected within 10 s")
	n := pick(5000, 300)
	needFiles(tr, n+500)
	most := pick(4096, 250)
	fleet := tr.fleet(1, "-c", withConnections(tr, most))
	load := fleet.StartLoad(mix())
	oneShots := load.StartOneShots(pick(20, 10))
	load.For(pick(10*time.Second, time.Second))
	fault := load.Now()
	slow := fleet.Daemons[0].StartSlow(n, pick(1000, 600))
	load.For(pick(12*time.Second, time.Second))
	gone := pick(n, n-most) // in the short form, those that make way
	rig.Await(tr, "the slow clients to be disconnected", patience, func() error {
		if got := len(slow.Ended()); got < gone {
			return fmt.Errorf("%d of %d are gone", got, gone)
		}
		return nil
	})
	end := load.Now()
	oneShots.Stop()
	list := load.Stop()
	_, lost := slow.Stop()
	fleet.Stop()
	tr.judgeSlow(list, fault, end)
	tr.none("slow clients that could not connect", lost)
	tr.note("slow clients disconnected", "%d of %d", len(slow.Ended()), n)
	tr.within("the slowest of these stayed for", slices.Max(slow.Ended()), 10*time.Second)
}

// judgeSlow judges those who are not slow.
func (tr *trial) judgeSlow(list []history.Decision, fault, end time.Duration) {
	tr.Helper()
	tr.judge(list, 0, "0")
	before := history.Percentile(history.Between(list, 0, fault), 0.99)
	tr.stalled(list)
	tr.note("p99 before", "%s", brief(before))
	tr.within("p99 meanwhile", history.Percentile(history.Between(list, fault, end), 0.99), 3*before/2)
	var fresh []history.Decision
	for _, d := range list {
		if strings.HasPrefix(d.Key, "new") {
			fresh = append(fresh, d)
		}
	}
	p := func(p float64, from, to time.Duration) string {
		return brief(history.Percentile(history.Between(fresh, from, to), p))
	}
	tr.note("with a new connection: p50, p99 before", "%s, %s", p(0.5, 0, fault), p(0.99, 0, fault))
	tr.note("with a new connection: p50, p99 meanwhile", "%s, %s", p(0.5, fault, end), p(0.99, fault, end))
	tr.within("with a new connection: longest", history.Percentile(history.Between(fresh, fault, end), 1), 2*time.Second)
}

// withConnections writes a configuration with so many connections at most.
func withConnections(tr *trial, most int) string {
	tr.Helper()
	return config(tr, fmt.Sprintf("listen: {max_connections: %d}\n", most))
}

// needFiles lets this process and its children open so many files.
func needFiles(tr *trial, n int) {
	tr.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		tr.Fatal(err)
	}
	if limit.Cur >= uint64(n) {
		return
	}
	want := syscall.Rlimit{Cur: uint64(n), Max: max(limit.Max, uint64(n))}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &want); err != nil {
		tr.Skipf("%d files cannot be open here: %v", n, err)
	}
}
