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
	ls, err := t.enter(int64(now), b.Charges[i:i+1])
	if err != nil {
		return err
	}
	defer ls.leave()
	if b.Op == weir.Settle {
		b.Settled[i] = ls.settle(&ls.charges[0], b.Receipts[i])
		return nil
	}
	ls.reset(&ls.charges[0])
	return nil
}

// reset forgets what a key has used. Its limits stay as they are.
func (ls *lockSession) reset(c *charge) {
	r := ls.rowOf(c, false)
	if r.was == nil {
		ls.drop(r)
		return
	}
	r.ledger.Reset(ls.now)
	ls.put(r)
}

// takeEach goes over the charges several times: to find out where each leads, to fetch
// what is there, and to decide.
func (t *Table) takeEach(now weir.Instant, b *weir.Batch) error {
	ls := t.sessions.Get().(*lockSession)
	defer ls.forgetWords()
	for i := range b.Charges {
		c := &b.Charges[i]
		n, err := t.resolve(c.Policy)
		if err != nil {
			return err
		}
		if n.word == nil && n.policy.ReserveOnly() {
			return weir.ErrReserveOnly
		}
		ls.words = append(ls.words, found{limits: n, h: t.hash.sum(c.Key) ^ n.of.salt})
	}
	ls.fetch()
	if !ls.findWords(b.Charges) {
		return t.tryEach(now, b)
	}
	for i := range ls.words {
		if ls.words[i].take(&b.Decisions[i], now, b.Charges[i].Cost) {
			continue
		}
		var err error
		if b.Decisions[i], err = t.takeSlowly(now, b.Charges[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// found is where a charge of takeEach or takeWords leads.
type found struct {
	limits *compiledLimits
	h      uint64
	word   *atomic.Uint64

	was, next uint64 // of takeWords: the word's value before it was taken out, and after the charge
}

// fetch has the processor fetch the rows of all charges at once. It is a loop of its own with
// nothing in it that depends on a row: how far a row is from where its key may be first cannot be
// foreseen, and a processor that has guessed wrong begins again after it has the row.
func (ls *lockSession) fetch() {
	if ls.t.keepKeys { // those are compared, which is slower anyway
		return
	}
	for i := range ls.words {
		h := ls.words[i].h
		ls.t.fronts[h>>ls.t.shift].fetch(h)
	}
}

// findWords finds the words of all charges, and says whether each has one under its
// limits.
func (ls *lockSession) findWords(charges []weir.Charge) bool {
	for i := range ls.words {
		f := &ls.words[i]
		if f.limits.word == nil {
			return false
		}
		if f.word = ls.t.find(f.h, f.limits, charges[i].Key); f.word == nil {
			return false
		}
	}
	return true
}

// take decides on the word, or returns false if the state is elsewhere by now. It does as
// Table.Take, whose comments tell why the steps are inlined.
func (f *found) take(d *weir.Decision, now weir.Instant, cost int64) bool {
	n := f.limits
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
func (ls *lockSession) forgetWords() {
	clear(ls.words)
	ls.words = ls.words[:0]
	ls.t.sessions.Put(ls)
}

// tryEach makes each charge of TakeEach or DebitEach behind the locks of all, where
// states can be converted: if one cannot, nothing is charged.
func (t *Table) tryEach(now weir.Instant, b *weir.Batch) error {
	ls, err := t.enterBatch(now, b)
	if err != nil {
		return err
	}
	defer ls.leave()
	if len(ls.charges) == 1 && b.Used == nil {
		b.Decisions[0], err = ls.change(&ls.charges[0], b.Op)
		return err
	}
	if err := ls.trial(b, true); err != nil {
		ls.dropAll()
		return err
	}
	ls.putAll()
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
func (t *Table) peekWord(n *compiledLimits, h uint64, key string, now weir.Instant, cost int64) (weir.Decision, bool) {
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
	ls, err := t.enter(int64(now), []weir.Charge{*charge})
	if err != nil {
		return weir.Decision{}, false, err
	}
	defer ls.leave()
	c := &ls.charges[0]
	return ls.peek(c)
}

func (ls *lockSession) peek(c *charge) (d weir.Decision, held bool, err error) {
	r := ls.rowOf(c, false)
	defer ls.drop(r)
	if r.ledger.Advance(ls.now); r.limits != c.limits && !r.scratch { // the ledger is somebody's own
		r.try(ls.now)
	}
	if err := r.convert(c.limits, ls.now); err != nil {
		return weir.Decision{}, false, err
	}
	r.ledger.SetClass(c.class)
	return storeapi.Decision(r.ledger.Peek(ls.now, c.cost), weir.Instant(ls.now)), r.ledger.HasHolds(ls.now), nil
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
	ls, err := t.enterBatch(now, b)
	if err != nil {
		return err
	}
	defer ls.leave()
	return ls.undo(b, nil)
}

// waitUntil returns how long it is until at, which may be never.
func waitUntil(at int64, now weir.Instant) time.Duration {
	if at == algo.Never {
		return weir.Never
	}
	return weir.Instant(at).Sub(now)
}

func (t *Table) tryAll(now weir.Instant, b *weir.Batch) error {
	ls, err := t.enterBatch(now, b)
	if err != nil {
		return err
	}
	defer ls.leave()
	if b.Op == weir.TakeAll && b.Used == nil && ls.takeWords(b) {
		return nil
	}
	if len(ls.charges) == 1 && b.Used == nil { // all or nothing by itself
		c := &ls.charges[0]
		if b.Decisions[0], err = ls.change(c, b.Op); err != nil || !b.Decisions[0].Allowed {
			return err
		}
	} else {
		if err := ls.trial(b, true); err != nil || !b.Allowed() {
			return ls.undo(b, err)
		}
		ls.putAll()
	}
	if b.Op == weir.ReserveAll {
		for i := range ls.charges {
			b.Receipts[i] = ls.newHold(&ls.charges[i])
		}
	}
	return nil
}

// enterBatch is enter for all charges of a batch that can be part of it.
func (t *Table) enterBatch(now weir.Instant, b *weir.Batch) (*lockSession, error) {
	ls, err := t.enter(int64(now), b.Charges)
	if err != nil {
		return nil, err
	}
	for i := range ls.charges {
		c := &ls.charges[i]
		err := ls.check(b, c)
		if b.Used != nil && b.Used[i] > 0 && c.limits.policy.ReserveOnly() {
			err = weir.ErrReserveOnly
		}
		if err != nil {
			ls.leave()
			return nil, err
		}
	}
	return ls, nil
}

// check returns why a charge cannot be part of a batch, and notes when its
// reservation expires.
func (ls *lockSession) check(b *weir.Batch, c *charge) (err error) {
	if b.Op == weir.ReserveAll {
		c.expiry, err = c.limits.policy.Compiled().Expiry(ls.now, b.TTL)
		return err
	}
	if c.limits.policy.ReserveOnly() {
		return weir.ErrReserveOnly
	}
	return nil
}

// undo forgets what a trial has changed. If it was refused, and not an error, the
// units in b.Used are charged all the same, and rows stay under the limits that refused;
// see compiled.Policy.RefusalConverts.
func (ls *lockSession) undo(b *weir.Batch, err error) error {
	for i := range ls.charges {
		ls.charges[i].refused = err == nil && ls.isRefused(b, i)
	}
	ls.startOver()
	if err != nil {
		return err
	}
	if err := ls.trial(b, false); err != nil {
		ls.dropAll()
		return err
	}
	for i := range ls.charges {
		if c := &ls.charges[i]; c.refused {
			ls.refuse(ls.rowOf(c, true), c, b.Op)
		}
	}
	ls.putAll()
	return nil
}

// trial charges b.Used and then, if charges is true, makes every charge that fits, on
// copies. Then it gets new keys the right to a row: after the decisions, because
// nobody may be evicted for the sake of a charge that is refused. If one finds no
// place, all is tried again with that key in its overflow row.
func (ls *lockSession) trial(b *weir.Batch, charges bool) error {
	for {
		if err := ls.tryUsed(b); err != nil {
			return err
		}
		if charges {
			if err := ls.tryCharges(b); err != nil {
				return err
			}
			if (b.Op == weir.TakeAll || b.Op == weir.ReserveAll) && !b.Allowed() {
				return nil
			}
		}
		if ls.admitAll() {
			return nil
		}
		ls.startOver()
	}
}

// tryUsed charges the units in b.Used, whether they fit or not.
func (ls *lockSession) tryUsed(b *weir.Batch) error {
	for i, units := range b.Used {
		if units == 0 {
			continue
		}
		c := &ls.charges[i]
		debit := *c
		debit.cost = units
		if _, err := ls.attempt(ls.rowOf(c, true), &debit, weir.DebitEach); err != nil {
			return err
		}
	}
	return nil
}

// tryCharges makes every charge that fits.
func (ls *lockSession) tryCharges(b *weir.Batch) (err error) {
	for i := range ls.charges {
		c := &ls.charges[i]
		r := ls.rowOf(c, true)
		if b.Decisions[i], err = ls.attempt(r, c, b.Op); err != nil {
			return err
		}
		if b.Op == weir.TakeEach && !b.Decisions[i].Allowed && r.limits == c.limits {
			ls.recall(r, c, b.Op)
		}
	}
	return nil
}

// startOver gives all states back as they were, to be taken again.
func (ls *lockSession) startOver() {
	ls.dropAll()
	clear(ls.rows)
	ls.rows = ls.rows[:0]
	for i := range ls.charges {
		ls.charges[i].row = -1
	}
}

// putAll keeps what was tried.
func (ls *lockSession) putAll() {
	for i := range ls.rows {
		if ls.rows[i].changed {
			ls.put(&ls.rows[i])
		} else {
			ls.drop(&ls.rows[i])
		}
	}
}

// admitAll gets every new key that was charged the right to a row, and says whether
// there was one for each.
func (ls *lockSession) admitAll() bool {
	all := true
	for i := range ls.charges {
		c := &ls.charges[i]
		if c.row < 0 { // not part of this trial
			continue
		}
		if r := &ls.rows[c.row]; r.changed && !ls.admit(r) {
			c.over, all = true, false
		}
	}
	return all
}

// dropAll gives all states back as they were.
func (ls *lockSession) dropAll() {
	for i := range ls.rows {
		ls.drop(&ls.rows[i])
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
	ls, err := t.enter(int64(now), b.Charges[i:i+1])
	if err != nil {
		return err
	}
	defer ls.leave()
	c := &ls.charges[0]
	expiry, err := c.limits.policy.Compiled().Expiry(ls.now, b.TTL)
	if err != nil {
		return err
	}
	b.Decisions[i] = weir.Decision{Reason: weir.TooLate, RetryAfter: weir.Never}
	if ls.renew(c, &b.Receipts[i], expiry) {
		b.Decisions[i] = weir.Decision{Allowed: true, Reason: weir.Admitted}
	}
	return nil
}
