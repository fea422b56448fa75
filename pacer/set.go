package pacer

import (
	"github.com/weirlimit/weir/internal/mono"
)

// SetRate changes the rate from now on. Whoever is late stays as late as he is, to
// the nanosecond; whoever waits for a time to come keeps his place, and waits for
// the same part of the new slice. Nobody gets more than the new rate allows.
func (p *Pacer) SetRate(rate float64) error {
	return p.change(DoConfigure, func(c *Config) { c.Rate = rate })
}

// SetMode changes the mode from now on, in the same way. Lateness that the new
// mode does not make good is forfeited at the next start.
func (p *Pacer) SetMode(m Mode) error {
	return p.change(DoConfigure, func(c *Config) { c.Mode = m })
}

// SetBurstRatio changes how fast the mode Burst catches up from now on.
func (p *Pacer) SetBurstRatio(ratio float64) error {
	return p.change(DoConfigure, func(c *Config) { c.BurstRatio = ratio })
}

// Apply does what a Spec says, for all who use this Pacer.
func (p *Pacer) Apply(s Spec) error {
	c := s.Config()
	return p.change(s.Verb, func(old *Config) {
		old.Rate, old.Mode = c.Rate, c.Mode
		if c.Mode == Burst {
			old.BurstRatio = c.BurstRatio
		}
	})
}

// Stop lets nobody start until Start or Restart. Those who wait go on waiting. The
// time until then is neither lateness nor idle: the schedule stands still.
func (p *Pacer) Stop() { _ = p.change(DoStop, func(*Config) {}) }

// Start lets the schedule go on after Stop. A Pacer is running when it is made.
func (p *Pacer) Start() { _ = p.change(DoStart, func(*Config) {}) }

// Restart begins a new schedule now: what was granted, late or forfeited before is
// forgotten.
func (p *Pacer) Restart() { _ = p.change(DoRestart, func(*Config) {}) }

// Config returns the Config in force, defaults filled in.
func (p *Pacer) Config() Config { return p.plan.Load().config }

// change puts a new plan in force and wakes those who wait.
func (p *Pacer) change(verb Verb, edit func(*Config)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.plan.Load()
	c := old.config
	edit(&c)
	if c == old.config && (verb == DoConfigure || verb == DoStart && old.stopped == 0) {
		return nil
	}
	if err := c.Validate(); err != nil {
		return err
	}
	pl := newPlan(c)
	p.replaceLocked(old, pl, verb, mono.Now())
	p.plan.Store(pl)
	p.emptyLanesLocked()
	close(old.changed)
	return nil
}

// replaceLocked makes pl the continuation of old.
func (p *Pacer) replaceLocked(old, pl *plan, verb Verb, now int64) {
	at := now // where the schedule is in time
	if old.stopped != 0 {
		at = old.stopped
	}
	next := p.next.Load()
	base, peakBase := old.freeze()
	if verb == DoRestart {
		p.forgetLocked()
		pl.begin(next-old.ahead(base, next, at), now)
		return
	}
	pl.follow(old, base, peakBase, next, at)
	switch stood := now - at; {
	case verb == DoStop:
		pl.stopped = at
	case old.stopped != 0 && verb == DoStart:
		pl.base, pl.peakBase, pl.started = pl.base+stood, pl.peakBase+stood, pl.started+stood
	default:
		pl.stopped = old.stopped
	}
	pl.quick = pl.quick && pl.stopped == 0
}

// forgetLocked forgets what only a restart may.
func (p *Pacer) forgetLocked() {
	p.emptyLanesLocked()
	p.given, p.expired, p.expiredTime = nil, 0, 0
	p.spare.Store(0)
	p.idle.Store(0)
}

// ahead returns how many positions before next are due after at: those that
// somebody waits for.
func (pl *plan) ahead(base, next, at int64) int64 {
	left := base + pl.slice.times(next-pl.anchor) - at
	if left <= 0 {
		return 0
	}
	return min(int64(pl.slice.units(left)), next-pl.anchor)
}

// follow continues old, whose bases are given, with position next at a time.
//
// What is late stays as late. What is not yet due is counted in units: half a
// slice to go is half a slice to go, at any rate.
func (pl *plan) follow(old *plan, base, peakBase, next, at int64) {
	due := base + old.slice.times(next-old.anchor)
	pl.anchor, pl.first, pl.started = next, old.first, old.started
	pl.allotted = old.allotted + old.slice.times(next-old.anchor)
	pl.base, pl.peakBase = due, max(due, at-pl.credit)
	if due > at {
		pl.base = at + int64(old.slice.units(due-at)*pl.slice.float())
		pl.allotted += pl.base - due
		n := old.ahead(base, next, at) // peak must not be in the way of those who wait
		pl.peakBase = pl.base - pl.slice.times(n) + pl.peakSlice.times(n)
	}
	if !old.burst() {
		return
	}
	if held := peakBase + old.peakSlice.times(next-old.anchor) - due; held > 0 {
		pl.peakBase = pl.base + held
		if !pl.burst() { // or the credit would come twice
			pl.base += held
		}
	}
}
