package envoyapi

import (
	"context"
	"hash/maphash"

	"github.com/weirlimit/weir"
)

// applyRefund refunds the negative hits of an admitted request; for a refused one it only reads the
// limit status. Limiters cannot refund a charge without a reservation, so the key is reset, and
// the remaining usage is charged again: concurrent charges may be lost. That is why a domain must
// enable it.
func (e *evaluation) applyRefund(ctx context.Context, l weir.Limiter, refunds *keyLocks) error {
	for i := range e.list {
		desc := &e.list[i]
		if !desc.refund || !desc.counts() {
			continue
		}
		if !e.admitted && !e.domain.Compat {
			desc.hits = 0
		}
		if err := desc.applyRefund(ctx, l, e.domain.Compat, refunds); err != nil {
			return err
		}
	}
	return nil
}

func (desc *descriptor) applyRefund(ctx context.Context, l weir.Limiter, compat bool, refunds *keyLocks) error {
	end, err := refunds.take(ctx, desc.key)
	if err != nil {
		return err
	}
	defer end()
	d, err := weir.Peek(ctx, l, desc.limit.policy, desc.key, 0)
	if err != nil {
		return err
	}
	used := max(0, d.Limit-d.Remaining)
	left := max(0, used-desc.hits)
	if left < used {
		if err := weir.Reset(ctx, l, desc.limit.policy, desc.key); err != nil {
			return err
		}
		debit := weir.Batch{Op: weir.DebitEach, Charges: []weir.Charge{{Policy: desc.limit.policy, Key: desc.key, Cost: left}}}
		if err := l.Do(ctx, &debit); err != nil {
			return err
		}
		d = debit.Decisions[0]
	}
	op := weir.TakeEach
	if compat {
		op = weir.DebitEach
	}
	return desc.decided(op, &d)
}

// keyLocks serializes the refunds of a key: two concurrent refunds that both reset the key and
// then both charge the remaining usage would charge it twice. Keys share locks by their hash.
type keyLocks struct {
	seed maphash.Seed
	free [64]chan struct{} // each has one element while the lock is free
}

func newKeyLocks() keyLocks {
	t := keyLocks{seed: maphash.MakeSeed()}
	for i := range t.free {
		t.free[i] = make(chan struct{}, 1)
		t.free[i] <- struct{}{}
	}
	return t
}

// take acquires the lock of a key, until end is called.
func (t *keyLocks) take(ctx context.Context, key string) (end func(), err error) {
	free := t.free[maphash.String(t.seed, key)%uint64(len(t.free))]
	select {
	case <-free:
		return func() { free <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
