package keyed

import (
	"context"
	"sync"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/store/memstore"
)

// weirTake is Table.Take with one limit per key, the way that goals are for.
func weirTake(name string, c memstore.Config, goal float64) store {
	return store{name: name, kind: harness.Weir, goal: goal, open: func(s setting) (opened, error) {
		return openTakes(c, s.limit("main"))
	}}
}

// weirTwo is Table.Take with two limits per key.
func weirTwo(name string, c memstore.Config) store {
	return store{name: name, kind: harness.Weir, open: func(s setting) (opened, error) {
		return openTakes(c, s.limit("main"), s.limit("second"))
	}}
}

// weirBatch is Table.Do with batches of TakeEach.
func weirBatch(name string, c memstore.Config, size int) store {
	return store{name: name, kind: harness.Weir, open: func(s setting) (opened, error) {
		t, p, err := newTable(c, s.limit("main"))
		if err != nil {
			return opened{}, err
		}
		batches := sync.Pool{New: func() any { return newBatch(p, size) }}
		take := func(keys string) (admitted int) {
			b := batches.Get().(*weir.Batch)
			defer batches.Put(b)
			return takeBatches(t, b, keys)
		}
		return opened{take: take, size: sizeOf(t)}, nil
	}}
}

func openTakes(c memstore.Config, limits ...weir.Limit) (opened, error) {
	t, p, err := newTable(c, limits...)
	if err != nil {
		return opened{}, err
	}
	return opened{take: takes(t, p), size: sizeOf(t)}, nil
}

func takes(t *memstore.Table, p *weir.Policy) loop {
	ctx := context.Background()
	return func(keys string) (admitted int) {
		for ; keys != ""; keys = keys[keyLen:] {
			if d, err := t.Take(ctx, p, keys[:keyLen], 1); d.Allowed && err == nil {
				admitted++
			}
		}
		return admitted
	}
}

// newBatch returns a batch of size charges, which lack only their keys.
func newBatch(p *weir.Policy, size int) *weir.Batch {
	b := &weir.Batch{Op: weir.TakeEach, Charges: make([]weir.Charge, size)}
	for i := range b.Charges {
		b.Charges[i] = weir.Charge{Policy: p, Cost: 1}
	}
	return b
}

// takeBatches takes keys in batches as large as b, or smaller at the end.
func takeBatches(t *memstore.Table, b *weir.Batch, keys string) (admitted int) {
	ctx := context.Background()
	all := b.Charges
	defer func() { b.Charges = all }()
	for keys != "" {
		n := min(len(all), len(keys)/keyLen)
		b.Charges = all[:n]
		for i := range b.Charges {
			b.Charges[i].Key, keys = keys[:keyLen], keys[keyLen:]
		}
		if err := t.Do(ctx, b); err != nil {
			continue
		}
		for i := range b.Decisions {
			if b.Decisions[i].Allowed {
				admitted++
			}
		}
	}
	return admitted
}

func newTable(c memstore.Config, limits ...weir.Limit) (*memstore.Table, *weir.Policy, error) {
	t, err := memstore.New(c)
	if err != nil {
		return nil, nil, err
	}
	p, err := weir.NewPolicy("bench", limits...)
	return t, p, err
}

func sizeOf(t *memstore.Table) func() int {
	return func() int { return t.Stats().Keys }
}

// limit returns the setting as a GCRA limit.
func (s setting) limit(name string) weir.Limit {
	return weir.Limit{Name: name, Rate: s.units, Per: weir.Every(s.per), Algorithm: weir.GCRA}
}
