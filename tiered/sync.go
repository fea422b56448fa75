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

// A syncCall is a call to the store that carries the unsynced usage of some keys, all on one
// partition, in Batch.Used. It has a longer timeout than callers wait: a late reply is better
// than units with an unknown outcome.
type syncCall struct {
	batch weir.Batch
	calls []call // of callers, one for each charge; none for flushes
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
	shared   int64  // units that this node's share granted, of which it carries unitsToCharge
	sent     uint64 // number of the call among those for the key
	place    int    // index of the key's last charge in the batch, whose decision reports what remains
}

// newSync returns a call with the charges of a caller. In Async mode it carries the unsynced
// usage of their keys; a key for which the table has no room has none.
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
	e.allowance.left = max(0, e.allowance.left-cost) // this call charges it
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

// carries reports whether the call carries usage.
func (s *syncCall) carries() bool {
	return slices.ContainsFunc(s.batch.Used, func(units int64) bool { return units > 0 })
}

// beginSyncLocked marks a key's usage as in flight. It returns how many units the store is to
// be charged. It requires e.mu.
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

// run sends the call and applies its result to every key. If the error is about one of several
// charges, nothing was charged: run then sends the usage key by key, and leaves the charges to
// the caller.
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

// learnAll caches the store's decisions on a call that was sent when the keys were at the given
// generations. It skips charges of an all-or-nothing batch that were not made because another
// was denied.
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
		generations[c.hash] = c.gen // for the key's next charge in the call
	}
}

// runAlone sends the usage of one key of a call that the store has rejected.
func (t *Limiter) runAlone(k *syncKey, send func(*syncCall) error) {
	t.endSync(k, weir.Decision{}, 0, errNotSent)
	one := &syncCall{batch: weir.Batch{Op: weir.TakeEach}}
	one.add(t, k.entry, k.plan, 0)
	_ = t.run(one, send) // run has recorded the error
}

// send has the store execute the call, unless the breaker is open, and records the result in the
// breaker.
func (t *Limiter) send(s *syncCall) error {
	return t.doBackground(context.Background(), &s.batch, &s.late)
}

// sendToProbed is send for a partition that is being probed: its breaker is still open.
func (t *Limiter) sendToProbed(s *syncCall) error {
	err := t.unguarded(t.store.patient, patience, &s.batch)
	if errors.Is(err, weir.ErrUnknown) {
		t.counts.unknown.Add(1)
	}
	return err
}

// endSync applies the result of a call to a key; d is the decision on its last charge.
//
// After an unknown outcome the usage is not sent again, because the store may have charged
// it. After an error about the key or the arguments, which would recur, the usage is dropped,
// too. Usage that was certainly not charged stays unsynced.
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

// installLocked makes a reply the key's allowance, unless a later call was sent. Units granted
// since the call was sent are subtracted from what remains. A denial by one of several limits
// does not report what remains of the others, so it gives no allowance. It requires the entry's
// mu.
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

// carry runs a call for a caller, which waits no longer than for any other call to the store. If
// the call takes longer, its outcome is unknown to the caller, and the call continues with the
// batch: units that it takes count as used, and reservations that it makes are canceled.
func (t *Limiter) carry(ctx context.Context, s *syncCall) error {
	if !s.carries() || t.closed.Load() { // it need not outlive the caller
		return t.run(s, func(s *syncCall) error { return t.do(ctx, &s.batch) })
	}
	w := &waiter{with: s, done: make(chan struct{})}
	b := t.breakerOf(s.batch.Charges[0].Policy, s.batch.Charges[0].Key) // the goroutine below owns the batch
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

// undo cancels reservations that a call has made for a caller that left before the reply.
func (t *Limiter) undo(s *syncCall) {
	if s.batch.Op != weir.ReserveAll || !s.batch.Allowed() {
		return
	}
	b := weir.Batch{Op: weir.Settle, Receipts: s.batch.Receipts}
	for _, c := range s.batch.Charges {
		c.Cost = 0
		b.Charges = append(b.Charges, c)
	}
	_ = t.doBackground(context.Background(), &b, nil) // after an error they expire
}

// aboutOne reports whether an error is about one key or its charge, so that the others in the
// same call can be retried without it. Nothing was charged.
func aboutOne(err error) bool { return isInput(err) || errors.Is(err, weir.ErrState) }

// Flushing. Entries with unsynced usage are listed by partition. The maintenance loop flushes
// all lists every FlushEvery, except those of partitions whose breaker is open: they are flushed
// when the partition answers again, before its breaker closes.

// unflushed lists the entries of one partition with usage to flush.
type unflushed struct {
	mu   sync.Mutex // guards the field below
	list []*entry
}

// listLocked lists the entry to be flushed, if it has usage. It requires e.mu.
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

// take removes up to n entries from the list and returns them.
func (u *unflushed) take(n int) []*entry {
	u.mu.Lock()
	defer u.mu.Unlock()
	n = min(n, len(u.list))
	list := u.list[:n:n]
	if u.list = u.list[n:]; len(u.list) == 0 {
		u.list = nil // releases the array
	}
	return list
}

// len returns the number of listed entries.
func (u *unflushed) len() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.list)
}

