package memstore

import (
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/storeapi"
)

// A lockSession is a call that holds the locks of the shards of its charges, taken in
// the order of their indices, so that calls do not deadlock. It
// serves everything but the decision on a single word.
//
// During the session, the states of its rows are out of the table: other callers read the
// mark and wait for the lock.
type lockSession struct {
	t       *Table
	now     int64
	charges []charge
	words   []found  // instead of charges, if all are decided on words; see takeEach
	order   []int    // the charges' shards
	shards  []*shard // locked
	rows    []row    // taken
	over    bool     // t.overflowMu is locked
	spare   []*algo.Ledger
}

// A charge is a weir.Charge with its shard and row.
type charge struct {
	limits *compiledLimits
	shard  int
	h      uint64
	key    string
	cost   int64
	class  string // of the policy of the call
	row    int    // in lockSession.rows; -1 if not taken yet
	over   bool   // it goes to the overflow row
	expiry int64  // of its reservation
	hold   uint64 // its reservation, in the row's ledger

	refused bool // it is its row's first charge, and see lockSession.isRefused
}

// enter locks the shards of the charges and reads the clock, unless now is given.
func (t *Table) enter(now int64, charges []weir.Charge) (*lockSession, error) {
	ls := t.sessions.Get().(*lockSession)
	for {
		ls.charges = ls.charges[:0]
		for i := range charges {
			c, err := t.charge(&charges[i])
			if err != nil {
				ls.forget()
				return nil, err
			}
			ls.charges = append(ls.charges, c)
		}
		ls.lock()
		if ls.current() {
			break
		}
		ls.unlock() // a policy was set meanwhile: resolve again
	}
	ls.now = now
	if now == 0 {
		ls.now = int64(t.now())
	}
	for _, sh := range ls.shards {
		ls.now = max(ls.now, sh.seen)
	}
	for _, sh := range ls.shards {
		sh.seen = ls.now
	}
	return ls, nil
}

// charge resolves the limits and shard of a charge.
func (t *Table) charge(c *weir.Charge) (charge, error) {
	n, err := t.resolve(c.Policy)
	if err != nil {
		return charge{}, err
	}
	h := t.hash.sum(c.Key) ^ n.of.salt
	return charge{limits: n, shard: int(h >> t.shift), h: h, key: c.Key, cost: c.Cost, class: c.Policy.Compiled().Class, row: -1}, nil
}

func (ls *lockSession) lock() {
	ls.shards = ls.shards[:0]
	if len(ls.charges) == 1 {
		ls.lockShard(ls.charges[0].shard)
		return
	}
	ls.order = ls.order[:0]
	for i := range ls.charges {
		ls.order = append(ls.order, ls.charges[i].shard)
	}
	slices.Sort(ls.order)
	for _, i := range slices.Compact(ls.order) {
		ls.lockShard(i)
	}
}

func (ls *lockSession) lockShard(i int) {
	sh := &ls.t.shards[i]
	sh.mu.Lock()
	ls.shards = append(ls.shards, sh)
}

// current says whether the limits of all charges are in force.
func (ls *lockSession) current() bool {
	for i := range ls.charges {
		if !ls.charges[i].limits.current() {
			return false
		}
	}
	return true
}

func (ls *lockSession) unlock() {
	for _, sh := range ls.shards {
		sh.mu.Unlock()
	}
}

// leave releases the locks. All rows must have been put or dropped.
func (ls *lockSession) leave() {
	if ls.over {
		ls.t.overflowMu.Unlock()
	}
	ls.unlock()
	ls.forget()
}

// forget clears the session, which refers to callers' keys, and returns it to the pool.
func (ls *lockSession) forget() {
	clear(ls.rows)
	clear(ls.charges)
	ls.charges, ls.shards, ls.rows = ls.charges[:0], ls.shards[:0], ls.rows[:0]
	ls.now, ls.over = 0, false
	ls.t.sessions.Put(ls)
}

// rowOf takes the row of a charge, or returns it if it was taken for one before.
func (ls *lockSession) rowOf(c *charge, trial bool) *row {
	for i := range ls.rows {
		if r := &ls.rows[i]; r.h == c.h && r.of == c.limits.of && (!ls.t.keepKeys || r.key == c.key) {
			c.row = i
			return r
		}
	}
	r := ls.take(c, trial)
	if c.row = len(ls.rows); r.overflow != nil {
		if first := ls.overflowRow(r.of); first >= 0 {
			c.row = first
			return &ls.rows[first]
		}
	}
	ls.rows = append(ls.rows, r)
	return &ls.rows[c.row]
}

// overflowRow returns the place of the overflow row of a name, if it was taken,
// or -1.
func (ls *lockSession) overflowRow(of *name) int {
	return slices.IndexFunc(ls.rows, func(r row) bool { return r.of == of && r.overflow != nil })
}

// change makes a session's only charge on its row, or on the overflow row if there is
// no room for one.
func (ls *lockSession) change(c *charge, op weir.Op) (weir.Decision, error) {
	r := ls.rowOf(c, false)
	for {
		d, err := ls.attempt(r, c, op)
		if err == nil && !d.Allowed && c.cost > 0 {
			ls.refuse(r, c, op) // a batch of one
		}
		if err != nil || !r.changed && r.was == nil {
			ls.drop(r)
			return d, err
		}
		if ls.put(r) {
			return d, nil
		}
		ls.release(r)
		ls.intoOverflow(r, c.limits, false)
	}
}

// attempt makes a charge on a row's ledger if it fits or is a debit. Otherwise, or if the cost
// is 0, nothing is changed, not even the limits of the row; but see compiled.Policy.RefusalConverts.
func (ls *lockSession) attempt(r *row, c *charge, op weir.Op) (weir.Decision, error) {
	if r.overflow != nil {
		ls.t.overflowHits.Add(1)
	}
	nothing := c.cost == 0 && op != weir.ReserveAll // a hold of nothing is a hold
	if r.limits == c.limits {
		d := ls.act(op, c, r.ledger)
		r.changed = r.changed || d.Allowed && !nothing
		return d, nil
	}
	before, state := *r, r.ledger.Checkpoint(ls.now)
	err := r.convert(c.limits, ls.now)
	var d weir.Decision
	if err == nil {
		d = ls.act(op, c, r.ledger)
	}
	if err != nil || nothing || !d.Allowed && !(op == weir.TakeEach && ls.refusalConverts(&before, r)) {
		r.ledger.Rollback(state)
		*r = before
		return d, err
	}
	r.changed = true
	return d, nil
}

// act makes a charge on a ledger, if it fits or is a debit.
func (ls *lockSession) act(op weir.Op, c *charge, l *algo.Ledger) weir.Decision {
	now := weir.Instant(ls.now)
	l.SetClass(c.class)
	switch op {
	case weir.DebitEach:
		return storeapi.Decision(l.Debit(ls.now, c.cost), now)
	case weir.TakeEach, weir.TakeAll:
		return storeapi.Decision(l.Take(ls.now, c.cost), now)
	}
	var verdict algo.Verdict
	c.hold, verdict = l.Reserve(ls.now, c.cost, c.expiry)
	d := storeapi.Decision(verdict, now)
	if verdict.Crowded {
		d.Reason = weir.QueueFull
	}
	return d
}
