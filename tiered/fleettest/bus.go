package fleettest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/tiered"
)

// epoch is the instant at which runs start that do not say it.
const epoch = weir.Instant(1_767_225_600_000_000_000) // 2026-01-01

// A stop is one node's place on the bus.
type stop struct {
	f    *fleet
	node int

	mu    sync.Mutex // guards the field below, and is held while heard runs
	heard func([]tiered.Message)
}

var _ tiered.Bus = (*stop)(nil)

// Publish implements tiered.Bus.
func (b *stop) Publish(_ context.Context, words []tiered.Message) error {
	s := &b.f.scenario
	for i, w := range words {
		w := w
		for other := range b.f.stops {
			d := throw(s.Seed, 1, uint64(b.node), uint64(b.f.now()), uint64(i), uint64(other))
			if other == b.node || d.chance(s.BusLoss) || b.f.crashed(b.node) {
				continue
			}
			deliver := func() { b.f.stops[other].deliver(b.node, w) }
			time.AfterFunc(d.between(s.BusLatency), deliver)
			if d.chance(s.BusTwice) {
				time.AfterFunc(d.between(s.BusLatency), deliver)
			}
		}
	}
	return nil
}

// deliver tells a node what another has published.
func (b *stop) deliver(from int, w tiered.Message) {
	if s := &b.f.scenario; w.Kind == tiered.KeyDenied {
		w.Until = s.read(b.node, s.time(from, w.Until))
		w.ResetAt = s.read(b.node, s.time(from, w.ResetAt))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.heard != nil {
		b.heard([]tiered.Message{w})
	}
}

// Listen implements tiered.Bus.
func (b *stop) Listen(heard func([]tiered.Message)) func() {
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
