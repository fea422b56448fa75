package memstore

import (
	"context"
	"errors"
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/storeapi"
)

// Set puts new in force wherever old was, also for calls with another
// policy of the same name and limits as old. If a key's units in use cannot be
// represented under new, Set returns an error and old stays in force. Set does not fail because
// calls use too many different limits: some room is reserved for it.
//
// Set checks every row, shard by shard, while decisions go on. A key may be
// charged beyond what new can represent after it was checked; its calls then
// return an error until enough units have been replenished.
func (t *Table) Set(ctx context.Context, old, new *weir.Policy) error {
	if err := storeapi.CheckSet(old, new); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	t.registry.setting.Lock()
	defer t.registry.setting.Unlock()
	now := int64(t.now())
	from, err := t.resolvePinned(old)
	if err != nil {
		return err
	}
	defer from.unpin()
	if from.policy.Same(new) {
		return nil
	}
	to, err := t.makeRoom(func() (*compiledLimits, error) { return t.register(new) })
	if err != nil {
		return err
	}
	defer to.unpin()
	for i := range t.shards {
		if err := t.convertShard(now, i, from, to, (*lockSession).tryConvert); err != nil {
			return err
		}
	}
	if err := t.convertOverflow(now, from, to, true); err != nil {
		return err
	}
	t.replace(from, to)
	for i := range t.shards {
		_ = t.convertShard(now, i, from, to, (*lockSession).convert) // the next call of the key returns the error
	}
	return t.convertOverflow(now, from, to, false)
}

// resolvePinned returns the limits in force for p, pinned.
func (t *Table) resolvePinned(p *weir.Policy) (*compiledLimits, error) {
	for {
		n, err := t.makeRoom(func() (*compiledLimits, error) { return t.resolveAs(p, fromSet) })
		if err != nil {
			return nil, err
		}
		n.pin()
		if !n.leaving.Load() {
			return n, nil
		}
		n.unpin()
	}
}

// makeRoom returns the result of find. If all ids are in use, it first drops rows with nothing
// in use, then older replacements.
func (t *Table) makeRoom(find func() (*compiledLimits, error)) (*compiledLimits, error) {
	n, err := find()
	if errors.Is(err, errTooManySets) {
		t.sweep(fromSet)
		n, err = find()
	}
	if errors.Is(err, errTooManySets) {
		t.forgetReplaced()
		n, err = find()
	}
	return n, err
}

// register returns the limits of p itself, pinned.
func (t *Table) register(p *weir.Policy) (*compiledLimits, error) {
	t.registry.mu.Lock()
	defer t.registry.mu.Unlock()
	n, err := t.registerLocked(p, fromSet)
	if err != nil {
		return nil, err
	}
	n.pin()
	return n, nil
}

// replace puts new in force for old. There is one replacement for each set
// of limits that was ever replaced, directly to the set in force.
func (t *Table) replace(old, new *compiledLimits) {
	t.registry.mu.Lock()
	defer t.registry.mu.Unlock()
	of := old.of
	of.replaced = slices.DeleteFunc(of.replaced, func(n *compiledLimits) bool { return n == new })
	new.forward(nil)
	for _, n := range append(of.replaced, old) {
		if n == old || n.inForce.Load() == old {
			n.forward(new)
		}
	}
	if len(of.replaced) >= maxReplaced {
		of.replaced[0].forward(nil)
		of.replaced = of.replaced[1:]
	}
	of.replaced = append(of.replaced, old)
	t.forgetBindings()
}

// forward puts to in force for n, or n itself if to is nil. Limits that others forward to are
// pinned.
func (n *compiledLimits) forward(to *compiledLimits) {
	if to != nil {
		to.pin()
	}
	if was := n.inForce.Swap(to); was != nil {
		was.unpin()
	}
}

// convertShard lets convert put to in force on every row of a shard that is under
// from. It ends at the first error of a trial.
func (t *Table) convertShard(now int64, i int, from, to *compiledLimits, convert func(*lockSession, *row, *compiledLimits) error) (err error) {
	sh := &t.shards[i]
	ls := t.sessions.Get().(*lockSession)
	defer ls.forget()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	ls.now = max(now, sh.seen)
	sh.seen = ls.now
	for _, key := range t.keysUnderLocked(sh, from) {
		r := ls.take(&charge{limits: from, shard: i, h: key.h, key: key.key}, true)
		if e := convert(ls, &r, to); e != nil && err == nil {
			err = e
		}
	}
	return err
}

// A rowKey identifies a row of a shard to take it.
type rowKey struct {
	h   uint64
	key string // if the table keeps them
}

// keysUnderLocked lists the rows that are under n.
func (t *Table) keysUnderLocked(sh *shard, n *compiledLimits) (keys []rowKey) {
	sh.blocks(func(b *block) {
		for slot := range int(b.slots) {
			tag := b.tag(slot).Load()
			if tag < firstTag || b.idAt(slot) != n.id {
				continue
			}
			key := rowKey{h: tag ^ n.tag}
			if b.keys != nil {
				key.key = b.keys[slot]
			}
			keys = append(keys, key)
		}
	})
	return keys
}

// tryConvert says whether a row can be converted.
func (ls *lockSession) tryConvert(r *row, to *compiledLimits) error {
	err := r.convert(to, ls.now)
	ls.drop(r)
	return err
}

// convert converts a row.
func (ls *lockSession) convert(r *row, to *compiledLimits) error {
	if err := r.convert(to, ls.now); err != nil {
		ls.drop(r)
		return err
	}
	ls.put(r)
	return nil
}

// convertOverflow is convertShard for the overflow row.
func (t *Table) convertOverflow(now int64, from, to *compiledLimits, trial bool) error {
	t.overflowMu.Lock()
	defer t.overflowMu.Unlock()
	o := from.of.overflow.Load()
	if o == nil || o.limits != from {
		return nil
	}
	r := row{of: from.of, limits: from, ledger: o.ledger.Clone()}
	if err := r.convert(to, now); err != nil || trial {
		return err
	}
	o.put(&r)
	t.holdsEndBy(&r)
	return nil
}
