package tiered

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// A syncCall is a call to the store that carries unsynced usage of some keys, all on one
// part, in Batch.Used. It has a deadline of its own, which is longer than callers wait: a
// late reply is worth more than units of which nobody knows whether they were charged.
type syncCall struct {
	batch weir.Batch
	calls []call // of callers: one for each charge, except of flushes
	keys  []syncKey

	// late says that a caller has stopped waiting for the reply, and the breaker
	// has counted that as a failure.
	late atomic.Bool
}

// A syncKey is a key of a syncCall.
type syncKey struct {
	entry    *entry
	plan     *plan
	unsynced int64  // units that the call carries
	shared   int64  // units that this node's share granted, of which it carries what unpaid says
	sent     uint64 // the number of the call, among those for the key
	place    int    // of the key's last charge in the batch, whose decision says what remains
}

// newSync returns the call with the charges of a caller. One for whose key there is no room in
// the table has nothing to carry.
func (t *Limiter) newSync(b weir.Batch, calls []call) *syncCall {
	s := &syncCall{batch: b, calls: slices.Clone(calls)}
	for i := range s.calls {
		c := &s.calls[i]
		if c.plan.async && c.needEntry(t) {
			c.key = c.entry.key
			s.add(t, c.entry, c.plan, c.cost)
			continue
		}
		s.batch.Charges = append(s.batch.Charges, weir.Charge{Policy: c.plan.policy, Key: c.key, Cost: c.cost})
		s.batch.Used = append(s.batch.Used, 0)
	}
	return s
}

// add appends a charge of a key to the call. The first one of a key carries the usage.
func (s *syncCall) add(t *Limiter, e *entry, pl *plan, cost int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.addLocked(t, e, pl, cost)
}

func (s *syncCall) addLocked(t *Limiter, e *entry, pl *plan, cost int64) {
	place, used := len(s.batch.Charges), int64(0)
	e.allowance.left = max(0, e.allowance.left-cost) // the store is about to charge that
	i := slices.IndexFunc(s.keys, func(k syncKey) bool { return k.entry == e })
	if i < 0 {
		var k syncKey
		k, used = t.beginSyncLocked(e, pl)
		i, s.keys = len(s.keys), append(s.keys, k)
	}
	s.keys[i].place = place
	s.batch.Charges = append(s.batch.Charges, weir.Charge{Policy: pl.policy, Key: e.key, Cost: cost})
	s.batch.Used = append(s.batch.Used, used)
}

// carries says whether there is usage in the call.
func (s *syncCall) carries() bool {
	return slices.ContainsFunc(s.batch.Used, func(units int64) bool { return units > 0 })
}

// beginSyncLocked moves a key's usage into flight. It returns how many units the store is
// to charge for it.
func (t *Limiter) beginSyncLocked(e *entry, pl *plan) (k syncKey, used int64) {
	a := &e.allowance
	a.sent++
	k = syncKey{entry: e, plan: pl, unsynced: min(a.unsynced, weir.MaxCost), shared: a.shared, sent: a.sent}
	a.unsynced -= k.unsynced
	a.inFlight += k.unsynced
	a.shared = 0
	used = k.unsynced
	if k.shared > 0 {
		used = min(used+min(k.shared, t.unitsToCharge(pl, e, t.now())), weir.MaxCost)
	}
	return k, used
}

// run sends the call and notes how it ended, for every key. If the error is about one of
// several charges, nothing was charged: the usage is then sent key by key, and the caller
// decides what becomes of the charges.
func (t *Limiter) run(s *syncCall, send func(*syncCall) error) error {
	if !s.carries() {
		s.batch.Used = nil
	}
	sent := t.now()
	generations := map[uint64]generation{}
	for i := range s.calls {
		c := &s.calls[i]
		c.now, generations[c.hash] = sent, t.table.generation(c.plan.history, c.hash)
	}
	err := send(s)
	if aboutOne(err) && len(s.batch.Charges) > 1 {
		for i := range s.keys {
			t.runAlone(&s.keys[i], send)
		}
		return err
	}
	for i := range s.keys {
		k := &s.keys[i]
		var d weir.Decision
		if err == nil {
			d = s.batch.Decisions[k.place]
		}
		t.endSync(k, d, sent, err)
	}
	if err == nil {
		t.learnAll(s, generations)
	}
	return err
}

// learnAll remembers what the store replied to a call, when the keys were at those generations.
// In a batch that is all or nothing, a charge that was not made because another was refused
// says little.
func (t *Limiter) learnAll(s *syncCall, generations map[uint64]generation) {
	for i := range s.calls {
		c, d := &s.calls[i], s.batch.Decisions[i]
		c.gen = generations[c.hash]
		switch {
		case s.batch.Op == weir.TakeEach || d.Reason == weir.Exhausted || d.Reason == weir.TooCostly:
			t.learn(c, d)
		case d.Allowed:
			t.admitted(c)
		}
		generations[c.hash] = c.gen // the next charge of the key knows of this one
	}
}

