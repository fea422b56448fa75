package ruleset

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
	Peek  bool // charge nothing
}

// ItemError says which of several queries is invalid. Then none was charged.
type ItemError struct {
	Index int
	Err   error
}

func (e *ItemError) Error() string { return fmt.Sprintf("checks[%d]: %v", e.Index, e.Err) }
func (e *ItemError) Unwrap() error { return e.Err }

// CheckEach checks several queries independently. Those that are one charge are decided by one
// call to the limiter, after the others. An error other than *ItemError means that some may have
// been charged.
func (n *Engine) CheckEach(ctx context.Context, items []Item) ([]Verdict, error) {
	out := make([]Verdict, len(items))
	if err := n.CheckEachInto(ctx, items, out); err != nil {
		return nil, err
	}
	return out, nil
}

// CheckEachInto is CheckEach that writes the verdicts to out, which has the length of items. After
// an error, out is undefined.
func (n *Engine) CheckEachInto(ctx context.Context, items []Item, out []Verdict) error {
	w := eachWorks.Get().(*eachWork)
	defer w.free()
	if err := w.sort(items, out); err != nil {
		return err
	}
	for _, o := range w.others {
		var err error
		if out[o.place], err = n.checkItem(ctx, o.evaluation, items[o.place].Peek); err != nil {
			return err
		}
	}
	if len(w.places) == 0 {
		return nil
	}
	if err := n.limiter.Do(ctx, &w.together); err != nil {
		return err
	}
	for at, i := range w.places {
		out[i].decided(&out[i].Variant.groups[0], w.together.Decisions[at])
	}
	return nil
}

// eachWork is the pooled memory of a CheckEach.
type eachWork struct {
	together weir.Batch // the queries that are one charge
	places   []int      // their indexes in items
	others   []otherItem
}

type otherItem struct {
	place      int
	evaluation *evaluation
}

var eachWorks = sync.Pool{New: func() any { return &eachWork{together: weir.Batch{Op: weir.TakeEach}} }}

// mostKept is the maximum capacity of pooled memory, in queries.
const mostKept = 1024

func (w *eachWork) free() {
	for _, o := range w.others {
		o.evaluation.free()
	}
	clear(w.together.Charges) // so that the pool retains no keys
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
		v := items[i].Rule.variant(q)
		if !items[i].Peek && q.plain(v) {
			c := weir.Charge{Policy: v.groups[0].policy, Key: q.Key, Cost: q.Cost}
			if err := storeapi.CheckCharge(c.Policy, c.Key, c.Cost); err != nil {
				return &ItemError{i, err}
			}
			w.together.Charges, w.places = append(w.together.Charges, c), append(w.places, i)
			out[i] = Verdict{Variant: v, Shadow: -1}
			continue
		}
		e, err := newItem(v, &items[i])
		if err != nil {
			return &ItemError{i, err}
		}
		w.others = append(w.others, otherItem{i, e})
	}
	return nil
}

// plain reports whether a query is exactly one charge, of a plain number to its key.
func (q *Query) plain(v *Variant) bool {
	return v.simple && q.Key != "" && len(q.Costs) == 0 && q.MaxWait == 0 && q.Scale <= All && q.ShadowScale <= All
}

func (n *Engine) checkItem(ctx context.Context, e *evaluation, peek bool) (Verdict, error) {
	op := weir.TakeAll
	if peek {
		op = weir.PeekEach
	}
	out, err := e.decide(ctx, n.limiter, op)
	if err == nil && out.Allowed {
		e.shadow(ctx, n.limiter, op, &out)
	}
	return out, err
}

