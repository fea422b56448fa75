package guard

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/storeapi"
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
	out := make([]Verdict, len(items))
	if err := g.CheckEachInto(ctx, items, out); err != nil {
		return nil, err
	}
	return out, nil
}

// CheckEachInto is CheckEach for who has memory for the verdicts: one for each item. After
// an error they mean nothing.
func (g *Guard) CheckEachInto(ctx context.Context, items []Item, out []Verdict) error {
	w := eachWorks.Get().(*eachWork)
	defer w.free()
	if err := w.sort(items, out); err != nil {
		return err
	}
	for _, o := range w.others {
		var err error
		if out[o.place], err = g.checkItem(ctx, o.asking, items[o.place].Peek); err != nil {
			return err
		}
	}
	if len(w.places) == 0 {
		return nil
	}
	if err := g.limiter.Do(ctx, &w.together); err != nil {
		return err
	}
	for at, i := range w.places {
		out[i].decided(&out[i].Variant.groups[0], w.together.Decisions[at])
	}
	return nil
}

// eachWork is the memory of a CheckEach, which later ones use again.
type eachWork struct {
	together weir.Batch // of the queries that are one charge
	places   []int      // of these among all
	others   []otherItem
}

type otherItem struct {
	place  int
	asking *asking
}

var eachWorks = sync.Pool{New: func() any { return &eachWork{together: weir.Batch{Op: weir.TakeEach}} }}

// mostKept is for how many queries memory is kept.
const mostKept = 1024

func (w *eachWork) free() {
	for _, o := range w.others {
		o.asking.free()
	}
	clear(w.together.Charges) // keys are not kept
	clear(w.others)
	w.together.Charges, w.places, w.others = w.together.Charges[:0], w.places[:0], w.others[:0]
	if cap(w.together.Charges) <= mostKept {
		eachWorks.Put(w)
	}
}

// sort makes the charges of all queries before one of them is charged.
func (w *eachWork) sort(items []Item, out []Verdict) error {
	for i := range items {
		pause(i)
		q := &items[i].Query
		v := items[i].Rule.variant(q.Key)
		if !items[i].Peek && q.plain(v) {
			c := weir.Charge{Policy: v.groups[0].policy, Key: q.Key, Cost: q.Cost}
			if err := storeapi.CheckCharge(c.Policy, c.Key, c.Cost); err != nil {
				return &ItemError{i, err}
			}
			w.together.Charges, w.places = append(w.together.Charges, c), append(w.places, i)
			out[i] = Verdict{Variant: v, Shadow: -1}
			continue
		}
		a, err := newItem(v, &items[i])
		if err != nil {
			return &ItemError{i, err}
		}
		w.others = append(w.others, otherItem{i, a})
	}
	return nil
}

// plain says whether a query is one charge of requests to its key, and nothing else has to be
// looked at.
func (q *Query) plain(v *Variant) bool {
	return v.simple && !q.NoKey && len(q.Costs) == 0 && q.MaxWait == 0
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
// Allowed, and those with Reason weir.NotCharged are of queries that would have fitted.
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
		out[i] = Verdict{Decision: weir.Decision{Allowed: true, Reason: weir.Admitted}, Variant: a.variant, Limit: -1, Shadow: -1}
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

// pause gives others their turn now and then.
func pause(i int) {
	if i%pauseEvery == pauseEvery-1 {
		runtime.Gosched()
	}
}

// newAskings makes the charges of all queries before one of them is charged.
func newAskings(items []Item) ([]*asking, error) {
	list := make([]*asking, 0, len(items))
	for i := range items {
		pause(i)
		a, err := newItem(items[i].Rule.variant(items[i].Query.Key), &items[i])
		if err != nil {
			freeAll(list)
			return nil, &ItemError{i, err}
		}
		list = append(list, a)
	}
	return list, nil
}

// newItem makes the charges of one of several queries. The caller frees it.
func newItem(v *Variant, item *Item) (*asking, error) {
	a, err := newAsking(v, &item.Query)
	if err != nil {
		return nil, err
	}
	if err := a.checkItem(item.Peek); err != nil {
		a.free()
		return nil, err
	}
	return a, nil
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
