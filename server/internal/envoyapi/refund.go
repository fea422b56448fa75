package envoyapi

import (
	"context"

	"github.com/weirlimit/weir"
)

// giveBack takes hits back that a request that was admitted returns. Limiters only know how
// to charge, so what is left is charged again after all was forgotten: hits that are counted
// in between may be forgotten, too. That is why domains must ask for it.
func (a *asking) giveBack(ctx context.Context, l weir.Limiter) error {
	for i := range a.list {
		if q := &a.list[i]; q.refund && q.counts() && (a.admitted || a.domain.Compat) {
			if err := q.giveBack(ctx, l, a.domain.Compat); err != nil {
				return err
			}
		}
	}
	return nil
}

func (q *question) giveBack(ctx context.Context, l weir.Limiter, compat bool) error {
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
