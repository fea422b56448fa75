package faults

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/faults/internal/history"
	"github.com/weirlimit/weir/faults/internal/rig"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/store/redisstore"
	"github.com/weirlimit/weir/tiered"
	"github.com/weirlimit/weir/tiered/redistier"
)

// A Go program reads the system's clock without the C library, so libfaketime does not
// reach a daemon. What a daemon is made of is tried here instead, as three nodes in this
// process, each with a clock of its own. A node's clock cannot step: it is the wall
// clock at the start of the process, and monotonic from then on.

// clock is weir.Now, off by something that may change.
type clock struct{ off atomic.Int64 }

func clockAhead(by time.Duration) *clock {
	c := &clock{}
	c.step(by)
	return c
}

func (c *clock) now() weir.Instant     { return weir.Now().Add(time.Duration(c.off.Load())) }
func (c *clock) step(by time.Duration) { c.off.Add(int64(by)) }

// node is what a daemon with --redis is made of.
type node struct{ limiter *tiered.Limiter }

// nodeConfig says how a node differs from that.
type nodeConfig struct {
	mode  tiered.Mode
	clock *clock
	store func() weir.Instant // nil = Redis's clock
}

func newNode(t *testing.T, addr string, c nodeConfig) *node {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	server := redisstore.Server{Addrs: []string{addr}}
	store, err := redisstore.New(ctx, redisstore.Config{Redis: server, Timeout: tiered.DefaultTimeout, Now: c.store})
	check(err)
	t.Cleanup(func() { store.Close() })
	bus, err := redistier.New(ctx, redistier.Config{Redis: server, Now: c.clock.now})
	check(err)
	t.Cleanup(func() { bus.Close() })
	local, err := memstore.New(memstore.Config{})
	check(err)
	limiter, err := tiered.New(tiered.Config{Store: store, Local: local, Bus: bus, Mode: c.mode, Now: c.clock.now})
	check(err)
	t.Cleanup(limiter.Close)
	return &node{limiter}
}

// policyOf returns a policy as daemons have it, by default with no bound on debt.
func policyOf(t *testing.T, name string, maxDebt int64) *weir.Policy {
	t.Helper()
	p, err := weir.NewPolicy(name, weir.Limit{Rate: r, Per: weir.Every(time.Second), Burst: B, MaxDebt: maxDebt})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// drive takes one unit of a key at a time, 200 per second on each node, until stop
// returns the history.
func drive(nodes []*node, policy *weir.Policy, key string) (now func() time.Duration, stop func() []history.Decision) {
	begin, quit := time.Now(), make(chan struct{})
	lists := make([][]history.Decision, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() {
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-quit:
					return
				case <-tick.C:
				}
				d := history.Decision{Node: i, Key: key, Sent: time.Since(begin)}
				decision, err := n.limiter.Take(context.Background(), policy, key, 1)
				d.Received, d.Allowed, d.Status = time.Since(begin), decision.Allowed, 200
				if err != nil {
					d.Status, d.Err = 503, err.Error() // as a daemon would say
				}
				lists[i] = append(lists[i], d)
			}
		})
	}
	now = func() time.Duration { return time.Since(begin) }
	return now, func() (all []history.Decision) {
		close(quit)
		wg.Wait()
		for _, list := range lists {
			all = append(all, list...)
		}
		return all
	}
}

// alone returns the tiers' figures that a bound depends on.
func alone(nodes []*node) (tier rig.Tier) {
	for _, n := range nodes {
		tier.Decisions.Fallback += n.limiter.Stats().Fallback
		tier.Decisions.Lease += n.limiter.Stats().Lease
	}
	return tier
}

// F14: the clocks of nodes differ, which changes nothing.
func TestClockSkew(t *testing.T) {
	tr := try(t, "F14", "clocks of three nodes differ: −5 s, +5 s, +1 h (nodes in one process); consistency exact, then leased", "E ≤ 0; the whole rate is admitted")
	server := redistest.Start(t)
	for _, mode := range []tiered.Mode{tiered.Exact, tiered.Leased} {
		var nodes []*node
		for _, ahead := range []time.Duration{-5 * time.Second, 5 * time.Second, time.Hour} {
			nodes = append(nodes, newNode(t, server.Addr(), nodeConfig{mode: mode, clock: clockAhead(ahead)}))
		}
		now, stop := drive(nodes, policyOf(t, rig.Policy, 0), mode.String())
		time.Sleep(pick(10*time.Second, 2*time.Second)) // the load's length
		end := now()
		list := stop()
		tier := alone(nodes)
		tr.note("consistency", "%s", mode)
		bound, formula := healthy(tier, 0, "0")
		tr.judge(list, bound, formula)
		// The burst is gone after a third of a second; then there is the rate.
		tr.wholeRate("rate", grantRate(list, mode.String(), end/2, end), tier)
		tr.note("by leases", "%d", tier.Decisions.Lease)
		tr.note("decided alone", "%d", tier.Decisions.Fallback)
	}
}

// F14b: the clock of the store steps, as after a failover to a host whose clock is
// wrong. Forward, every key is as if unused. Back, what is stored lies in the future. It
// is taken for a debt, and pulled to the most that a limit may owe. Without a bound on
// debt nothing is pulled: the key is refused until the clock has caught up.
func TestStoreClockSteps(t *testing.T) {
	tr := try(t, "F14b", "the store's clock steps by +1 h, then by −1 h (nodes in one process; a limit with max_debt = B)",
		"E ≤ min(B, r × 1 h); no longer without an admission than (B + max_debt + 1) / r")
	server := redistest.Start(t)
	storeClock := clockAhead(0)
	var nodes []*node
	for range 3 {
		nodes = append(nodes, newNode(t, server.Addr(), nodeConfig{clock: clockAhead(0), store: storeClock.now}))
	}
	now, stop := drive(nodes, policyOf(t, "bounded", B), "bounded")
	_, stopOther := drive(nodes, policyOf(t, "unbounded", 0), "unbounded")
	length := pick(5*time.Second, 1500*time.Millisecond)
	time.Sleep(length)
	storeClock.step(time.Hour)
	time.Sleep(length)
	storeClock.step(-time.Hour)
	back := now()
	time.Sleep(max(length, 2500*time.Millisecond)) // more than the longest pause
	end := now()
	list, other := stop(), stopOther()
	tier := alone(nodes)

	bound, formula := healthy(tier, B, "B") // r × 1 h is more
	tr.judge(append(list, other...), bound, formula)
	tr.note("longest without an admission before", "%s", brief(longestPause(list, 0, back)))
	const healed = time.Second * (B + B + 1) / r // and denials that were remembered do not last longer
	tr.within("after the step back", longestPause(list, back, end), healed+10*time.Millisecond)
	tr.note("without max_debt", "%s, of %s that were looked at", brief(longestPause(other, back, end)), brief(end-back))
	tr.note("decided alone", "%d", tier.Decisions.Fallback)
}

// longestPause returns the longest time from begin to end in which nothing was admitted.
func longestPause(list []history.Decision, begin, end time.Duration) (longest time.Duration) {
	last := begin
	for _, d := range history.ByAnswer(history.Between(list, begin, end)) {
		if d.Allowed {
			longest = max(longest, d.Received-last)
			last = d.Received
		}
	}
	return max(longest, end-last)
}