// flushable reports whether a partition has usage to flush and its breaker is closed. While the
// breaker is open, probe flushes.
func (b *breaker) flushable() bool { return !b.open.Load() && b.unflushed.len() > 0 }

// units returns the number of unsynced units, including those in flight.
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

// flush sends the usage of all partitions whose breaker is closed, concurrently, so that one that
// hangs delays no other. It reports whether all have answered.
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

// flushPartition sends the usage of one partition. It returns false at the first call that the
// store does not answer; usage that was not sent stays listed.
func (t *Limiter) flushPartition(b *breaker, send func(*syncCall) error) bool {
	u := &b.unflushed
	for left := u.len(); left > 0; left -= flushBatch { // entries listed meanwhile wait for the next flush
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

// flushCall returns the call that flushes some entries. The cost of its charges is 0: their
// decisions report what remains.
func (t *Limiter) flushCall(list []*entry) *syncCall {
	s := &syncCall{batch: weir.Batch{Op: weir.TakeEach}}
	for _, e := range list {
		e.mu.Lock()
		e.allowance.listed = false
		if e.allowance.used() { // otherwise another call has carried the usage
			s.addLocked(t, e, e.usagePlan, 0)
		}
		e.mu.Unlock()
	}
	return s
}

// record records units that were granted or debited without the store, which is charged for
// them by the next call. If the table is full, they are not charged but counted as forgiven.
// shared are units that this node's share granted while the breaker was open; negative units are
// a refund.
func (t *Limiter) record(c *call, unsynced, shared int64) {
	if !c.needEntry(t) {
		t.counts.forgiven.Add(max(0, unsynced+shared))
		return
	}
	plan := t.withoutClass(c.plan)
	c.entry.mu.Lock()
	defer c.entry.mu.Unlock()
	a := &c.entry.allowance
	c.entry.usagePlan = plan
	a.unsynced += unsynced
	a.shared = max(0, a.shared+shared)
	t.listLocked(c.entry)
}

// unitsToCharge returns the maximum of units granted by a share that the store must be charged
// for after an outage.
//
// While the store is unavailable, it continues to replenish units that nobody uses. They cover
// what the shares grant at their rate; units granted beyond that are still in use in the
// share. But nodes detect the recovery one after the other, and the first of them use the full
// rate; so units that were granted at the end of the outage, for as long as that may take, are
// not covered. If all units of a share were charged, a busy fleet would be denied for as long
// again as the outage lasted. Units of open reservations are in use, however long they are open still.
//
// If several limits fail local, one may still count units that another has replenished, so all units
// are charged.
func (t *Limiter) unitsToCharge(pl *plan, e *entry, now weir.Instant) int64 {
	s := pl.share.Load()
	if s == nil || s.usage == nil || len(pl.failLocal) > 1 {
		return weir.MaxCost
	}
	d, err := weir.Peek(context.Background(), t.config.Local, s.usage, e.key, 0)
	if err != nil {
		return weir.MaxCost
	}
	perNano := perNanoOf(s.usage.Limits()[0])
	used := usedOf(perNano, d)
	open := t.breakerOf(pl.policy, e.key).openFor(now)
	return int64(math.Ceil(used + perNano*float64(min(open, stagger))))
}

// stagger is how long it may take until all nodes have detected that the store is available
// again: the longest time between two probes, and two calls that time out.
const stagger = probeEvery + probeEvery/4 + 100*time.Millisecond
