package fleettest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/tiered"
)

// epoch is the instant at which every run starts.
const epoch = weir.Instant(1_767_225_600_000_000_000) // 2026-01-01

// instant returns the true instant of a time of the run.
func instant(at time.Duration) weir.Instant { return epoch.Add(at) }

// read returns what the clock says at a time of the run.
func (c Clock) read(at time.Duration) weir.Instant {
	return instant(at + c.Skew + time.Duration(int64(at)*c.PPM/1_000_000))
}

// time is the inverse of read, and never later than true.
func (c Clock) time(i weir.Instant) time.Duration {
	x := int64(i.Sub(epoch) - c.Skew)
	const far = 1 << 42 // over an hour: too much to multiply, and beyond every run
	if x > far || x < -far {
		return time.Duration(x)
	}
	return time.Duration(x*1_000_000/(1_000_000+c.PPM)) - 2
}

// A stop is one node's place on the bus.
type stop struct {
	f    *fleet
	node int

	mu    sync.Mutex // guards the field below, and is held while heard runs
	heard func([]tiered.Word)
}

var _ tiered.Bus = (*stop)(nil)

// Publish implements tiered.Bus.
func (b *stop) Publish(_ context.Context, words []tiered.Word) error {
	s := &b.f.scenario
	for i, w := range words {
		w := w
		for other := range b.f.stops {
			d := throw(s.Seed, 1, uint64(b.node), uint64(b.f.now()), uint64(i), uint64(other))
			if other == b.node || d.chance(s.BusLoss) || b.f.crashed(b.node) {
				continue
			}
			time.AfterFunc(d.between(s.BusLatency), func() { b.f.stops[other].deliver(b.node, w) })
		}
	}
	return nil
}

// deliver tells a node what another has published.
func (b *stop) deliver(from int, w tiered.Word) {
	there, here := b.f.scenario.Clocks[from], b.f.scenario.Clocks[b.node]
	if w.Kind == tiered.Denied {
		w.Until = here.read(there.time(w.Until))
		w.ResetAt = here.read(there.time(w.ResetAt))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.heard != nil {
		b.heard([]tiered.Word{w})
	}
}

// Listen implements tiered.Bus.
func (b *stop) Listen(heard func([]tiered.Word)) func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heard = heard
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.heard = nil
	}
}

// Nodes implements tiered.Bus.
func (b *stop) Nodes() int { return b.f.scenario.counted() }

// outage returns in which outage a node is, or nil.
func (f *fleet) outage(node int, at time.Duration) *Outage {
	i := slices.IndexFunc(f.scenario.Outages, func(o Outage) bool {
		return o.From <= at && at < o.To && (o.Node < 0 || o.Node == node)
	})
	if i < 0 {
		return nil
	}
	return &f.scenario.Outages[i]
}
