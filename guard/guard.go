package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/queue"
)

// Guard holds requests to rules. Make one with New. All methods may be called by any
// number of goroutines.
type Guard struct {
	limiter *queue.Queue // set by New, like the next
	settled *settled

	// rules is replaced by Set. Whoever decides loads it once.
	rules atomic.Pointer[Rules]

	retries retries

	mu   sync.Mutex              // held by Set, one at a time; guards the field below
	told map[string]*weir.Policy // what the limiter has in force, by the names of groups that there are or were
}

// New returns a Guard that counts with l.
func New(l weir.Limiter, rules *Rules) (*Guard, error) {
	if l == nil || rules == nil {
		return nil, errors.New("guard: a limiter and rules are needed")
	}
	q, err := queue.New(l, queue.Config{})
	if err != nil {
		return nil, err
	}
	g := &Guard{limiter: q, settled: newSettled(), told: map[string]*weir.Policy{}}
	g.setLocked(rules)
	return g, nil
}

// setLocked puts rules in force, of which the limiter has been told.
func (g *Guard) setLocked(rules *Rules) {
	for _, r := range rules.list {
		for i := range r.base.groups {
			p := r.base.groups[i].policy
			g.told[p.Name()] = p
		}
	}
	g.rules.Store(rules)
}

// Rules returns the rules that are in force. A request uses one for all that it asks.
func (g *Guard) Rules() *Rules { return g.rules.Load() }

// Waiting returns how many requests wait for their turn.
func (g *Guard) Waiting() int { return g.limiter.Waiting() + g.retries.len() }

// Set puts other rules in force. Every key's units in use are kept. If the limiter cannot
// be told, the rules stay as they are. Numbers change one group after the other: a request
// that comes meanwhile may meet some of the new ones and some of the old.
func (g *Guard) Set(ctx context.Context, rules *Rules) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	changes := g.changesLocked(rules)
	for i, c := range changes {
		err := g.limiter.Set(ctx, c.Old, c.New)
		if err == nil {
			continue
		}
		if errors.Is(err, weir.ErrUnknown) {
			i++ // it may have been set
		}
		return errors.Join(fmt.Errorf("guard: policy %q: %w", c.New.Name(), err), g.undo(ctx, changes[:i]))
	}
	g.setLocked(rules)
	return nil
}

// A change is a policy of a limiter that gets other numbers.
type change struct{ Old, New *weir.Policy }

// changesLocked returns what the limiter has to be told when rules follow. Numbers that it
// was told to replace stay replaced while a group is away, so they count when it
// comes back.
func (g *Guard) changesLocked(rules *Rules) []change {
	var list []change
	for _, r := range rules.list {
		for i := range r.base.groups {
			p := r.base.groups[i].policy
			if old := g.told[p.Name()]; old != nil && !old.Same(p) {
				list = append(list, change{Old: old, New: p})
			}
		}
	}
	return list
}

// undoWithin is how long it may take to take changes back.
const undoWithin = 5 * time.Second

// undo takes changes back, the last one first, also if they failed because ctx ended.
func (g *Guard) undo(ctx context.Context, changes []change) (problems error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWithin)
	defer cancel()
	for i := len(changes) - 1; i >= 0; i-- {
		if err := g.limiter.Set(ctx, changes[i].New, changes[i].Old); err != nil {
			problems = errors.Join(problems, fmt.Errorf("guard: policy %q: cannot be taken back: %w", changes[i].New.Name(), err))
		}
	}
	return problems
}

// Check charges a query if it fits the rule, and nothing otherwise. An error means bad
// input (*InputError, weir.ErrInvalid) or that
// no decision could be made.
func (g *Guard) Check(ctx context.Context, r *Rule, q *Query) (Verdict, error) {
	v := r.variant(q.Key)
	if !q.plain(v) {
		return g.checkAll(ctx, v, q)
	}
	out := Verdict{Variant: v, Shadow: -1}
	d, err := g.limiter.Take(ctx, v.groups[0].policy, q.Key, q.Cost)
	if err != nil {
		return out, err
	}
	out.decided(&v.groups[0], d)
	return out, nil
}

// Peek says what Check would, and changes nothing.
func (g *Guard) Peek(ctx context.Context, r *Rule, q *Query) (Verdict, error) {
	a, err := newAsking(r.variant(q.Key), q)
	if err != nil {
		return Verdict{}, err
	}
	defer a.free()
	out, err := a.put(ctx, g.limiter, weir.PeekEach)
	if err == nil && out.Allowed {
		a.shadow(ctx, g.limiter, weir.PeekEach, &out)
	}
	return out, err
}

// checkAll is Check for several charges, or if there is time to wait.
func (g *Guard) checkAll(ctx context.Context, v *Variant, q *Query) (Verdict, error) {
	a, err := newAsking(v, q)
	if err != nil {
		return Verdict{}, err
	}
	defer a.free()
	out, err := g.take(ctx, a)
	if err == nil && out.Allowed {
		a.shadow(ctx, g.limiter, weir.TakeAll, &out)
	}
	return out, err
}

// take charges what is enforced, and waits if it may.
func (g *Guard) take(ctx context.Context, a *asking) (Verdict, error) {
	if a.query.MaxWait == 0 || a.enforced == 0 {
		return a.put(ctx, g.limiter, weir.TakeAll)
	}
	began := time.Now()
	out, err := g.wait(ctx, a)
	if out.Waited = time.Since(began); out.Waited < time.Millisecond {
		out.Waited = 0 // that was no waiting
	}
	return out, err
}

// Reset forgets what the query's keys have used under the rule, in all its groups. Open
// reservations stay. Cost plays no part.
func (g *Guard) Reset(ctx context.Context, r *Rule, q *Query) error {
	a, err := newAsking(r.variant(q.Key), q)
	if err != nil {
		return err
	}
	defer a.free()
	return g.limiter.Do(ctx, a.part(weir.ResetEach, 0, len(a.charges)))
}

// Standing is how one limit stands.
type Standing struct {
	Limit     int // its place among the variant's limits
	Key       string
	Remaining int64
	Capacity  int64
	Reset     time.Duration
}

// Inspect tells how the tightest limit of each group stands for a query, whatever it
// costs. It changes nothing. Groups by attributes that the query lacks are left out.
func (g *Guard) Inspect(ctx context.Context, r *Rule, q *Query) (*Variant, []Standing, error) {
	v := r.variant(q.Key)
	b := weir.Batch{Op: weir.PeekEach}
	var groups []*group
	for i := range v.groups {
		key, err := q.keyOf(&v.groups[i])
		if err != nil {
			continue
		}
		groups = append(groups, &v.groups[i])
		b.Charges = append(b.Charges, weir.Charge{Policy: v.groups[i].policy, Key: key})
	}
	if err := g.limiter.Do(ctx, &b); err != nil {
		return v, nil, err
	}
	list := make([]Standing, len(groups))
	for i, d := range b.Decisions {
		list[i] = Standing{Limit: max(0, groups[i].place(d)), Key: b.Charges[i].Key, Remaining: d.Remaining, Capacity: d.Limit, Reset: d.ResetAfter}
	}
	return v, list, nil
}
