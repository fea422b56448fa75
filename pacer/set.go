package pacer

import (
	"github.com/weirlimit/weir/internal/mono"
)

// SetRate changes the rate from now on. Lateness is kept, to the
// nanosecond. Waiting callers keep their order, and what is left of their wait is scaled to
// the new rate. Callers that wait to catch up in the mode Burst keep their times; later
// callers have the new rate.
func (p *Pacer) SetRate(rate float64) error {
	return p.change(DoConfigure, func(c *Config) { c.Rate = rate })
}

// SetMode changes the mode from now on. Lateness and the order of waiting callers are kept as
// by SetRate. Lateness that the new mode does not catch up is forfeited at the next start.
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
	p.emptyStripesLocked() // what was put there meanwhile
	close(old.changed)
	return nil
}

// replaceLocked makes pl the continuation of old. Once old is frozen, nobody starts
// by it without looking again.
func (p *Pacer) replaceLocked(old, pl *plan, verb Verb, now int64) {
	at := now // where the schedule is in time
	if old.stopped != 0 {
		at = old.stopped
	}
	shift, peakShift := old.freeze()
	p.emptyStripesLocked()
	next := p.next.Load()
	if first := p.looked.Load() - p.stashed.Load(); first < next && !old.strict() { // as in look: these have just started
		shift = max(shift, at-old.maxLate-old.unshifted(max(first, old.anchor)))
	}
	if verb == DoRestart {
		p.forgetLocked()
		pl.begin(next, now)
	} else {
		pl.follow(old, shift, peakShift, next, at)
		p.moveStop(old, pl, verb, at, now)
	}
	pl.quick = pl.quick && pl.stopped == 0
	p.seen.Store(now)
	p.looked.Store(next)
	p.stashed.Store(0)
	p.quickTo.Store(next)
}

// moveStop lets the plan stand still, or go on where it stood.
func (p *Pacer) moveStop(old, pl *plan, verb Verb, at, now int64) {
	switch stood := now - at; {
	case verb == DoStop:
		pl.stopped = at
	case old.stopped != 0 && verb == DoStart:
		pl.base, pl.peakBase, pl.started = pl.base+stood, pl.peakBase+stood, pl.started+stood
		pl.past.base, pl.past.peakBase = pl.past.base+stood, pl.past.peakBase+stood
	default:
		pl.stopped = old.stopped
	}
}

// forgetLocked forgets what only a restart may.
func (p *Pacer) forgetLocked() {
	p.given, p.expired, p.expiredTime = nil, 0, 0
	p.spare.Store(0)
	p.idle.Store(0)
}

// follow continues old, whose last shifts are given, with position next at a time.
//
// What is late stays as late. What is not yet due is counted in units: half a
// slice to go is half a slice to go, at any rate.
func (pl *plan) follow(old *plan, shift, peakShift, next, at int64) {
	pl.first, pl.started = old.first, old.started
	pl.anchor = next - old.ahead(shift, next, at)
	due := old.unshifted(pl.anchor) + shift
	peak := old.unshiftedPeak(pl.anchor) + peakShift
	pl.past = past{due, peak, old.allottedTo(pl.anchor), old.slice, old.peakSlice, old.peaks(pl.anchor)}
	pl.base = due
	if left := due - lead - at; left > 0 { // less than a slice
		pl.base += int64(old.slice.units(left)*pl.slice.float()) - left
	}
	pl.allotted = pl.past.allotted + pl.base - due
	pl.peakBase = max(pl.base, at-pl.credit)
	if held := peak - due; held > 0 && old.peaks(pl.anchor) {
		pl.peakBase = pl.base + held
		if !pl.burst() { // or the credit would come twice
			pl.base += held
		}
	}
}

// ahead returns how many positions before next are due after a time: those that
// somebody waits for.
func (pl *plan) ahead(shift, next, at int64) int64 {
	left := pl.unshifted(next) + shift - lead - at
	n := int64(min(pl.slice.units(max(0, left)), float64(next-pl.first)))
	for n > 0 && pl.unshifted(next-n)+shift-lead < at { // units are floats, or of another slice
		n--
	}
	return n
}
