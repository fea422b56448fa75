package tiered

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// copied says until when the copy of a key's state in Local may be decided on. A copy
// is as good as the last word of the store, so it is used for as long as the next should
// take: FlushEvery, and Timeout if that is not longer. A key that is not asked for that often has no use for
// a copy; it is asked for one by one.
type copied struct {
	until atomic.Int64 // an instant; 0 if there is no copy
	plan  atomic.Pointer[plan]
	sent  weir.Instant // when the store was asked for it; guarded by the entry's mu
}

// takeCopy decides on the copy, if there is one. It says that it asks before it looks whether
// it may: see forbid.
func (t *Limiter) takeCopy(c *call) (weir.Decision, bool) {
	e, pl := c.entry, c.plan
	if pl.copies == nil || int64(c.now) >= e.copied.until.Load() || t.closed.Load() {
		return weir.Decision{}, false
	}
	if of := e.copied.plan.Load(); of.limits != pl.limits || of.epoch != pl.family.epoch.Load() {
		return weir.Decision{}, false
	}
	most := t.mostUnsynced(pl)
	if c.cost > most {
		return weir.Decision{}, false
	}
	if e.debt.asked.Add(c.cost) > most || int64(c.now) >= e.copied.until.Load() {
		e.debt.asked.Add(-c.cost)
		return weir.Decision{}, false
	}
	d, err := t.localTake(pl.copies, c.key, c.cost)
	if err != nil || !d.Allowed {
		e.debt.asked.Add(-c.cost)
	} else if c.cost > 0 {
		e.debt.under(pl)
		e.debt.units.Add(c.cost)
		t.owe(e)
	}
	if err != nil {
		return weir.Decision{}, false
	}
	t.counts.async.Add(1)
	d.Estimate = true
	return d, true
}

// mostUnsynced is how many units of a key this node may have granted without the store's
// knowledge.
func (t *Limiter) mostUnsynced(pl *plan) int64 {
	if t.config.MaxUnsynced > 0 {
		return t.config.MaxUnsynced
	}
	return max(1, pl.capacity/(10*int64(t.nodes())))
}

// takeInTurn is for a charge that no copy answers: there is none, it is too old, or too
// much is owed. One caller at a time asks the store, and the others wait for the copy
// that this brings. Who has waited for batches, which bring none, asks together with the next
// of them. Who has waited for as long as the store may take is decided for without it.
func (t *Limiter) takeInTurn(ctx context.Context, c *call) (weir.Decision, error) {
	var cancel context.CancelFunc
	c.within, cancel = context.WithTimeout(ctx, t.store.budget(ctx))
	defer cancel()
	for why := askOnce; ; why = askAnyhow {
		if !t.needTurn(c) {
			defer t.leaveStrangers(*c)
			return t.take(ctx, c)
		}
		mine, over := c.entry.tryTurn(why)
		if mine {
			d, decided, err := t.inTurn(ctx, c)
			if decided || err != nil {
				return d, err
			}
		} else {
			select {
			case <-over:
			case <-c.within.Done():
			}
		}
		c.now, c.entry = t.now(), t.table.find(c.plan.family, c.key, c.hash)
		if d, ok := t.atOnce(c); ok {
			return d, nil
		}
		if c.within.Err() == nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return weir.Decision{}, err
		}
		return t.away(c, nil)
	}
}

// needTurn makes an entry for the key of a charge that the store is to be asked for, so that its
// turn can be taken. If there is no room, the charge is a stranger's, and has no turn. Should
// others find room meanwhile, no copy is made before leaveStrangers: it would not know of this.
func (t *Limiter) needTurn(c *call) bool {
	if c.needEntry(t) {
		return true
	}
	n := t.table.strange(c.hash)
	n.Add(1)
	if c.needEntry(t) { // looked up after that was said, so that either sees the other
		n.Add(-1)
		return true
	}
	c.stranger = true
	return false
}

// leaveStrangers is for calls that may be strangers', after the store was asked.
func (t *Limiter) leaveStrangers(calls ...call) {
	for i := range calls {
		if c := &calls[i]; c.stranger {
			t.table.dropped(c.hash)
			t.table.strange(c.hash).Add(-1)
		}
	}
}

// inTurn has the store told of the key's debt, if there is one, so that the copy can decide on the
// charge. If there is none, or if the charge is too much for any copy, it asks for the charge. It
// ends the turn.
func (t *Limiter) inTurn(ctx context.Context, c *call) (d weir.Decision, decided bool, err error) {
	e := c.entry
	defer e.endTurn()
	asks := e.turn.joint || e.debt.units.Load() == 0 || c.cost > t.mostUnsynced(c.plan)
	err = t.tellDebts(ctx, c.within, turns{e}, asks)
	switch {
	case isAway(err):
		d, err = t.away(c, nil) // what is unknown is the debt
		return d, true, err
	case err != nil || !asks:
		return d, false, err
	}
	c.now = t.now()
	d, err = t.take(ctx, c)
	return d, true, err
}

