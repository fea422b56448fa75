package memstore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/storeapi"
)

// Do carries out a batch with one clock reading. TakeAll, ReserveAll and DebitEach
// hold the locks of all their keys' shards meanwhile, and so are one step for
// everybody else; the other operations are one step per charge.
func (t *Table) Do(ctx context.Context, b *weir.Batch) error {
	if err := storeapi.CheckBatch(b); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(b.Charges) == 0 {
		return nil
	}
	now := t.now()
	switch b.Op {
	case weir.TakeEach:
		if b.Used != nil {
			return t.tryEach(now, b)
		}
		return t.takeEach(now, b)
	case weir.TakeAll, weir.ReserveAll:
		return t.takeAll(now, b)
	case weir.DebitEach:
		return t.tryEach(now, b)
	case weir.Renew:
		return t.renewEach(now, b)
	}
	for i := range b.Charges {
		if err := t.doOne(now, b, i); err != nil {
			return err
		}
	}
	return nil
}

// doOne carries out charge i of an operation that treats each on its own.
func (t *Table) doOne(now weir.Instant, b *weir.Batch, i int) (err error) {
	if b.Op == weir.PeekEach {
		b.Decisions[i], err = t.peek(now, &b.Charges[i])
		return err
	}
	v, err := t.enter(int64(now), b.Charges[i:i+1])
	if err != nil {
		return err
	}
	defer v.leave()
	if b.Op == weir.Settle {
		b.Settled[i] = v.settle(&v.charges[0], b.Receipts[i])
		return nil
	}
	v.reset(&v.charges[0])
	return nil
}

// reset forgets what a key has used. Its numbers stay as they are.
func (v *visit) reset(c *charge) {
	r := v.rowOf(c, false)
	if r.was == nil {
		v.drop(r)
		return
	}
	r.ledger.Reset(v.now)
	v.put(r)
}

