package cli

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/redisstore"
	"github.com/weirlimit/weir/tiered"
	"github.com/weirlimit/weir/tiered/redistier"
)

// fleetLimits are the limits that daemons on one Redis share. The newest change wins, and a
// start is not a change; see docs/adr/0016-newest-change-wins.md.
type fleetLimits struct {
	*tiered.Limiter
	store *lateStore
	log   *slog.Logger
}

// Set changes limits on all daemons, and logs it. If new is in force already, nothing happens, so
// that a reload without a change does not void what the daemons have cached.
func (f *fleetLimits) Set(ctx context.Context, old, new *weir.Policy) error {
	was := f.store.Current(ctx, old)
	same := was != nil && was.Same(new)
	if same && old.Same(new) {
		return nil
	}
	if err := f.Limiter.Set(ctx, old, new); err != nil || same {
		return err
	}
	from := "unknown" // Redis did not answer in time, and then it did
	if was != nil {
		from = limitsText(was)
	}
	f.log.Info("this daemon has changed the limits of a policy, on all daemons", "policy", new.Name(), "from", from, "to", limitsText(new))
	return nil
}

// replaced logs that limits which this daemon's callers bring were replaced by another process:
// those that it was started with, and once for each later change, whatever callers bring.
func (r *inRedis) replaced(c redisstore.Replacement) {
	name := c.Requested.Name()
	switch {
	case c.BeforeStart:
		r.log.Warn("the configured limits of a policy are not in force: a later change has replaced them on all daemons. "+
			"To put the configured limits in force on all daemons, send SIGHUP to this one",
			"policy", name, "configured", limitsText(c.Requested), "in_force", limitsText(c.InForce), "since", c.Since)
	case !r.logged[name].Equal(c.Since):
		r.logged[name] = c.Since
		r.log.Info("another process has changed the limits of a policy, on all daemons",
			"policy", name, "from", limitsText(c.Old), "to", limitsText(c.InForce), "at", c.Since)
	}
	r.bus.changed(name)
}

// tellTier lets the tier know which limits of the configuration are not in force, since it
// decides by itself while Redis is unavailable.
func (r *inRedis) tellTier(ctx context.Context) {
	for _, p := range r.policies {
		if in := r.store.Current(ctx, p); in == nil || in.Same(p) {
			continue
		}
		_, _ = weir.Peek(ctx, r.tier, p, "", 0) // now the tier knows that callers bring p
		r.bus.changed(p.Name())
	}
}

// bus is what the tiers of all daemons exchange, and the way to tell this daemon's that limits
// have changed. It is connected before or after the tier listens, but not at the same time.
type bus struct {
	connected atomic.Pointer[redistier.Bus] // nil until use; messages to others are lost until then
	end       func()                        // ends the listening there; nil if there is none

	mu    sync.Mutex // guards the field below, and is held while that is called
	heard func(words []tiered.Message)
}

var _ tiered.Bus = (*bus)(nil)

// use connects the bus.
func (b *bus) use(to *redistier.Bus) {
	b.mu.Lock()
	listening := b.heard != nil
	b.mu.Unlock()
	b.connected.Store(to)
	if listening {
		b.end = to.Listen(b.deliver)
	}
}

// Listen is that of tiered.Bus.
func (b *bus) Listen(heard func(words []tiered.Message)) (stop func()) {
	b.mu.Lock()
	b.heard = heard
	b.mu.Unlock()
	if to := b.connected.Load(); to != nil {
		b.end = to.Listen(b.deliver)
	}
	return func() {
		if b.end != nil {
			b.end()
		}
		b.mu.Lock()
		b.heard = nil
		b.mu.Unlock()
	}
}

// Publish is that of tiered.Bus.
func (b *bus) Publish(ctx context.Context, words []tiered.Message) error {
	if to := b.connected.Load(); to != nil {
		return to.Publish(ctx, words)
	}
	return redistier.ErrUnavailable
}

// Nodes is that of tiered.Bus.
func (b *bus) Nodes() int {
	if to := b.connected.Load(); to != nil {
		return to.Nodes()
	}
	return 1
}

// deliver hands words to the tier, if there is one yet and still.
func (b *bus) deliver(words []tiered.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.heard != nil {
		b.heard(words)
	}
}

// changed tells this daemon's tier that a policy has other limits.
func (b *bus) changed(policy string) {
	b.deliver([]tiered.Message{{Kind: tiered.PolicyChanged, Policy: policy}})
}

// limitsText returns limits for people: "10 per 1m0s, hourly 100 per 1h0m0s".
func limitsText(p *weir.Policy) string {
	var list []string
	for _, l := range p.Limits() {
		text := l.String()
		if l.Name != "main" {
			text = l.Name + " " + text
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}
