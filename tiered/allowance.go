package tiered

import (
	"github.com/weirlimit/weir"
)

// An allowance is what this node may grant of a key without asking the store: at most
// cap units (see maxUnsynced), and no more than remained when the store last replied. It
// never grows between two replies.
//
// Units granted from it are unsynced: the store learns of them with the next call for the
// key, which charges them unconditionally before it decides anything else
// (weir.Batch.Used). From the moment such a call is sent until it ends they are in flight.
// At any time
//
//	left + unsynced + inFlight ≤ cap
//
// so the nodes of a fleet together grant at most cap units each that the store does not
// know of. That is the whole bound of Async mode; nothing else depends on how calls and
// replies interleave.
//
// sent counts the calls to the store that charge the key. A reply becomes the allowance
// only if no later call was sent, because it does not know what that one charged.
//
// All fields are guarded by the entry's mu.
type allowance struct {
	left  int64
	until weir.Instant // left is void from then on
	plan  *plan        // of the units; nil if there never were any
	state keyState     // what the store replied, less what was granted since

	unsynced int64 // granted from left, or recorded while the store was unavailable
	inFlight int64
	shared   int64 // granted by this node's share of an outage; see unpaid
	sent     uint64
	listed   bool // among those with something to flush

	calling bool      // a call is under way that callers wait for
	waiting []*waiter // callers that go with the next one, in order
}

// keyState is what the store last replied about a key.
type keyState struct {
	limits    uint64 // fingerprint of the limits it is about; 0 if there was no reply
	by        uint8
	remaining int64
	limit     int64
	resetAt   weir.Instant
	at        weir.Instant
}

// keyStateOf returns the state that a decision reports, which came at now.
func keyStateOf(pl *plan, d weir.Decision, now weir.Instant) keyState {
	return keyState{limits: pl.limits, by: d.By, remaining: d.Remaining, limit: d.Limit, resetAt: after(now, d.ResetAfter), at: now}
}

// used says whether there is usage to flush.
func (a *allowance) used() bool { return a.unsynced > 0 || a.shared > 0 }

// idle says whether the allowance may be forgotten: the store knows of every unit.
func (a *allowance) idle() bool {
	return !a.used() && a.inFlight == 0 && !a.calling && len(a.waiting) == 0 && !a.listed
}

// valid says whether left may be granted under pl at now.
func (a *allowance) valid(pl *plan, now weir.Instant) bool {
	return now < a.until && a.plan.limits == pl.limits && a.plan.epoch == pl.history.epoch.Load()
}

// void ends the allowance. What was granted from it stays to be flushed.
func (a *allowance) void() { a.left, a.until = 0, 0 }

// spendLocked answers a charge from the key's allowance, if that suffices. It requires the
// entry's mu.
func (t *Limiter) spendLocked(c *call, now weir.Instant) (weir.Decision, bool) {
	e, a := c.entry, &c.entry.allowance
	if !a.valid(c.plan, now) || c.cost > a.left || t.closed.Load() { // then nobody would flush it
		return weir.Decision{}, false
	}
	a.left -= c.cost
	a.unsynced += c.cost
	a.state.remaining = max(0, a.state.remaining-c.cost)
	if c.cost > 0 {
		e.denial.Store(nil) // which did not know of these units
		e.usagePlan = c.plan
		t.listLocked(e)
	}
	t.counts.async.Add(1)
	return weir.Decision{
		Allowed: true, Reason: weir.Admitted, By: a.state.by, Limit: a.state.limit, Remaining: a.state.remaining,
		ResetAfter: max(0, a.state.resetAt.Sub(now)), Estimate: true,
	}, true
}

// spendAllowance is spendLocked for who does not hold the lock.
func (t *Limiter) spendAllowance(c *call) (weir.Decision, bool) {
	c.entry.mu.Lock()
	defer c.entry.mu.Unlock()
	return t.spendLocked(c, c.now)
}

// maxUnsynced is the cap: how many units of a key this node may have granted without the
// store's knowledge.
func (t *Limiter) maxUnsynced(pl *plan) int64 {
	if t.config.MaxUnsynced > 0 {
		return t.config.MaxUnsynced
	}
	return max(1, pl.capacity/(10*int64(t.nodes())))
}
