package tiered

import (
	"github.com/weirlimit/weir"
)

// An allowance is the number of units of a key that this node may grant without calling the
// store: at most cap units (see maxUnsynced), and no more than remained when the store last
// replied. It never grows between two replies.
//
// Units granted from it are unsynced until the next call for the key, which charges them
// unconditionally before anything else is decided (weir.Batch.Used). While such a call lasts
// they are in flight. At any time
//
//	left + unsynced + inFlight ≤ cap
//
// so each node of a fleet has granted at most cap units that the store has not charged. The bound
// of Async mode follows from this alone, however calls and replies interleave.
//
// sent counts the calls to the store that charge the key. A reply becomes the allowance
// only if no later call was sent, because it does not include the charges of that call.
//
// All fields are guarded by the entry's mu.
type allowance struct {
	left  int64
	until weir.Instant // left is invalid from then on
	plan  *plan        // under which left was granted; nil if there was no reply yet
	state keyState     // the store's last reply, less the units granted since

	unsynced int64 // granted from left, or recorded while the store was unavailable
	inFlight int64
	shared   int64 // granted by this node's share while the breaker was open; see unitsToCharge
	sent     uint64
	listed   bool // in the list of entries to flush

	calling bool      // a call that callers wait for is in flight
	waiting []*waiter // callers whose charges the next call carries, in order
}

// keyState is the last known state of a key in the store.
type keyState struct {
	limits    uint64 // fingerprint of the limits that it refers to; 0 if there was no reply
	by        uint8
	remaining int64
	limit     int64
	resetAt   weir.Instant
	at        weir.Instant
}

// keyStateOf returns the state that a decision received at now reports.
func keyStateOf(pl *plan, d weir.Decision, now weir.Instant) keyState {
	return keyState{limits: pl.limits, by: d.By, remaining: d.Remaining, limit: d.Limit, resetAt: after(now, d.ResetAfter), at: now}
}

// used reports whether there is usage to flush.
func (a *allowance) used() bool { return a.unsynced > 0 || a.shared > 0 }

// idle reports whether the allowance may be dropped: the store has charged every unit.
func (a *allowance) idle() bool {
	return !a.used() && a.inFlight == 0 && !a.calling && len(a.waiting) == 0 && !a.listed
}

// valid reports whether left may be granted under pl at now.
func (a *allowance) valid(pl *plan, now weir.Instant) bool {
	return now < a.until && a.plan.limits == pl.limits && a.plan.epoch == pl.history.epoch.Load()
}

// void ends the allowance. Its unsynced usage is still flushed.
func (a *allowance) void() { a.left, a.until = 0, 0 }

// spendLocked decides a charge by the key's allowance, if that suffices. It requires the
// entry's mu.
func (t *Limiter) spendLocked(c *call, now weir.Instant) (weir.Decision, bool) {
	e, a := c.entry, &c.entry.allowance
	if !a.valid(c.plan, now) || c.cost > a.left || t.closed.Load() { // after Close usage is not flushed
		return weir.Decision{}, false
	}
	a.left -= c.cost
	a.unsynced += c.cost
	a.state.remaining = max(0, a.state.remaining-c.cost)
	if c.cost > 0 {
		e.denial.Store(nil) // the denial does not include these units
		e.usagePlan = c.plan
		t.listLocked(e)
	}
	t.counts.async.Add(1)
	return weir.Decision{
		Allowed: true, Reason: weir.Admitted, By: a.state.by, Limit: a.state.limit, Remaining: a.state.remaining,
		ResetAfter: max(0, a.state.resetAt.Sub(now)), Estimate: true,
	}, true
}

// spendAllowance locks the entry and calls spendLocked.
func (t *Limiter) spendAllowance(c *call) (weir.Decision, bool) {
	c.entry.mu.Lock()
	defer c.entry.mu.Unlock()
	return t.spendLocked(c, c.now)
}

// maxUnsynced returns the cap: how many units of a key this node may have granted that the
// store has not charged.
func (t *Limiter) maxUnsynced(pl *plan) int64 {
	if t.config.MaxUnsynced > 0 {
		return t.config.MaxUnsynced
	}
	return max(1, pl.capacity/(10*int64(t.nodes())))
}
