package ruleset

import (
	"context"
	"fmt"
	"runtime"
	"slices"
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
// call to the limiter, after the others. The verdicts are written to out if it has room for them.
// An error other than *ItemError means that some may have been charged.
func (n *Engine) CheckEach(ctx context.Context, items []Item, out []Verdict) ([]Verdict, error) {
	if cap(out) < len(items) {
		out = make([]Verdict, len(items))
	}
	out = out[:len(items)]
	w := eachWorks.Get().(*eachWork)
	defer w.free()
	if err := w.sort(items, out); err != nil {
		return nil, err
	}
	for _, o := range w.others {
		op := weir.TakeAll
		if items[o.place].Peek {
			op = weir.PeekEach
		}
		var err error
		if out[o.place], err = n.evaluate(ctx, o.evaluation, op); err != nil {
			return nil, err
		}
	}
	if len(w.places) == 0 {
		return out, nil
	}
	if err := n.limiter.Do(ctx, &w.together); err != nil {
		return nil, err
	}
	for at, i := range w.places {
		out[i].decided(&out[i].Variant.groups[0], w.together.Decisions[at])
	}
	return out, nil
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
			c := weir.Charge{Policy: v.groups[0].charged(q.Class), Key: q.Key, Cost: q.Cost}
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
	return v.simple && q.Key != "" && len(q.With) == 0 && len(q.Costs) == 0 && v.rule.checkClass(q.Class) == nil && q.MaxWait == 0 && q.Scale <= All && q.ShadowScale <= All
}

// CheckAll charges all of several queries or none. If one is refused, no Verdict is
// Allowed, and those with Reason weir.NotCharged are of queries that would have fitted.
func (n *Engine) CheckAll(ctx context.Context, items []Item) ([]Verdict, error) {
	return n.together(ctx, weir.TakeAll, items, "cannot be used in a batch that is charged as a whole")
}

// DebitEach charges several queries whether they fit or not, for units that were used already.
// Every Verdict is Allowed and has the status of the tightest limit. An error other than
// *ItemError means that some may have been charged.
func (n *Engine) DebitEach(ctx context.Context, items []Item) ([]Verdict, error) {
	return n.together(ctx, weir.DebitEach, items, "cannot be used for units that were used already")
}

// together carries out op for the charges of several queries by one call to the limiter. noPeek is
// the problem of a query that peeks.
func (n *Engine) together(ctx context.Context, op weir.Op, items []Item, noPeek string) ([]Verdict, error) {
	if i := slices.IndexFunc(items, func(item Item) bool { return item.Peek }); i >= 0 {
		return nil, &ItemError{i, &InputError{"peek", noPeek}}
	}
	list, err := newEvaluations(items)
	if err != nil {
		return nil, err
	}
	defer freeAll(list)
	b := weir.Batch{Op: op}
	for _, e := range list {
		b.Charges = append(b.Charges, e.charged(op)...)
	}
	if len(b.Charges) > 0 {
		if err := n.limiter.Do(ctx, &b); err != nil {
			return nil, err
		}
	}
	decision := weir.Decision{Allowed: b.Allowed()}
	if op == weir.DebitEach {
		decision = admitted
	}
	out := make([]Verdict, len(items))
	rest := b.Decisions
	for i, e := range list {
		out[i] = e.verdict(decision)
		if at := worst(e.groups, rest[:e.enforced]); at >= 0 {
			out[i].decided(e.groups[at], rest[at])
		}
		rest = rest[len(e.charged(op)):]
		if op == weir.TakeAll && decision.Allowed {
			e.shadow(ctx, n.limiter, op, &out[i])
		}
	}
	return out, nil
}

// charged returns the charges that are made with those of other queries. A debit includes those in
// shadow, which are not decided by it.
func (e *evaluation) charged(op weir.Op) []weir.Charge {
	if op != weir.DebitEach {
		return e.charges[:e.enforced]
	}
	e.leaveOutSlots()
	return e.charges
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
	switch {
	case item.Query.MaxWait != 0:
		err = &InputError{"max_wait_ms", "is for single checks: those of a batch are answered together"}
	case !item.Peek && slices.ContainsFunc(e.groups[:e.enforced], func(g *group) bool { return g.policy.ReserveOnly() }):
		err = weir.ErrReserveOnly
	default:
		return e, nil
	}
	e.free()
	return nil, err
}

func freeAll(list []*evaluation) {
	for _, e := range list {
		e.free()
	}
}