// runAlone sends the usage of one key of a call that the store has refused to carry out.
func (t *Limiter) runAlone(k *syncKey, send func(*syncCall) error) {
	t.endSync(k, weir.Decision{}, 0, errNotSent)
	one := &syncCall{batch: weir.Batch{Op: weir.TakeEach}}
	one.add(t, k.entry, k.plan, 0)
	_ = t.run(one, send) // which notes the error
}

// send has the store carry out the call, if the breaker lets it, and notes how that went.
func (t *Limiter) send(s *syncCall) error {
	return t.doPatiently(context.Background(), &s.batch, &s.late)
}

// sendToProbed is send for a part that is being probed: its breaker is still open.
func (t *Limiter) sendToProbed(s *syncCall) error {
	err := t.unguarded(t.store.patient, patience, &s.batch)
	if errors.Is(err, weir.ErrUnknown) {
		t.counts.unknown.Add(1)
	}
	return err
}

// endSync notes how the call ended for a key; d is the decision on its last charge.
//
// After an unknown outcome the usage is not sent again, because the store may have charged
// it. An error about the key or the input would come again, so that usage is dropped, too.
// What was certainly not charged stays unsynced.
func (t *Limiter) endSync(k *syncKey, d weir.Decision, sent weir.Instant, err error) {
	e, a := k.entry, &k.entry.allowance
	e.mu.Lock()
	defer e.mu.Unlock()
	a.inFlight -= k.unsynced
	switch {
	case err == nil:
		t.installLocked(k, d, sent)
	case errors.Is(err, weir.ErrUnknown), aboutOne(err):
		t.counts.lost.Add(k.unsynced + k.shared)
		if errors.Is(err, weir.ErrUnknown) {
			t.counts.unknownUnits.Add(k.unsynced + k.shared)
		}
		a.void()
	default:
		a.unsynced += k.unsynced
		a.shared += k.shared
	}
	t.listLocked(e)
}

// installLocked makes a reply the key's allowance, unless a later call was sent. What was
// granted since the call was sent is not part of what remains. A refusal by one of several
// limits says nothing about what remains of the others.
func (t *Limiter) installLocked(k *syncKey, d weir.Decision, sent weir.Instant) {
	a := &k.entry.allowance
	if !k.plan.async || a.sent != k.sent || k.entry.gone || t.closed.Load() {
		return
	}
	if !d.Allowed && len(k.plan.perNano) > 1 {
		a.void()
		return
	}
	a.plan, a.until = k.plan, sent.Add(t.config.FlushEvery+min(t.config.FlushEvery, t.config.Timeout))
	a.left = max(0, min(t.maxUnsynced(k.plan), d.Remaining)-a.unsynced-a.inFlight)
	a.state = keyStateOf(k.plan, d, t.now())
	a.state.remaining = max(0, d.Remaining-a.unsynced-a.inFlight)
}

// carry runs a call for a caller, who waits no longer than for any other call to the
// store. If that was not long enough, the batch belongs to the call, and its outcome is
// unknown to the caller. What it takes then counts as used; what it reserves is given back.
func (t *Limiter) carry(ctx context.Context, s *syncCall) error {
	if !s.carries() || t.closed.Load() { // it need not outlive the caller
		return t.run(s, func(s *syncCall) error { return t.do(ctx, &s.batch) })
	}
	w := &waiter{with: s, done: make(chan struct{})}
	b := t.breakerOf(s.batch.Charges[0].Policy, s.batch.Charges[0].Key) // the batch is the call's from here on
	budget := t.store.budget(ctx, t.store.rounds(&s.batch))
	t.finish(func() {
		err := t.run(s, t.send)
		if w.answer(weir.Decision{}, err) && err == nil {
			t.undo(s)
		}
	})
	w.wait(ctx, budget)
	return t.outcome(ctx, w, b)
}

// undo cancels reservations that a call has made for a caller who left before the reply.
func (t *Limiter) undo(s *syncCall) {
	if s.batch.Op != weir.ReserveAll || !s.batch.Allowed() {
		return
	}
	b := weir.Batch{Op: weir.Settle, Receipts: s.batch.Receipts}
	for _, c := range s.batch.Charges {
		c.Cost = 0
		b.Charges = append(b.Charges, c)
	}
	_ = t.doPatiently(context.Background(), &b, nil) // else they expire
}

// aboutOne says whether an error is about one key or its charge, so that others in the
// same call need not suffer from it. Nothing was charged.
func aboutOne(err error) bool { return isInput(err) || errors.Is(err, weir.ErrState) }

// Flushing. Entries with usage that the store does not know of are listed by the part of
// the store on which they lie. The maintenance loop flushes all lists every FlushEvery,
// except those of parts whose breaker is open: these are flushed when the part answers
// again, before its breaker closes.

// unflushed lists the entries of one part with something to flush.
type unflushed struct {
	mu   sync.Mutex // guards the field below
	list []*entry
}

