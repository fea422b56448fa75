package tiered_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/tiered"
)

func TestBlockSize(t *testing.T) {
	const lots = 1 << 40
	for _, tt := range []struct {
		perSecond                float64
		last, cost, carved, room int64
		want                     int64
	}{
		{10, 0, 1, 1000, lots, 64},                // a rare key gets the least block
		{1e6, 0, 1, lots, lots, 64},               // and so does a busy one at first
		{1e6, 64, 1, lots, lots, 512},             // then eight times as much
		{1e6, 512, 1, lots, lots, 4096},           //
		{1e6, 50_000, 1, lots, lots, 100_000},     // until it lasts for a tenth of a second
		{1e6, 100_000, 1, 25_000, lots, 25_000},   // no more than may be held
		{1000, 100_000, 1, 25_000, lots, 100},     // less if there is less demand
		{1e6, 100_000, 1, lots, 50, 50},           // near the limit blocks get small
		{1e6, 100_000, 1, lots, 31, 0},            // and then there are none
		{1e6, 8, 1, 4, 4, 4},                      // but small bursts have small blocks
		{1e6, 8, 1, 4, 3, 0},                      // if all is there
		{1e6, 8, 1, 3, lots, 0},                   //
		{1e6, 8, 10, 30, lots, 0},                 // which depends on the cost
		{1e6, 8, 10, 50, lots, 50},                //
		{1e18, 1 << 31, 1, lots, lots, 1<<31 - 1}, // what one charge can be
		{0, 0, 0, 1000, lots, 64},
	} {
		if got := tiered.BlockSize(tt.perSecond, tt.last, tt.cost, tt.carved, tt.room); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

// leased returns a tier in Leased mode over a store that takes a millisecond.
func leased(t testing.TB, c tiered.Config) (*tiered.Limiter, *flaky) {
	store := newFlaky(t)
	store.takes = time.Millisecond
	c.Store, c.Mode = store, tiered.Leased
	return newTier(t, c), store
}

// A busy key costs a store call for hundreds of decisions, and what was not spent is
// given back by Close.
func TestBusyKeyIsLeased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := leased(t, tiered.Config{})
		p := newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Minute), Burst: 1_000_000})
		const rounds, each = 2000, 20
		for range rounds {
			if n := takeMany(t, l, p, "k", each); n != each {
				t.Fatalf("%d of %d were admitted", n, each)
			}
			time.Sleep(time.Millisecond)
		}
		s := l.Stats()
		if s.Decisions() != rounds*each || s.CallsPerDecision() > 0.01 || s.Leases != 1 {
			t.Errorf("%.4f calls per decision, stats %+v", s.CallsPerDecision(), s)
		}
		if left := store.remaining(t, p, "k"); left >= 1_000_000-rounds*each {
			t.Errorf("%d remain in the store, although some are leased", left)
		}
		l.Close()
		if left := store.remaining(t, p, "k"); left != 1_000_000-rounds*each {
			t.Errorf("%d remain in the store after Close, want %d", left, 1_000_000-rounds*each)
		}
		if s := l.Stats(); s.Forfeited != 0 || s.Leases != 0 || s.Decisions() != rounds*each {
			t.Errorf("stats after Close: %+v", s)
		}
		if !take(t, l, p, "k", 1).Allowed {
			t.Error("after Close nothing is admitted")
		}
	})
}

// A lease that nobody uses goes back by itself, before it expires.
func TestIdleLeaseGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := leased(t, tiered.Config{})
		p := newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Hour), Burst: 1000})
		takeMany(t, l, p, "k", 10) // seven by the store, then a lease
		if s := l.Stats(); s.Leases != 1 {
			t.Fatalf("%d leases, want 1", s.Leases)
		}
		time.Sleep(2 * time.Second)
		if left := store.remaining(t, p, "k"); left != 990 {
			t.Errorf("%d remain, want 990", left)
		}
		if s := l.Stats(); s.Leases != 0 || s.Forfeited != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// A node that crashes forfeits no more than its lease, which counts as
// spent when it expires.
func TestCrashForfeitsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := leased(t, tiered.Config{})
		p := newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Hour), Burst: 1000})
		takeMany(t, l, p, "k", 10)                     // seven by the store, the others of a block of 64
		store.set(func(f *flaky) { f.down = errDown }) // for this node
		time.Sleep(6 * time.Second)
		if left := store.remaining(t, p, "k"); left != 1000-7-64 {
			t.Errorf("%d remain, want 929: a block of 64 is forfeited", left)
		}
		l.Close()
		if s := l.Stats(); s.Forfeited == 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// Limits that cannot be carved, and algorithms that cannot lend, are exact.
