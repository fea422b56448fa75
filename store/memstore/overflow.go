package memstore

import "github.com/weirlimit/weir/algo"

// An overflow is the row that all keys of a policy's name share which found no
// place of their own. It is strict: what one of them uses, all have used. It
// belongs to nobody, so Reset does not reach it.
//
// A key that finds a place while the row is in use may have been charged there
// before, so it starts with a copy of it. While the row has reservations open, no
// new key gets a place: their settling belongs to that row.
//
// All overflow rows are guarded by Table.overflowMu.
type overflow struct {
	limits *compiledLimits // pinned
	ledger *algo.Ledger
}

// lockOverflow locks the overflow rows for the rest of the lock session.
func (ls *lockSession) lockOverflow() {
	if !ls.over {
		ls.t.overflowMu.Lock()
		ls.over = true
	}
}

// startsInOverflow gives a key without a row what its policy's overflow row says
// it may have used. It returns false if there is no such row in use.
func (ls *lockSession) startsInOverflow(r *row, trial bool) bool {
	if r.of.overflow.Load() == nil {
		return false
	}
	ls.lockOverflow()
	o := r.of.overflow.Load()
	if o == nil {
		return false
	}
	if o.ledger.Unused(ls.now) {
		if ls.overflowRow(r.of) < 0 { // no other key of this lock session is about to use it
			r.of.overflow.Store(nil)
			o.limits.unpin()
		}
		return false
	}
	r.limits = o.limits
	if o.ledger.Advance(ls.now) > 0 {
		ls.takeOverflow(r, o, trial)
		return true
	}
	r.ledger = o.ledger.Clone()
	r.ledger.ForgetOutcomes() // they are of that row
	return true
}

// intoOverflow lets a key that found no place be the overflow row, which n makes if
// there is none.
func (ls *lockSession) intoOverflow(r *row, n *compiledLimits, trial bool) {
	ls.lockOverflow()
	o := r.of.overflow.Load()
	if o == nil {
		n.pin()
		o = &overflow{n, algo.NewLedger(n.policy.Compiled().Rules, int64(ls.t.epoch))}
		r.of.overflow.Store(o)
	}
	r.limits = o.limits
	ls.takeOverflow(r, o, trial)
}

// takeOverflow lets r be the overflow row.
func (ls *lockSession) takeOverflow(r *row, o *overflow, trial bool) {
	r.overflow, r.ledger, r.scratch = o, o.ledger, false
	if trial {
		r.ledger = o.ledger.Clone() // other keys of the lock session may ask what it was
	}
}

// put makes r's ledger the state.
func (o *overflow) put(r *row) {
	r.limits.pin()
	o.limits.unpin()
	o.ledger, o.limits = r.ledger, r.limits
}
