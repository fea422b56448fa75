package guard

import (
	"context"
	"fmt"
	"runtime"

	"github.com/weirlimit/weir"
)

// Item is one query of several.
type Item struct {
	Rule  *Rule
	Query Query
	Peek  bool // only look
}

// ItemError says which of several queries is wrong. Then none was charged.
type ItemError struct {
	Index int
	Err   error
}

func (e *ItemError) Error() string { return fmt.Sprintf("checks[%d]: %v", e.Index, e.Err) }
func (e *ItemError) Unwrap() error { return e.Err }

// CheckEach checks several queries, each on its own, in one call to the limiter as far as
// each is one charge, and so not in their order. An error other than *ItemError means that some may have been
// charged.
func (g *Guard) CheckEach(ctx context.Context, items []Item) ([]Verdict, error) {
	list, err := newAskings(items)
	if err != nil {
		return nil, err
	}
	defer freeAll(list)
	out := make([]Verdict, len(items))
	together := weir.Batch{Op: weir.TakeEach}
	var places []int
	for i, a := range list {
		if a.variant.simple && !items[i].Peek {
			together.Charges, places = append(together.Charges, a.charges[0]), append(places, i)
			continue
		}
		if out[i], err = g.checkItem(ctx, a, items[i].Peek); err != nil {
			return nil, err
		}
	}
	if len(places) == 0 {
		return out, nil
	}
	if err := g.limiter.Do(ctx, &together); err != nil {
		return nil, err
	}
	for at, i := range places {
		out[i] = Verdict{Variant: list[i].variant, Shadow: -1}
		out[i].decided(list[i].groups[0], together.Decisions[at])
	}
	return out, nil
}

func (g *Guard) checkItem(ctx context.Context, a *asking, peek bool) (Verdict, error) {
	op := weir.TakeAll
	if peek {
		op = weir.PeekEach
	}
	out, err := a.put(ctx, g.limiter, op)
	if err == nil && out.Allowed {
		a.shadow(ctx, g.limiter, op, &out)
	}
	return out, err
}

// CheckAll charges all of several queries or none. If one is refused, no Verdict is
// Allowed, and those with Reason weir.Admitted are of queries that would have fitted.
func (g *Guard) CheckAll(ctx context.Context, items []Item) ([]Verdict, error) {
	for i := range items {
		if items[i].Peek {
			return nil, &ItemError{i, &InputError{"peek", "is not for checks of which all or none are charged"}}
		}
	}
	list, err := newAskings(items)
	if err != nil {
		return nil, err
	}
	defer freeAll(list)
	b := weir.Batch{Op: weir.TakeAll}
	for _, a := range list {
		b.Charges = append(b.Charges, a.charges[:a.enforced]...)
	}
	if len(b.Charges) > 0 {
		if err := g.limiter.Do(ctx, &b); err != nil {
			return nil, err
		}
	}
	out := make([]Verdict, len(items))
	allowed, rest := b.Allowed(), b.Decisions
	for i, a := range list {
		out[i] = Verdict{Decision: weir.Decision{Allowed: allowed}, Variant: a.variant, Limit: -1, Shadow: -1}
		own := weir.Batch{Decisions: rest[:a.enforced]}
		if at := own.Worst(); at >= 0 {
			out[i].decided(a.groups[at], own.Decisions[at])
		}
		rest = rest[a.enforced:]
		if allowed {
			a.shadow(ctx, g.limiter, weir.TakeAll, &out[i])
		}
	}
	return out, nil
}

// DebitEach charges several queries whether they fit or not: what was used already is owed.
// Every Verdict is Allowed and tells how the tightest limit stands. An error other than
// *ItemError means that some may have been charged.
func (g *Guard) DebitEach(ctx context.Context, items []Item) ([]Verdict, error) {
	for i := range items {
		if items[i].Peek {
			return nil, &ItemError{i, &InputError{"peek", "is not for what was used already"}}
		}
	}
	list, err := newAskings(items)
	if err != nil {
		return nil, err
	}
	defer freeAll(list)
	b := weir.Batch{Op: weir.DebitEach}
	for _, a := range list {
		a.leaveOutSlots()
		b.Charges = append(b.Charges, a.charges...)
	}
	if len(b.Charges) > 0 {
		if err := g.limiter.Do(ctx, &b); err != nil {
			return nil, err
		}
	}
	out := make([]Verdict, len(items))
	rest := b.Decisions
	for i, a := range list {
		out[i] = Verdict{Decision: weir.Decision{Allowed: true}, Variant: a.variant, Limit: -1, Shadow: -1}
		told := len(a.charges) // by a policy that enforces nothing
		if a.enforced > 0 {
			told = a.enforced
		}
		own := weir.Batch{Decisions: rest[:told]}
		if at := own.Worst(); at >= 0 {
			out[i].decided(a.groups[at], own.Decisions[at])
		}
		rest = rest[len(a.charges):]
	}
	return out, nil
}

// pauseEvery is after how many queries of a batch others have their turn: on a busy
// machine short requests would wait for a thousand.
const pauseEvery = 64

// newAskings makes the charges of all queries before one of them is charged.
func newAskings(items []Item) ([]*asking, error) {
	list := make([]*asking, 0, len(items))
	for i := range items {
		if i%pauseEvery == pauseEvery-1 {
			runtime.Gosched()
		}
		q := &items[i].Query
		v := items[i].Rule.variant(q.Key)
		a, err := newAsking(v, q)
		if err == nil {
			if err = a.checkItem(items[i].Peek); err != nil {
				a.free()
			}
		}
		if err != nil {
			freeAll(list)
			return nil, &ItemError{i, err}
		}
		list = append(list, a)
	}
	return list, nil
}

// checkItem returns why a query cannot be one of several.
func (a *asking) checkItem(peek bool) error {
	if a.query.MaxWait != 0 {
		return &InputError{"max_wait_ms", "is for single checks: those of a batch are answered together"}
	}
	for _, g := range a.groups[:a.enforced] {
		if g.policy.ReserveOnly() && !peek {
			return weir.ErrReserveOnly
		}
	}
	return nil
}

func freeAll(list []*asking) {
	for _, a := range list {
		a.free()
	}
}