// CheckAll charges all of several queries or none. If one is refused, no Verdict is
// Allowed, and those with Reason weir.NotCharged are of queries that would have fitted.
func (n *Engine) CheckAll(ctx context.Context, items []Item) ([]Verdict, error) {
	for i := range items {
		if items[i].Peek {
			return nil, &ItemError{i, &InputError{"peek", "cannot be used in a batch that is charged as a whole"}}
		}
	}
	list, err := newEvaluations(items)
	if err != nil {
		return nil, err
	}
	defer freeAll(list)
	b := weir.Batch{Op: weir.TakeAll}
	for _, e := range list {
		b.Charges = append(b.Charges, e.charges[:e.enforced]...)
	}
	if len(b.Charges) > 0 {
		if err := n.limiter.Do(ctx, &b); err != nil {
			return nil, err
		}
	}
	out := make([]Verdict, len(items))
	allowed, rest := b.Allowed(), b.Decisions
	for i, e := range list {
		out[i] = Verdict{Decision: weir.Decision{Allowed: allowed}, Variant: e.variant, Limit: -1, Shadow: -1}
		own := weir.Batch{Decisions: rest[:e.enforced]}
		if at := own.Worst(); at >= 0 {
			out[i].decided(e.groups[at], own.Decisions[at])
		}
		rest = rest[e.enforced:]
		if allowed {
			e.shadow(ctx, n.limiter, weir.TakeAll, &out[i])
		}
	}
	return out, nil
}

// DebitEach charges several queries whether they fit or not, for units that were used already.
// Every Verdict is Allowed and has the status of the tightest limit. An error other than
// *ItemError means that some may have been charged.
func (n *Engine) DebitEach(ctx context.Context, items []Item) ([]Verdict, error) {
	for i := range items {
		if items[i].Peek {
			return nil, &ItemError{i, &InputError{"peek", "cannot be used for units that were used already"}}
		}
	}
	list, err := newEvaluations(items)
	if err != nil {
		return nil, err
	}
	defer freeAll(list)
	b := weir.Batch{Op: weir.DebitEach}
	for _, e := range list {
		e.leaveOutSlots()
		b.Charges = append(b.Charges, e.charges...)
	}
	if len(b.Charges) > 0 {
		if err := n.limiter.Do(ctx, &b); err != nil {
			return nil, err
		}
	}
	out := make([]Verdict, len(items))
	rest := b.Decisions
	for i, e := range list {
		out[i] = Verdict{Decision: weir.Decision{Allowed: true, Reason: weir.Admitted}, Variant: e.variant, Limit: -1, Shadow: -1}
		own := weir.Batch{Decisions: rest[:e.enforced]}
		if at := own.Worst(); at >= 0 {
			out[i].decided(e.groups[at], own.Decisions[at])
		}
		rest = rest[len(e.charges):]
	}
	return out, nil
}

// pauseEvery is the number of queries of a batch after which other goroutines may run, so that
// short requests on a busy machine do not wait for a batch of a thousand.
const pauseEvery = 64

// pause yields the processor after every pauseEvery queries.
func pause(i int) {
	if i%pauseEvery == pauseEvery-1 {
		runtime.Gosched()
	}
}

// newEvaluations makes the charges of all queries, before any of them is charged.
func newEvaluations(items []Item) ([]*evaluation, error) {
	list := make([]*evaluation, 0, len(items))
	for i := range items {
		pause(i)
		e, err := newItem(items[i].Rule.variant(&items[i].Query), &items[i])
		if err != nil {
			freeAll(list)
			return nil, &ItemError{i, err}
		}
		list = append(list, e)
	}
	return list, nil
}

// newItem makes the charges of one of several queries. The caller must free it.
func newItem(v *Variant, item *Item) (*evaluation, error) {
	e, err := newEvaluation(v, &item.Query)
	if err != nil {
		return nil, err
	}
	if err := e.checkItem(item.Peek); err != nil {
		e.free()
		return nil, err
	}
	return e, nil
}

// checkItem returns an error if a query cannot be part of a batch.
func (e *evaluation) checkItem(peek bool) error {
	if e.query.MaxWait != 0 {
		return &InputError{"max_wait_ms", "is for single checks: those of a batch are answered together"}
	}
	for _, g := range e.groups[:e.enforced] {
		if g.policy.ReserveOnly() && !peek {
			return weir.ErrReserveOnly
		}
	}
	return nil
}

func freeAll(list []*evaluation) {
	for _, e := range list {
		e.free()
	}
}
