package memstore

import (
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/storeapi"
)

// A visit is one call's stay behind the locks: of the shards of its charges, in
// the order of their addresses, so that no two calls wait for each other. It
// serves everything but the decision on a single word.
//
// While it lasts it has the states of its rows: other callers read the mark and
// wait at the lock.
type visit struct {
	t       *Table
	now     int64
	charges []charge
	words   []found  // instead, if all is decided on words; see takeEach
	order   []int    // the charges' shards
	shards  []*shard // locked
	rows    []row    // taken
	over    bool     // t.overflowMu is locked
	spare   []*algo.Ledger
}

// A charge is a weir.Charge, and where it leads.
type charge struct {
	numbers *numbers
	shard   int
	h       uint64
	key     string
	cost    int64
	row     int    // in visit.rows; -1 while it was not taken
	over    bool   // it goes to the overflow row
	expiry  int64  // of its reservation
	hold    uint64 // its reservation, in the row's ledger
}

// enter locks the shards of the charges and reads the clock, unless now is given.
func (t *Table) enter(now int64, charges []weir.Charge) (*visit, error) {
	v := t.visits.Get().(*visit)
	for {
		v.charges = v.charges[:0]
		for i := range charges {
			c, err := t.charge(&charges[i])
			if err != nil {
				v.forget()
				return nil, err
			}
			v.charges = append(v.charges, c)
		}
		v.lock()
		if v.current() {
			break
		}
		v.unlock() // a policy was set meanwhile: ask again who is in force
	}
	v.now = now
	if now == 0 {
		v.now = int64(t.now())
	}
	for _, sh := range v.shards {
		v.now = max(v.now, sh.seen)
	}
	for _, sh := range v.shards {
		sh.seen = v.now
	}
	return v, nil
}

// charge finds out where a charge leads.
func (t *Table) charge(c *weir.Charge) (charge, error) {
	n, err := t.resolve(c.Policy)
	if err != nil {
		return charge{}, err
	}
	h := t.hash.sum(c.Key) ^ n.of.salt
	return charge{numbers: n, shard: int(h >> t.shift), h: h, key: c.Key, cost: c.Cost, row: -1}, nil
}

func (v *visit) lock() {
	v.shards = v.shards[:0]
	if len(v.charges) == 1 {
		v.lockShard(v.charges[0].shard)
		return
	}
	v.order = v.order[:0]
	for i := range v.charges {
		v.order = append(v.order, v.charges[i].shard)
	}
	slices.Sort(v.order)
	for _, i := range slices.Compact(v.order) {
		v.lockShard(i)
	}
}

func (v *visit) lockShard(i int) {
	sh := &v.t.shards[i]
	sh.mu.Lock()
	v.shards = append(v.shards, sh)
}

// current says whether the numbers of all charges are in force.
func (v *visit) current() bool {
	for i := range v.charges {
		if !v.charges[i].numbers.current() {
			return false
		}
	}
	return true
}

func (v *visit) unlock() {
	for _, sh := range v.shards {
		sh.mu.Unlock()
	}
}

// leave ends the visit. All rows must have been put or dropped.
func (v *visit) leave() {
	if v.over {
		v.t.overflowMu.Unlock()
	}
	v.unlock()
	v.forget()
}

// forget gives the visit's memory back. It refers to callers' keys.
func (v *visit) forget() {
	clear(v.rows)
	clear(v.charges)
	*v = visit{t: v.t, charges: v.charges[:0], words: v.words, order: v.order, shards: v.shards[:0], rows: v.rows[:0], spare: v.spare}
	v.t.visits.Put(v)
}

// rowOf takes the row of a charge, or returns it if it was taken for one before.
func (v *visit) rowOf(c *charge, trial bool) *row {
	for i := range v.rows {
		if r := &v.rows[i]; r.h == c.h && r.of == c.numbers.of && (!v.t.keepKeys || r.key == c.key) {
			c.row = i
			return r
		}
	}
	r := v.take(c, trial)
	if c.row = len(v.rows); r.overflow != nil {
		if first := v.overflowRow(r.of); first >= 0 {
			c.row = first
			return &v.rows[first]
		}
	}
	v.rows = append(v.rows, r)
	return &v.rows[c.row]
}

// overflowRow returns the place of the overflow row of a name, if it was taken,
// or -1.
func (v *visit) overflowRow(of *name) int {
	return slices.IndexFunc(v.rows, func(r row) bool { return r.of == of && r.overflow != nil })
}

// change makes a visit's only charge on its row, or on the overflow row if there is
// no room for one.
func (v *visit) change(c *charge, op weir.Op) (weir.Decision, error) {
	r := v.rowOf(c, false)
	for {
		d, err := v.attempt(r, c, op)
		if err != nil || !r.changed && r.was == nil {
			v.drop(r)
			return d, err
		}
		if v.put(r) {
			return d, nil
		}
		v.release(r)
		v.intoOverflow(r, c.numbers, false)
	}
}

// attempt makes a charge on a row's ledger if it fits or is a debit. If neither, or
// if it takes nothing, nothing has changed: not even the numbers that the row is
// under.
func (v *visit) attempt(r *row, c *charge, op weir.Op) (weir.Decision, error) {
	if r.overflow != nil {
		v.t.overflowHits.Add(1)
	}
	nothing := c.cost == 0 && op != weir.ReserveAll // a hold of nothing is a hold
	if r.numbers == c.numbers {
		d := v.act(op, c, r.ledger)
		r.changed = r.changed || d.Allowed && !nothing
		return d, nil
	}
	before, state := *r, r.ledger.Checkpoint(v.now)
	err := r.convert(c.numbers, v.now)
	var d weir.Decision
	if err == nil {
		d = v.act(op, c, r.ledger)
	}
	if err != nil || !d.Allowed || nothing {
		r.ledger.Rollback(state)
		*r = before
		return d, err
	}
	r.changed = true
	return d, nil
}

// act makes a charge on a ledger, if it fits or is a debit.
func (v *visit) act(op weir.Op, c *charge, l *algo.Ledger) weir.Decision {
	now := weir.Instant(v.now)
	switch op {
	case weir.DebitEach:
		return storeapi.Decision(l.Debit(v.now, c.cost), now)
	case weir.TakeEach, weir.TakeAll:
		return storeapi.Decision(l.Take(v.now, c.cost), now)
	}
	var verdict algo.Verdict
	c.hold, verdict = l.Reserve(v.now, c.cost, c.expiry)
	d := storeapi.Decision(verdict, now)
	if !verdict.OK && l.Peek(v.now, c.cost).OK { // then it was the number of holds
		d.Reason = weir.QueueFull
	}
	return d
}
