package envoyapi

import (
	"context"
	"hash/maphash"

	"github.com/weirlimit/weir"
)

// giveBack takes hits back that a request that was admitted returns; of one that was not it
// only finds out how things stand. Limiters only know how to charge, so what is left is
// charged again after all was forgotten: hits that are counted in between may be forgotten,
// too. That is why domains must ask for it.
func (a *asking) giveBack(ctx context.Context, l weir.Limiter, refunds *turns) error {
	for i := range a.list {
		q := &a.list[i]
		if !q.refund || !q.counts() {
			continue
		}
		if !a.admitted && !a.domain.Compat {
			q.hits = 0
		}
		if err := q.giveBack(ctx, l, a.domain.Compat, refunds); err != nil {
			return err
		}
	}
	return nil
}

func (q *question) giveBack(ctx context.Context, l weir.Limiter, compat bool, refunds *turns) error {
	end, err := refunds.take(ctx, q.key)
	if err != nil {
		return err
	}
	defer end()
	d, err := weir.Peek(ctx, l, q.limit.policy, q.key, 0)
	if err != nil {
		return err
	}
	used := max(0, d.Limit-d.Remaining)
	left := max(0, used-q.hits)
	if left < used {
		if err := weir.Reset(ctx, l, q.limit.policy, q.key); err != nil {
			return err
		}
		debit := weir.Batch{Op: weir.DebitEach, Charges: []weir.Charge{{Policy: q.limit.policy, Key: q.key, Cost: left}}}
		if err := l.Do(ctx, &debit); err != nil {
			return err
		}
		d = debit.Decisions[0]
	}
	op := weir.TakeEach
	if compat {
		op = weir.DebitEach
	}
	return q.decided(op, &d)
}

// turns lets refunds of a key take place one after the other: two that both forget and then
// both charge what was left would charge it twice. Keys share turns by their hash.
type turns struct {
	seed maphash.Seed
	free [64]chan struct{} // each holds one unless somebody has the turn
}

func newTurns() turns {
	t := turns{seed: maphash.MakeSeed()}
	for i := range t.free {
		t.free[i] = make(chan struct{}, 1)
		t.free[i] <- struct{}{}
	}
	return t
}

// take waits for a key's turn, which lasts until end is called.
func (t *turns) take(ctx context.Context, key string) (end func(), err error) {
	free := t.free[maphash.String(t.seed, key)%uint64(len(t.free))]
	select {
	case <-free:
		return func() { free <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
