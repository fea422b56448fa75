package fleettest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/tiered"
)

// epoch is the default of Scenario.Begin.
const epoch = weir.Instant(1_767_225_600_000_000_000) // 2026-01-01

// A busPort is the tiered.Bus of one node.
type busPort struct {
	f    *fleet
	node int

	mu      sync.Mutex // guards the field below, and is held while it runs
	receive func([]tiered.Message)
}

var _ tiered.Bus = (*busPort)(nil)

// Publish implements tiered.Bus.
func (b *busPort) Publish(_ context.Context, messages []tiered.Message) error {
	s := &b.f.scenario
	for i, m := range messages {
		for other := range b.f.ports {
			d := throw(s.Seed, 1, uint64(b.node), uint64(b.f.now()), uint64(i), uint64(other))
			if other == b.node || d.chance(s.BusLoss) || b.f.crashed(b.node) {
				continue
			}
			deliver := func() { b.f.ports[other].deliver(b.node, m) }
			time.AfterFunc(d.between(s.BusLatency), deliver)
			if d.chance(s.BusTwice) {
				time.AfterFunc(d.between(s.BusLatency), deliver)
			}
		}
	}
	return nil
}

// deliver delivers a message of another node.
func (b *busPort) deliver(from int, m tiered.Message) {
	if s := &b.f.scenario; m.Kind == tiered.KeyDenied {
		m.Until = s.read(b.node, s.time(from, m.Until))
		m.ResetAt = s.read(b.node, s.time(from, m.ResetAt))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.receive != nil {
		b.receive([]tiered.Message{m})
	}
}

// Listen implements tiered.Bus.
func (b *busPort) Listen(receive func([]tiered.Message)) func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.receive = receive
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.receive = nil
	}
}

// Nodes implements tiered.Bus.
func (b *busPort) Nodes() int { return b.f.scenario.counted() }

// outage returns the outage that affects a node, or nil.
func (f *fleet) outage(node int, at time.Duration) *Outage {
	i := slices.IndexFunc(f.scenario.Outages, func(o Outage) bool {
		return o.From <= at && at < o.To && (o.Node < 0 || o.Node == node)
	})
	if i < 0 {
		return nil
	}
	return &f.scenario.Outages[i]
}