// listLocked has the entry flushed, if it has usage. It requires e.mu.
func (t *Limiter) listLocked(e *entry) {
	if e.allowance.listed || !e.allowance.used() {
		return
	}
	e.allowance.listed = true
	u := &t.breakerOf(e.usagePlan.policy, e.key).unflushed
	u.mu.Lock()
	u.list = append(u.list, e)
	u.mu.Unlock()
	t.wakeUp()
}

// take takes up to n entries off the list.
func (u *unflushed) take(n int) []*entry {
	u.mu.Lock()
	defer u.mu.Unlock()
	n = min(n, len(u.list))
	list := u.list[:n:n]
	if u.list = u.list[n:]; len(u.list) == 0 {
		u.list = nil // with the entries that it was
	}
	return list
}

// len returns how many entries are listed.
func (u *unflushed) len() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.list)
}

// flushable says whether a part has something to flush. One whose breaker is open waits for
// its probe.
func (b *breaker) flushable() bool { return !b.open.Load() && b.unflushed.len() > 0 }

// units returns how many units are unsynced, those in flight included.
func (u *unflushed) units() (sum int64) {
	u.mu.Lock()
	list := slices.Clone(u.list)
	u.mu.Unlock()
	for _, e := range list {
		e.mu.Lock()
		sum += e.allowance.unsynced + e.allowance.inFlight + e.allowance.shared
		e.mu.Unlock()
	}
	return sum
}

// flushBatch is how many keys one call flushes.
const flushBatch = 256

// flush sends the usage of all parts whose breaker is closed, all at once, so that one
// that hangs delays no other. It says whether all have answered.
func (t *Limiter) flush() bool {
	var (
		all    sync.WaitGroup
		failed atomic.Bool
	)
	for _, b := range t.breakers {
		if b.flushable() {
			all.Go(func() {
				if !t.flushPartition(b, t.send) {
					failed.Store(true)
				}
			})
		}
	}
	all.Wait()
	return !failed.Load()
}

// flushPartition sends the usage of one part. It returns false at the first call that the
// store did not answer; what was not sent stays listed.
func (t *Limiter) flushPartition(b *breaker, send func(*syncCall) error) bool {
	u := &b.unflushed
	for left := u.len(); left > 0; left -= flushBatch { // what is listed meanwhile has time
		s := t.flushCall(u.take(min(left, flushBatch)))
		if len(s.keys) == 0 {
			continue
		}
		if err := t.run(s, send); err != nil && !aboutOne(err) {
			return false
		}
	}
	return true
}

// flushCall returns the call that flushes some entries. A charge of nothing asks what
// remains.
func (t *Limiter) flushCall(list []*entry) *syncCall {
	s := &syncCall{batch: weir.Batch{Op: weir.TakeEach}}
	for _, e := range list {
		e.mu.Lock()
		e.allowance.listed = false
		if e.allowance.used() { // else another call has carried it
			s.addLocked(t, e, e.usagePlan, 0)
		}
		e.mu.Unlock()
	}
	return s
}

// record notes units that were granted or debited here without the store, which is charged
// for them when it is next called, unless there is no room. Those that this node's share
// granted while the breaker was open are shared; less than nothing was given back.
func (t *Limiter) record(c *call, unsynced, shared int64) {
	if !c.needEntry(t) {
		t.counts.forgiven.Add(max(0, unsynced+shared))
		return
	}
	c.entry.mu.Lock()
	defer c.entry.mu.Unlock()
	a := &c.entry.allowance
	c.entry.usagePlan = c.plan
	a.unsynced += unsynced
	a.shared = max(0, a.shared+shared)
	t.listLocked(c.entry)
}

// unpaid returns how many units of a share the store has to be charged for at most.
//
// While the store is unavailable, its rate goes on and nobody uses it: that pays for what
// the shares grant at their rate. What they have granted beyond is still in use in the
// share. But nodes notice one after the other that the store is back, and the first of
// them use the whole rate; so for the last of the time, as long as that may take, nothing
// is paid. Were all charged that a share granted, a busy fleet would be refused for as long
// again as the store was unavailable.
//
// Of several limits one may still count what another has forgotten: then all is charged.
func (t *Limiter) unitsToCharge(pl *plan, e *entry, now weir.Instant) int64 {
	s := pl.share.Load()
	if s == nil || s.policy == nil || len(pl.perNano) > 1 {
		return weir.MaxCost
	}
	d, err := weir.Peek(context.Background(), t.config.Local, s.policy, e.key, 0)
	if err != nil {
		return weir.MaxCost
	}
	perNano := pl.perNano[0] / float64(s.nodes)
	open := t.breakerOf(pl.policy, e.key).openFor(now)
	return int64(math.Ceil(usedOf(perNano, d) + perNano*float64(min(open, stagger))))
}

// stagger is how long it may take until all nodes have noticed that the store is back:
// the longest time between two probes, and two calls that time out.
const stagger = probeEvery + probeEvery/4 + 100*time.Millisecond