// takeEach goes over the charges several times: to find out where each leads, to fetch
// what is there, and to decide.
func (t *Table) takeEach(now weir.Instant, b *weir.Batch) error {
	v := t.visits.Get().(*visit)
	defer v.forgetWords()
	for i := range b.Charges {
		c := &b.Charges[i]
		n, err := t.resolve(c.Policy)
		if err != nil {
			return err
		}
		if n.word == nil && n.policy.ReserveOnly() {
			return weir.ErrReserveOnly
		}
		v.words = append(v.words, found{numbers: n, h: t.hash.sum(c.Key) ^ n.of.salt})
	}
	v.fetch()
	if !v.findWords(b.Charges) {
		return t.tryEach(now, b)
	}
	for i := range v.words {
		if v.words[i].take(&b.Decisions[i], now, b.Charges[i].Cost) {
			continue
		}
		var err error
		if b.Decisions[i], err = t.takeSlowly(now, b.Charges[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// found is where a charge of takeEach leads.
type found struct {
	numbers *numbers
	h       uint64
	word    *atomic.Uint64
}

// fetch has the processor fetch the rows of all charges at once. It is a loop of its own with
// nothing in it that depends on a row: how far a row is from where its key may be first cannot be
// foreseen, and a processor that has guessed wrong begins again after it has the row.
func (v *visit) fetch() {
	if v.t.keepKeys { // those are compared, which is slower anyway
		return
	}
	for i := range v.words {
		h := v.words[i].h
		v.t.fronts[h>>v.t.shift].fetch(h)
	}
}

// findWords finds the words of all charges, and says whether each has one under its
// numbers.
func (v *visit) findWords(charges []weir.Charge) bool {
	for i := range v.words {
		f := &v.words[i]
		if f.numbers.word == nil {
			return false
		}
		if f.word = v.t.find(f.h, f.numbers, charges[i].Key); f.word == nil {
			return false
		}
	}
	return true
}

// take decides on the word, or returns false if the state is elsewhere by now. It does as
// Table.Take, whose comments tell why the steps are inlined.
func (f *found) take(d *weir.Decision, now weir.Instant, cost int64) bool {
	n := f.numbers
	if !n.isGCRA || uint64(cost-1) >= uint64(n.gcra.Capacity()) {
		var ok bool
		*d, ok = takeWord(n, f.word, now, cost)
		return ok
	}
	tick := n.gcra.Tick(int64(now))
	for {
		tat := f.word.Load()
		if tat == algo.Mark {
			return false
		}
		next, ok := n.gcra.Step(tat, tick, cost)
		if !ok {
			d.Reason, d.Limit, d.Remaining = weir.Exhausted, n.gcra.Capacity(), n.gcra.Room(tat, tick)
			d.RetryAfter = time.Duration(n.gcra.Wait(n.gcra.RetryTick(next), tick, int64(now)))
			d.ResetAfter = time.Duration(n.gcra.Wait(max(tat, tick), tick, int64(now)))
			return true
		}
		if f.word.CompareAndSwap(tat, next) {
			d.Allowed, d.Reason, d.Limit, d.Remaining = true, weir.Admitted, n.gcra.Capacity(), n.gcra.Room(next, tick)
			d.ResetAfter = time.Duration(n.gcra.Wait(next, tick, int64(now)))
			return true
		}
	}
}

// forgetWords ends a takeEach.
func (v *visit) forgetWords() {
	clear(v.words)
	v.words = v.words[:0]
	v.t.visits.Put(v)
}

// tryEach makes each charge of TakeEach or DebitEach behind the locks of all, where
// states can be converted: if one cannot, nothing is charged.
func (t *Table) tryEach(now weir.Instant, b *weir.Batch) error {
	v, err := t.enterBatch(now, b)
	if err != nil {
		return err
	}
	defer v.leave()
	if len(v.charges) == 1 && b.Used == nil {
		b.Decisions[0], err = v.change(&v.charges[0], b.Op)
		return err
	}
	if err := v.trial(b, true); err != nil {
		v.dropAll()
		return err
	}
	v.putAll()
	return nil
}

// peek says what Take would, and changes nothing.
func (t *Table) peek(now weir.Instant, c *weir.Charge) (weir.Decision, error) {
	n, err := t.resolve(c.Policy)
	if err != nil {
		return weir.Decision{}, err
	}
	if n.word != nil {
		h := t.hash.sum(c.Key) ^ n.of.salt
		if d, ok := t.peekWord(n, h, c.Key, now, c.Cost); ok {
			return d, nil
		}
	}
	d, _, err := t.peekSlowly(now, c)
	return d, err
}

// peekWord looks at the word of a key's row, or returns false if it has none or
// the state is elsewhere.
func (t *Table) peekWord(n *numbers, h uint64, key string, now weir.Instant, cost int64) (weir.Decision, bool) {
	at := t.find(h, n, key)
	if at == nil {
		return weir.Decision{}, false
	}
	word := at.Load()
	if word == algo.Mark {
		return weir.Decision{}, false
	}
	_, ok := n.word.Take(word, int64(now), cost)
	return storeapi.Decision(n.word.Verdict(word, int64(now), cost, ok), now), true
}

// peekSlowly is peek behind the lock. It also says whether the key has unexpired
// reservations.
func (t *Table) peekSlowly(now weir.Instant, charge *weir.Charge) (d weir.Decision, held bool, err error) {
	v, err := t.enter(int64(now), []weir.Charge{*charge})
	if err != nil {
		return weir.Decision{}, false, err
	}
	defer v.leave()
	c := &v.charges[0]
	return v.peek(c)
}

func (v *visit) peek(c *charge) (d weir.Decision, held bool, err error) {
	r := v.rowOf(c, false)
	defer v.drop(r)
	if r.ledger.Advance(v.now); r.numbers != c.numbers && !r.scratch { // the ledger is somebody's own
		r.try(v.now)
	}
	if err := r.convert(c.numbers, v.now); err != nil {
		return weir.Decision{}, false, err
	}
	return storeapi.Decision(r.ledger.Peek(v.now, c.cost), weir.Instant(v.now)), r.ledger.HasHolds(v.now), nil
}

// takeAll makes all charges of TakeAll or ReserveAll, or none.
func (t *Table) takeAll(now weir.Instant, b *weir.Batch) error {
	if b.Op == weir.ReserveAll {
		if until, ok := t.claimHolds(int64(now), len(b.Charges)); !ok {
			return t.refuseAll(now, b, until)
		}
	}
	err := t.tryAll(now, b)
	if b.Op == weir.ReserveAll && (err != nil || !b.Allowed()) {
		t.holds.open.Add(-int64(len(b.Charges)))
	}
	if err == nil && !b.Allowed() {
		for i := range b.Decisions {
			if d := &b.Decisions[i]; d.Allowed {
				d.Allowed, d.Reason = false, weir.NotCharged
			}
		}
	}
	return err
}

// refuseAll refuses reservations because too many are open, until one expires. A
// charge that would have to wait longer anyway says so.
func (t *Table) refuseAll(now weir.Instant, b *weir.Batch, until int64) error {
	if b.Used != nil {
		if err := t.debitUsed(now, b); err != nil {
			return err
		}
	}
	for i := range b.Charges {
		n, err := t.resolve(b.Charges[i].Policy)
		if err != nil {
			return err
		}
		if _, err := n.policy.Compiled().Expiry(int64(now), b.TTL); err != nil {
			return err
		}
		d, held, err := t.peekSlowly(now, &b.Charges[i])
		if err != nil {
			return err
		}
		if wait := waitUntil(until, now); wait > d.RetryAfter {
			d.Allowed, d.Reason, d.RetryAfter, d.Held = false, weir.QueueFull, wait, held
		}
		b.Decisions[i] = d
	}
	return nil
}

// debitUsed charges the units in b.Used and nothing else.
func (t *Table) debitUsed(now weir.Instant, b *weir.Batch) error {
	v, err := t.enterBatch(now, b)
	if err != nil {
		return err
	}
	defer v.leave()
	return v.undo(b, nil)
}

// waitUntil returns how long it is until at, which may be never.
func waitUntil(at int64, now weir.Instant) time.Duration {
	if at == algo.Never {
		return weir.Never
	}
	return weir.Instant(at).Sub(now)
}

func (t *Table) tryAll(now weir.Instant, b *weir.Batch) error {
	v, err := t.enterBatch(now, b)
	if err != nil {
		return err
	}
	defer v.leave()
	if len(v.charges) == 1 && b.Used == nil { // all or nothing by itself
		c := &v.charges[0]
		if b.Decisions[0], err = v.change(c, b.Op); err != nil || !b.Decisions[0].Allowed {
			return err
		}
	} else {
		if err := v.trial(b, true); err != nil || !b.Allowed() {
			return v.undo(b, err)
		}
		v.putAll()
	}
	if b.Op == weir.ReserveAll {
		for i := range v.charges {
			b.Receipts[i] = v.newHold(&v.charges[i])
		}
	}
	return nil
}

// enterBatch is enter for all charges of a batch that can be part of it.
func (t *Table) enterBatch(now weir.Instant, b *weir.Batch) (*visit, error) {
	v, err := t.enter(int64(now), b.Charges)
	if err != nil {
		return nil, err
	}
	for i := range v.charges {
		c := &v.charges[i]
		err := v.check(b, c)
		if b.Used != nil && b.Used[i] > 0 && c.numbers.policy.ReserveOnly() {
			err = weir.ErrReserveOnly
		}
		if err != nil {
			v.leave()
			return nil, err
		}
	}
	return v, nil
}

// check returns why a charge cannot be part of a batch, and notes when its
// reservation expires.
func (v *visit) check(b *weir.Batch, c *charge) (err error) {
	if b.Op == weir.ReserveAll {
		c.expiry, err = c.numbers.policy.Compiled().Expiry(v.now, b.TTL)
		return err
	}
	if c.numbers.policy.ReserveOnly() {
		return weir.ErrReserveOnly
	}
	return nil
}

// undo forgets what a trial has changed. If it was refused, and not an error, the
// units in b.Used are charged all the same.
func (v *visit) undo(b *weir.Batch, err error) error {
	v.startOver()
	if err != nil || b.Used == nil {
		return err
	}
	if err := v.trial(b, false); err != nil {
		v.dropAll()
		return err
	}
	v.putAll()
	return nil
}

// trial charges b.Used and then, if charges is true, makes every charge that fits, on
// copies. Then it gets new keys the right to a row: after the decisions, because
// nobody may be evicted for the sake of a charge that is refused. If one finds no
// place, all is tried again with that key in its overflow row.
func (v *visit) trial(b *weir.Batch, charges bool) error {
	for {
		if err := v.tryUsed(b); err != nil {
			return err
		}
		if charges {
			if err := v.tryCharges(b); err != nil {
				return err
			}
			if (b.Op == weir.TakeAll || b.Op == weir.ReserveAll) && !b.Allowed() {
				return nil
			}
		}
		if v.admitAll() {
			return nil
		}
		v.startOver()
	}
}

// tryUsed charges the units in b.Used, whether they fit or not.
func (v *visit) tryUsed(b *weir.Batch) error {
	for i, units := range b.Used {
		if units == 0 {
			continue
		}
		c := &v.charges[i]
		debit := *c
		debit.cost = units
		if _, err := v.attempt(v.rowOf(c, true), &debit, weir.DebitEach); err != nil {
			return err
		}
	}
	return nil
}

// tryCharges makes every charge that fits.
func (v *visit) tryCharges(b *weir.Batch) (err error) {
	for i := range v.charges {
		c := &v.charges[i]
		if b.Decisions[i], err = v.attempt(v.rowOf(c, true), c, b.Op); err != nil {
			return err
		}
	}
	return nil
}

// startOver gives all states back as they were, to be taken again.
func (v *visit) startOver() {
	v.dropAll()
	clear(v.rows)
	v.rows = v.rows[:0]
	for i := range v.charges {
		v.charges[i].row = -1
	}
}

// putAll keeps what was tried.
func (v *visit) putAll() {
	for i := range v.rows {
		if v.rows[i].changed {
			v.put(&v.rows[i])
		} else {
			v.drop(&v.rows[i])
		}
	}
}

// admitAll gets every new key that was charged the right to a row, and says whether
// there was one for each.
func (v *visit) admitAll() bool {
	all := true
	for i := range v.charges {
		c := &v.charges[i]
		if c.row < 0 { // not part of this trial
			continue
		}
		if r := &v.rows[c.row]; r.changed && !v.admit(r) {
			c.over, all = true, false
		}
	}
	return all
}

// dropAll gives all states back as they were.
func (v *visit) dropAll() {
	for i := range v.rows {
		v.drop(&v.rows[i])
	}
}

// renewEach renews each reservation, or none if the time to live is wrong. A
// decision says whether its reservation was open.
func (t *Table) renewEach(now weir.Instant, b *weir.Batch) error {
	for i := range b.Charges {
		n, err := t.resolve(b.Charges[i].Policy)
		if err != nil {
			return err
		}
		if _, err := n.policy.Compiled().Expiry(int64(now), b.TTL); err != nil {
			return err
		}
	}
	for i := range b.Charges {
		if err := t.renewOne(now, b, i); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) renewOne(now weir.Instant, b *weir.Batch, i int) error {
	v, err := t.enter(int64(now), b.Charges[i:i+1])
	if err != nil {
		return err
	}
	defer v.leave()
	c := &v.charges[0]
	expiry, err := c.numbers.policy.Compiled().Expiry(v.now, b.TTL)
	if err != nil {
		return err
	}
	b.Decisions[i] = weir.Decision{Reason: weir.TooLate, RetryAfter: weir.Never}
	if v.renew(c, &b.Receipts[i], expiry) {
		b.Decisions[i] = weir.Decision{Allowed: true, Reason: weir.Admitted}
	}
	return nil
}