// localTake charges the copies of all limits, or none.
func (t *Limiter) localTake(copies []*weir.Policy, key string, cost int64) (weir.Decision, error) {
	if len(copies) == 1 {
		return t.config.Local.Take(context.Background(), copies[0], key, cost)
	}
	b := weir.Batch{Op: weir.TakeAll, Charges: charges(copies, key, cost)}
	if err := t.config.Local.Do(context.Background(), &b); err != nil {
		return weir.Decision{}, err
	}
	return tightest(b.Decisions), nil
}

func charges(policies []*weir.Policy, key string, cost int64) (list []weir.Charge) {
	for _, p := range policies {
		list = append(list, weir.Charge{Policy: p, Key: key, Cost: cost})
	}
	return list
}

// tightest returns the decision of several limits, each of which has one in list.
func tightest(list []weir.Decision) weir.Decision {
	best := 0
	for i, d := range list {
		switch b := list[best]; {
		case d.Reason != weir.Admitted && (b.Reason == weir.Admitted || longer(d.RetryAfter, b.RetryAfter)):
			best = i
		case d.Reason == weir.Admitted && b.Reason == weir.Admitted && d.Remaining < b.Remaining:
			best = i
		}
	}
	d := list[best]
	d.By = uint8(best)
	return d
}

// longer says whether a wait is longer than another; Never is the longest.
func longer(a, b time.Duration) bool { return b != weir.Never && (a == weir.Never || a > b) }

// sync makes the copy what the store has just said, in answer to a call that was sent
// when the key was at m, by whoever has the turn. The store tells how one limit stands, the tightest. What it
// counts more than the copy was charged by other nodes, and so to all limits.
//
// Units that were granted here and that the store does not know of are in the copy, so
// they are left out of the comparison: those that are being asked for, too, and read
// after it, lest one be missed.
func (t *Limiter) sync(pl *plan, e *entry, d weir.Decision, sent weir.Instant, m moment) {
	if int(d.By) >= len(pl.copies) || t.outdated(pl, e, m) || t.closed.Load() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if sent < e.copied.sent || e.turn.joint || e.gone { // an older answer, overtaken, or one of several
		return
	}
	here, err := weir.Peek(context.Background(), t.config.Local, pl.copies[d.By], e.key, 0)
	if err != nil {
		return
	}
	unknown := e.debt.asked.Load()
	there := usedOf(pl.perNano[d.By], d)
	more := there - (usedOf(pl.perNano[d.By], here) - float64(unknown))
	switch {
	case more > little:
		err = t.debitCopies(pl.copies, e.key, more)
	case more < -1-little: // refunded or reset elsewhere, or it was rounded up
		e.forbid()
		unknown = e.debt.asked.Load()
		if err = weir.Reset(context.Background(), t.config.Local, pl.copies[d.By], e.key); err == nil {
			err = t.debitCopies(pl.copies[d.By:d.By+1], e.key, there+float64(unknown))
		}
	}
	if err != nil {
		e.copied.until.Store(0)
		return
	}
	e.copied.sent = sent
	e.copied.plan.Store(pl)
	e.copied.until.Store(int64(sent.Add(t.config.FlushEvery + min(t.config.FlushEvery, t.config.Timeout))))
	if t.outdated(pl, e, m) { // before it was there
		e.copied.until.Store(0)
	}
}

// outdated says whether a copy of what the store has said, when the key was at m, would know less
// than there is to know.
func (t *Limiter) outdated(pl *plan, e *entry, m moment) bool {
	return t.table.moment(pl.family, e.hash) != m || t.table.strange(e.hash).Load() != 0
}

// little is what may come back of slow limits while word of the store is on its way.
const little = 1e-3

// debitCopies charges units to copies, rounded up.
func (t *Limiter) debitCopies(copies []*weir.Policy, key string, units float64) error {
	cost := int64(min(math.Ceil(units-little), float64(weir.MaxCost)))
	b := weir.Batch{Op: weir.DebitEach, Charges: charges(copies, key, cost)}
	return t.config.Local.Do(context.Background(), &b)
}

// usedOf returns how many units are in use after d, of a limit of which perNano units
// come back in a nanosecond, or 0 if it is a window. The time until it is as if unused
// tells that to a fraction, and beyond the limit; but where units are held, it tells
// when the last hold expires.
func usedOf(perNano float64, d weir.Decision) float64 {
	used := float64(d.Limit - d.Remaining)
	if perNano > 0 && d.ResetAfter >= 0 {
		if exact := float64(d.ResetAfter) * perNano; d.Remaining == 0 || math.Abs(exact-used) <= 1 {
			return exact
		}
	}
	return used
}
