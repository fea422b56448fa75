package memstore

import (
	"slices"

	"github.com/weirlimit/weir"
)

// What a refusal changes: the limits that a row is under, see compiled.Policy.RefusalConverts, and whether
// classes lend to each other, see algo.Ledger.Recall. It never changes the units in use.

// isRefused says whether charge i of a trial was refused, and its row may have to say so. Of several charges
// of a row, only the first is considered.
func (ls *lockSession) isRefused(b *weir.Batch, i int) bool {
	c := &ls.charges[i]
	if d := &b.Decisions[i]; d.Allowed || d.Reason == weir.NotCharged || c.row < 0 || c.cost == 0 {
		return false
	}
	if was := ls.rows[c.row].was; b.Used == nil && (was == nil || was == c.limits && !c.limits.lends) {
		return false // Used may have made a row, or put it under other limits
	}
	return !slices.ContainsFunc(ls.charges[:i], func(o charge) bool { return o.row == c.row })
}

// refuse puts the limits of a refused charge in force on its row, if they stay, and recalls what is lent.
func (ls *lockSession) refuse(r *row, c *charge, op weir.Op) {
	if r.limits == c.limits {
		ls.recall(r, c, op)
		return
	}
	before, state := *r, r.ledger.Checkpoint(ls.now)
	if err := r.convert(c.limits, ls.now); err != nil || !ls.refusalConverts(&before, r) {
		r.ledger.Rollback(state)
		*r = before
		return
	}
	r.changed = true
}

// refusalConverts says whether a row stays under the limits of a call that was refused. No row is made for
// that, and an overflow row, which other keys share, stays as it is.
func (ls *lockSession) refusalConverts(before, r *row) bool {
	exists := (before.was != nil || before.changed) && before.overflow == nil
	return exists && r.limits.policy.Compiled().RefusalConverts(before.limits.policy.Compiled()) && !r.ledger.HasHolds(ls.now)
}

// recall lets no class borrow that a refused charge waits for. No row is made for that.
func (ls *lockSession) recall(r *row, c *charge, op weir.Op) {
	if !c.limits.lends || r.overflow != nil || r.was == nil && !r.changed {
		return
	}
	r.ledger.SetClass(c.class)
	if r.ledger.Recall(ls.now, c.cost, op == weir.ReserveAll) {
		r.changed = true
	}
}
