package tiered

import (
	"math"
	"time"

	"github.com/weirlimit/weir"
)

// A denial is that a key has no room. It is written once.
type denial struct {
	limits    uint64       // of which numbers it was said
	epoch     uint64       // of the family
	cost      int64        // the least that was refused
	until     weir.Instant // it answers before that: counted from before the store was asked
	retryAt   weir.Instant // what callers are told: counted from when the answer came
	resetAt   weir.Instant
	by        uint8
	reason    weir.Reason
	never     bool // waiting cannot help
	limit     int64
	remaining int64
}

// denied returns the refusal of cost if it is known.
func (e *entry) denied(pl *plan, cost int64, now weir.Instant) (weir.Decision, bool) {
	n := e.denial.Load()
	if n == nil || now >= n.until || cost < n.cost || n.limits != pl.limits || n.epoch != pl.family.epoch.Load() {
		return weir.Decision{}, false
	}
	d := weir.Decision{
		Reason: n.reason, By: n.by, Limit: n.limit, Remaining: n.remaining,
		RetryAfter: max(1, n.retryAt.Sub(now)), ResetAfter: max(0, n.resetAt.Sub(now)), Estimate: true,
	}
	switch {
	case n.never:
		d.RetryAfter = weir.Never
	case cost > pl.capacity:
		d.RetryAfter, d.Reason = weir.Never, weir.TooCostly
	case cost > n.cost && pl.perNano[n.by] > 0: // otherwise it is at least so long
		d.RetryAfter += time.Duration(math.Ceil(float64(cost-n.cost) / pl.perNano[n.by]))
	}
	return d, true
}

// worthTelling is how long a denial must last for other nodes to be told: word takes
// some milliseconds to reach them.
const worthTelling = 20 * time.Millisecond

// refused remembers a refusal of the store, which was asked at sent, when the key
// was at m. An answer that a reset or a change has overtaken is not remembered.
func (t *Limiter) refused(pl *plan, e *entry, cost int64, d weir.Decision, sent weir.Instant, m moment) {
	if cost == 0 || d.Reason != weir.Exhausted && d.Reason != weir.TooCostly {
		return
	}
	now := t.now()
	n := &denial{
		limits: pl.limits, epoch: m.epoch, cost: cost,
		until: sent.Add(t.config.MaxDeny), retryAt: after(now, d.RetryAfter), resetAt: after(now, d.ResetAfter),
		by: d.By, reason: d.Reason, never: d.RetryAfter == weir.Never, limit: d.Limit, remaining: d.Remaining,
	}
	whole := after(sent, d.RetryAfter)
	n.until = min(n.until, whole)
	if n.until <= now {
		return
	}
	e.denial.Store(n)
	if t.table.moment(pl.family, e.hash) != m { // it may have been dropped before it was there
		e.denial.CompareAndSwap(n, nil)
		return
	}
	if l := e.lease.Load(); l != nil && l.serves(pl, cost, now) { // see install
		e.denial.CompareAndSwap(n, nil)
		return
	}
	if t.config.Bus != nil && !n.never && n.until.Sub(now) >= worthTelling {
		t.tell(e, n, whole)
	}
}

// drop forgets that a key is denied, also if just now somebody is being told so.
func (t *Limiter) drop(f *family, key string) *entry {
	h := t.table.hash(f, key)
	t.table.dropped(h)
	e := t.table.find(f, key, h)
	if e != nil {
		e.denial.Store(nil)
		e.copied.until.Store(0)
	}
	return e
}
