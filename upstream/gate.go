package upstream

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/budget"
)

// A gate says whether calls may go to something that can refuse or fail: an endpoint, an account or a provider.
//
// It is open until it is closed for a while. Then it is half open: one call may be in flight, and one more after each
// success. At fullRamp it is open again. A failure while it is half open closes it again.
// It is closed for longer or not at all, never for shorter, and what was sent before it closed changes
// nothing when it fails or succeeds, unless that asks for a longer time.
type gate struct {
	// shut is whether the gate is not open. It is written with mu held, and read without it so that calls
	// through an open gate need no lock.
	shut atomic.Bool

	// epoch is how often it was closed or opened. It is written with mu held.
	epoch atomic.Int64

	mu      sync.Mutex // guards the fields below
	until   time.Time  // when it becomes half open
	forever bool       // until a probe succeeds
	reason  string
	ramp    int // how many calls may be in flight while it is half open
	flying  int // those that are, of the current epoch

	backoff budget.Backoff // of closures for which nobody says how long; its bounds are those of the last one
}

// fullRamp is the number of calls in flight at which a gate is open again.
const fullRamp = 64

// A pass is the permission for one call.
type pass struct {
	epoch int64
	half  bool // the gate was half open
}

// enter asks for a pass. If there is none, at is when there may be one: the zero time if that is when a call that
// is in flight ends, or a probe succeeds.
func (g *gate) enter(now time.Time) (p pass, at time.Time, ok bool) {
	epoch := g.epoch.Load() // before shut: a call that passes while the gate closes is one of before
	if !g.shut.Load() {
		return pass{epoch: epoch}, now, true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	at, ok = g.readyLocked(now)
	if !ok {
		return pass{}, at, false
	}
	p = pass{epoch: g.epoch.Load(), half: g.shut.Load()}
	if p.half {
		g.flying++
	}
	return p, now, true
}

// readyLocked reports whether a call may pass and, if not, when.
func (g *gate) readyLocked(now time.Time) (at time.Time, ok bool) {
	switch {
	case !g.shut.Load():
		return now, true
	case g.forever:
		return time.Time{}, false
	case now.Before(g.until):
		return g.until, false
	}
	return time.Time{}, g.flying < g.ramp
}

// ready is enter without entering.
func (g *gate) ready(now time.Time) (at time.Time, ok bool) {
	if !g.shut.Load() {
		return now, true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.readyLocked(now)
}

// leave ends a call that says nothing about the gate.
func (g *gate) leave(p pass) {
	if !p.half {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.epoch == g.epoch.Load() {
		g.flying--
	}
}

// succeed ends a call that was answered. It returns true if the gate is open from now on and was not before.
func (g *gate) succeed(p pass) (opened bool) {
	if !p.half {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.epoch != g.epoch.Load() {
		return false
	}
	g.flying--
	if g.ramp++; g.ramp < fullRamp {
		return false
	}
	g.openLocked()
	return true
}

// open opens the gate at once.
func (g *gate) open() (opened bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.openLocked()
}

func (g *gate) openLocked() (opened bool) {
	opened = g.shut.Load()
	g.shut.Store(false)
	g.epoch.Add(1)
	g.until, g.forever, g.reason, g.ramp, g.flying = time.Time{}, false, "", 0, 0
	g.backoff.Success()
	return opened
}

// delays are the bounds of a back-off, as budget.Backoff has them.
type delays struct{ base, most time.Duration }

// close lets nothing pass for a time because of what a call got, which thereby ends. If d is 0 the back-off says
// how long, unless the call is one of before the last closure. It returns for how long nothing passes because of this
// call, 0 if the call changes nothing, and whether the gate was open before.
func (g *gate) close(now time.Time, p pass, d time.Duration, back delays, reason string) (pause time.Duration, closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := p.epoch != g.epoch.Load()
	if p.half && !old {
		g.flying--
	}
	shut := g.shut.Load()
	pausing := shut && now.Before(g.until)
	switch {
	case g.forever || d == 0 && (old || pausing):
		return 0, false
	case d == 0:
		g.backoff.Base, g.backoff.Max = back.base, back.most
		d = g.backoff.Failure()
	case pausing && !now.Add(d).After(g.until):
		return 0, false
	}
	g.closeLocked(now.Add(d), reason)
	return d, !shut
}

// closeForever lets nothing pass until the gate is opened.
func (g *gate) closeForever(reason string) (closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	closed = !g.forever
	g.closeLocked(time.Time{}, reason)
	g.forever = true
	return closed
}

func (g *gate) closeLocked(until time.Time, reason string) {
	g.epoch.Add(1)
	g.shut.Store(true)
	g.until, g.reason, g.ramp, g.flying = until, reason, 1, 0
}

// gateState is what a gate says about itself.
type gateState struct {
	Open   bool
	Half   bool      // calls are let through one by one
	Until  time.Time // zero if it is open, half open, or closed until a probe succeeds
	Reason string
}

func (g *gate) state(now time.Time) gateState {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := gateState{Open: !g.shut.Load(), Reason: g.reason}
	if s.Half = !s.Open && !g.forever && !now.Before(g.until); !s.Open && !s.Half {
		s.Until = g.until
	}
	return s
}

// retry makes a gate half open that is closed until a probe succeeds.
func (g *gate) retry() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forever = false
}

func (g *gate) isForever() bool {
	if !g.shut.Load() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.forever
}
