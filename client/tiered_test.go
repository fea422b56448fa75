package client_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/server"
	"github.com/weirlimit/weir/tiered"
)

// node is a program of a fleet that shares a daemon.
func node(t *testing.T, address string, mode tiered.Mode) (*tiered.Limiter, *client.Client) {
	t.Helper()
	c := dial(t, client.Config{Address: address})
	n, err := tiered.New(tiered.Config{Store: c, Local: apitest.Table(t, nil), Mode: mode, Nodes: 2, Timeout: 5 * time.Minute})
	must(t, err)
	t.Cleanup(n.Close)
	return n, c
}

// TestDaemonAsStore: two programs share a limit of a daemon in every mode. Nothing refills while the
// test runs, so what they may have in all is exact.
func TestDaemonAsStore(t *testing.T) {
	const burst, callers, each = 400, 4, 300
	for _, mode := range []tiered.Mode{tiered.Exact, tiered.Leased, tiered.Async} {
		t.Run(mode.String(), func(t *testing.T) {
			p := newPolicy(t, "p", weir.Limit{Rate: burst, Per: weir.Every(24 * time.Hour)})
			address, _ := daemon(t, server.Config{Limiter: apitest.Table(t, nil), Live: server.Live{Policies: rules(p)}})
			one, _ := node(t, address, mode)
			two, _ := node(t, address, mode)
			var admitted atomic.Int64
			var group sync.WaitGroup
			for i := range callers {
				n := []*tiered.Limiter{one, two}[i%2]
				group.Go(func() {
					for range each {
						d, err := n.Take(ctx, p, "k", 1)
						if err != nil {
							t.Error(err)
						}
						if d.Allowed {
							admitted.Add(1)
						}
					}
				})
			}
			group.Wait()
			one.Close()
			two.Close()
			wantShared(t, mode, admitted.Load(), burst, one.Stats(), two.Stats())
			left, err := weir.Peek(ctx, dial(t, client.Config{Address: address}), p, "k", 0)
			must(t, err)
			if owed := max(burst-admitted.Load(), 0); left.Remaining != owed {
				t.Errorf("%d remain in the daemon, want %d: it does not know of all", left.Remaining, owed)
			}
		})
	}
}

// wantShared checks how much was admitted. Exact and leased never admit too much, and a lease that
// is nearly spent may keep a little back; async may admit what a node grants between two words.
func wantShared(t *testing.T, mode tiered.Mode, admitted, burst int64, stats ...tiered.Stats) {
	t.Helper()
	least, most := burst, burst
	switch mode {
	case tiered.Leased:
		least = burst - 2
	case tiered.Async:
		most = 2 * burst
	}
	if admitted < least || admitted > most {
		t.Errorf("%d admitted, want %d to %d", admitted, least, most)
	}
	calls := int64(0)
	for _, s := range stats {
		calls += s.StoreCalls
	}
	t.Logf("%d admitted, %d calls to the daemon", admitted, calls)
}

// TestDaemonDies: while the daemon is down each program admits its share.
func TestDaemonDies(t *testing.T) {
	p := newPolicy(t, "p", weir.Limit{Rate: 100, Per: weir.Every(24 * time.Hour)})
	address, end := daemon(t, server.Config{Limiter: apitest.Table(t, nil), Live: server.Live{Policies: rules(p)}})
	n, _ := node(t, address, tiered.Exact)
	if d, err := n.Take(ctx, p, "k", 1); err != nil || !d.Allowed || d.Remaining != 99 {
		t.Fatal(d, err)
	}
	end()
	admitted := 0
	for range 200 {
		d, err := n.Take(ctx, p, "k", 1)
		must(t, err)
		if d.Allowed {
			admitted++
		}
	}
	if admitted < 48 || admitted > 50 {
		t.Errorf("%d admitted without the daemon, want half of what was left", admitted)
	}
}
