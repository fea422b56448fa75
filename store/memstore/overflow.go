package memstore

import "github.com/weirlimit/weir/algo"

// An overflow is the row that all keys of a policy's name share which have no
// row of their own. It is strict: units used by one of them count for all. Reset
// does not affect it.
//
// A key that gets a row while the overflow row is in use may have been charged there
// before, so it starts with a copy of it. While the overflow row has reservations open, no
// new key gets a row: the reservations must be settled in the overflow row.
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

// startsInOverflow starts a key without a row with the usage of its policy's overflow
// row. It returns false if there is no such row in use.
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

// intoOverflow charges a key without a row to the overflow row, which is created with the
// limits n if there is none.
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

// takeOverflow makes r refer to the overflow row.
func (ls *lockSession) takeOverflow(r *row, o *overflow, trial bool) {
	r.overflow, r.ledger, r.scratch = o, o.ledger, false
	if trial {
		r.ledger = o.ledger.Clone() // other keys of the session may need the original
	}
}

// put makes r's ledger the state.
func (o *overflow) put(r *row) {
	r.limits.pin()
	o.limits.unpin()
	o.ledger, o.limits = r.ledger, r.limits
}