func TestNotLeased(t *testing.T) {
	for name, limit := range map[string]weir.Limit{
		"small burst": {Rate: 1000, Per: weir.Every(time.Second), Burst: 15},
		"window":      {Rate: 1000, Per: weir.Every(time.Second), Algorithm: weir.FixedWindow},
		"log":         {Rate: 100, Per: weir.Every(time.Second), Algorithm: weir.SlidingLog},
		"rare":        {Rate: 1000, Per: weir.Every(time.Second), Burst: 10_000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, _ := leased(t, tiered.Config{Nodes: 1})
				p := newPolicy(t, limit)
				for range 60 {
					take(t, l, p, "k", 1)
					if name == "rare" {
						time.Sleep(100 * time.Millisecond)
					}
				}
				if s := l.Stats(); s.Lease != 0 || s.Leases != 0 {
					t.Errorf("stats %+v", s)
				}
			})
		})
	}
}

// Near the limit the last units are taken from the store one by one: none is left
// over and none is granted twice.
func TestLeasedToTheLastUnit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, bus := newFlaky(t), &wire{}
		store.takes = time.Millisecond
		p := newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(24 * time.Hour), Burst: 10_000})
		var admitted atomic.Int64
		var all sync.WaitGroup
		for range 3 {
			l := newTier(t, tiered.Config{Store: store, Mode: tiered.Leased, Bus: bus.join()})
			for range 4 {
				all.Go(func() {
					for range 3000 {
						if take(t, l, p, "k", 1).Allowed {
							admitted.Add(1)
						}
						time.Sleep(time.Millisecond)
					}
				})
			}
		}
		all.Wait()
		if n := admitted.Load(); n != 10_000 {
			t.Errorf("%d of 36,000 were admitted, want the burst of 10,000", n)
		}
	})
}

// Peek leases nothing, and counts what is leased here as there.
func TestPeekCountsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := leased(t, tiered.Config{})
		p := newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Hour), Burst: 1000})
		for range 5 {
			if d, err := weir.Peek(ctx, l, p, "k", 1); err != nil || d.Remaining != 1000 || d.Estimate {
				t.Fatalf("%+v, error %v", d, err)
			}
		}
		takeMany(t, l, p, "k", 10)
		d, err := weir.Peek(ctx, l, p, "k", 1)
		if err != nil || d.Remaining != 990 || !d.Estimate {
			t.Errorf("peek: %+v, error %v; want 990 remaining", d, err)
		}
		if left := store.remaining(t, p, "k"); left != 1000-7-64 {
			t.Errorf("the store says %d, although something is leased", left)
		}
	})
}

// A changed limit ends leases at once.
func TestSetEndsLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, bus := newFlaky(t), &wire{}
		a := newTier(t, tiered.Config{Store: store, Mode: tiered.Leased, Bus: bus.join()})
		b := newTier(t, tiered.Config{Store: store, Mode: tiered.Leased, Bus: bus.join()})
		p := newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Hour), Burst: 1000})
		for range 20 {
			takeMany(t, b, p, "k", 10)
			time.Sleep(time.Millisecond)
		}
		q, err := p.With(weir.Limit{Rate: 1, Per: weir.Every(time.Hour), Burst: 100})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Set(ctx, p, q); err != nil {
			t.Fatal(err)
		}
		if d := take(t, b, p, "k", 1); d.Allowed {
			t.Errorf("200 of what is now 100 were used: %v", d)
		}
	})
}

// A charge may be refused because the units that are left are on their way to this very
// node as a lease. They are spent when they are there, although the key was denied.
func TestDenialEndsWhenTheLeaseArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := leased(t, tiered.Config{Timeout: time.Second})
		store.lends = 300 * time.Millisecond
		const burst = 100
		p := newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Hour), Burst: burst})
		admitted := 0
		for range 500 {
			if take(t, l, p, "k", 1).Allowed {
				admitted++
			}
			time.Sleep(time.Millisecond)
		}
		if admitted != burst {
			t.Errorf("%d of a burst of %d were admitted", admitted, burst)
		}
	})
}

// A caller that gets a lease while Close settles the others does not keep Close from
// returning, and its lease is given back, too.
func TestLeaseDuringClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &polite{Table: newTable(t), takes: time.Millisecond}
		l := newTier(t, tiered.Config{Store: store, Mode: tiered.Leased})
		p := newPolicy(t, weir.Limit{Rate: 1, Per: weir.Every(time.Hour), Burst: 1000})
		takeMany(t, l, p, "a", 10)
		takeMany(t, l, p, "b", 7)
		closing, taken := make(chan struct{}), make(chan struct{})
		var settles atomic.Int64
		store.hook = func(_ context.Context, b *weir.Batch) error {
			switch {
			case b.Op == weir.ReserveAll:
				<-closing
			case b.Op == weir.Settle && settles.Add(1) == 1:
				close(closing)
				<-taken
			}
			return nil
		}
		go func() {
			takeMany(t, l, p, "b", 1)
			close(taken)
		}()
		synctest.Wait()
		l.Close()
		for key, want := range map[string]int64{"a": 990, "b": 992} {
			if d, err := weir.Peek(ctx, store.Table, p, key, 0); err != nil || d.Remaining != want {
				t.Errorf("%s: %+v, %v; want %d left", key, d, err, want)
			}
		}
		if settles.Load() != 2 {
			t.Errorf("%d leases were settled, want 2", settles.Load())
		}
	})
}
