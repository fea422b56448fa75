package ruleset

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

// Engine decides requests by rules. Make one with New. All methods may be called by any number
// of goroutines.
type Engine struct {
	limiter *queue.Queue  // set by New, like the next one
	gated   *gatedLimiter // what the queue charges
	settled settled

	// rules is replaced by Set. A decision loads it once.
	rules atomic.Pointer[Rules]

	waiting  shares      // requests with MaxWait, by client
	inLine   shares      // the same of clients that are not alone, by client and line
	reserved openTickets // by clients that are not alone

	setting sync.Mutex      // held by Set, Apply and SetGate
	gates   map[string]Gate // by the name of the policy; requires setting

	// applied has the charged policies by name as *applied: those that are in force in the
	// limiter, and those that were before they were removed from the rules. Only
	// Set and Apply write it.
	applied sync.Map
}

// An applied policy is one that the limiter has, with what it counts.
type applied struct {
	policy *weir.Policy
	unit   string
	plain  bool // the unit is that of plain numbers
}

// New returns an Engine that charges l. As many requests wait for a key as the defaults of a queue allow.
func New(l weir.Limiter, rules *Rules) (*Engine, error) {
	return NewQueued(l, queue.Config{}, rules)
}

var errNeeded = errors.New("ruleset: a limiter and rules are needed")

// NewQueued is New with bounds of the requests that wait for a key.
func NewQueued(l weir.Limiter, c queue.Config, rules *Rules) (*Engine, error) {
	if l == nil || rules == nil {
		return nil, errNeeded
	}
	gated := &gatedLimiter{Limiter: l}
	q, err := queue.New(gated, c)
	if err != nil {
		return nil, err
	}
	n := &Engine{limiter: q, gated: gated, gates: map[string]Gate{}}
	n.waiting.most, n.waiting.each = maxWaiting, maxWaiting/clientShare
	n.inLine.most, n.inLine.each = maxWaiting, shareOfLine(q.MaxPerKey())
	n.reserved.most, n.reserved.each = maxReserved, maxReserved/clientShare
	n.put(rules)
	return n, nil
}

// put replaces the rules, whose policies the limiter has applied.
func (n *Engine) put(rules *Rules) {
	for _, r := range rules.list {
		for i := range r.base.groups {
			g := &r.base.groups[i]
			n.applied.Store(g.policy.Name(), &applied{g.policy, g.unit, g.unit == r.plainUnit()})
		}
	}
	n.rules.Store(rules)
	n.gated.guard(n.gates, rules)
}

// Rules returns the rules that are in force. A request should load them once.
func (n *Engine) Rules() *Rules { return n.rules.Load() }

// Waiting returns the number of requests that wait for capacity.
func (n *Engine) Waiting() int { return n.waiting.len() }

// Limiter returns what the engine charges, for charges that no rule describes. It grants waiting
// requests their turn.
func (n *Engine) Limiter() weir.Limiter { return n.limiter }

// Set replaces the rules. Every key's units in use are kept. If the limiter fails to apply a changed
// policy, the rules stay as they are. Policies change one after the other: a concurrent request
// may be decided by some new limits and some old ones.
func (n *Engine) Set(ctx context.Context, rules *Rules) error {
	n.setting.Lock()
	defer n.setting.Unlock()
	if err := n.applyLocked(ctx, rules.Policies()); err != nil {
		return err
	}
	n.put(rules)
	return nil
}

// Apply puts policies in force that no rule describes, as Set does.
func (n *Engine) Apply(ctx context.Context, policies ...*weir.Policy) error {
	n.setting.Lock()
	defer n.setting.Unlock()
	if err := n.applyLocked(ctx, policies); err != nil {
		return err
	}
	for _, p := range policies {
		n.applied.Store(p.Name(), &applied{policy: p})
	}
	return nil
}

// applyLocked sets the policies that differ from those that the limiter has, or none. It requires
// n.setting.
func (n *Engine) applyLocked(ctx context.Context, policies []*weir.Policy) error {
	changes := n.changes(policies)
	for i, c := range changes {
		err := n.limiter.Set(ctx, c.Old, c.New)
		if err == nil {
			continue
		}
		if errors.Is(err, weir.ErrUnknown) {
			i++ // the limiter may have applied it
		}
		return errors.Join(fmt.Errorf("ruleset: policy %q: %w", c.New.Name(), err), n.undo(ctx, changes[:i]))
	}
	return nil
}

// A change is a policy of the limiter that gets other limits.
type change struct{ Old, New *weir.Policy }

// changes returns those of some policies that the limiter must change. The limiter keeps the last
// limits of a removed policy, so one that is added again is compared with those.
func (n *Engine) changes(policies []*weir.Policy) (list []change) {
	for _, p := range policies {
		if old, ok := n.applied.Load(p.Name()); ok && !old.(*applied).policy.Same(p) {
			list = append(list, change{Old: old.(*applied).policy, New: p})
		}
	}
	return list
}

// undoWithin is the timeout of undo.
const undoWithin = 5 * time.Second

// undo reverts changes, the last one first, even if ctx has ended.
func (n *Engine) undo(ctx context.Context, changes []change) (problems error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWithin)
	defer cancel()
	for i := len(changes) - 1; i >= 0; i-- {
		if err := n.limiter.Set(ctx, changes[i].New, changes[i].Old); err != nil {
			problems = errors.Join(problems, fmt.Errorf("ruleset: policy %q: cannot be reverted: %w", changes[i].New.Name(), err))
		}
	}
	return problems
}

// Check charges a query if it fits the rule, and nothing otherwise. An error means bad input
// (*InputError, weir.ErrInvalid) or that no decision could be made.
func (n *Engine) Check(ctx context.Context, r *Rule, q *Query) (Verdict, error) {
	v := r.variant(q)
	if !q.plain(v) {
		return n.evaluateQuery(ctx, v, q, weir.TakeAll)
	}
	out := Verdict{Variant: v, Shadow: -1}
	d, err := n.limiter.Take(ctx, v.groups[0].charged(q.Class), q.Key, q.Cost)
	if err != nil {
		return out, err
	}
	out.decided(&v.groups[0], d)
	return out, nil
}

// Peek returns the decision of Check without charging.
func (n *Engine) Peek(ctx context.Context, r *Rule, q *Query) (Verdict, error) {
	return n.evaluateQuery(ctx, r.variant(q), q, weir.PeekEach)
}

// evaluateQuery carries out op for a query.
func (n *Engine) evaluateQuery(ctx context.Context, v *Variant, q *Query, op weir.Op) (Verdict, error) {
	e, err := newEvaluation(v, q)
	if err != nil {
		return Verdict{}, err
	}
	defer e.free()
	return n.evaluate(ctx, e, op)
}

// evaluate carries out op for the enforced charges and, if they are admitted, for those in shadow.
func (n *Engine) evaluate(ctx context.Context, e *evaluation, op weir.Op) (out Verdict, err error) {
	if op == weir.TakeAll && e.query.MaxWait != 0 && e.enforced > 0 {
		out, err = n.wait(ctx, e, e.part(weir.TakeAll, 0, e.enforced))
	} else {
		out, err = e.decide(ctx, n.limiter, op)
	}
	if err == nil && out.Allowed {
		e.shadow(ctx, n.limiter, op, &out)
	}
	return out, err
}

// Reset sets the usage of the query's keys to zero, in all groups of the rule. Open reservations
// stay. Cost and SkipShadow are ignored.
func (n *Engine) Reset(ctx context.Context, r *Rule, q *Query) error {
	all := *q
	all.SkipShadow = false
	e, err := newEvaluation(r.variant(&all), &all)
	if err != nil {
		return err
	}
	defer e.free()
	return n.limiter.Do(ctx, e.part(weir.ResetEach, 0, len(e.charges)))
}

// LimitStatus is the state of one limit for a key.
type LimitStatus struct {
	Limit     int // its place among the variant's limits
	Key       string
	Remaining int64
	Capacity  int64
	Reset     time.Duration
}

// Inspect returns the status of the tightest limit of each group for a query, as its class has it.
// It ignores the cost and changes nothing. Groups by attributes that the query lacks are left out.
func (n *Engine) Inspect(ctx context.Context, r *Rule, q *Query) (*Variant, []LimitStatus, error) {
	v := r.variant(q)
	if err := q.checkScale(); err != nil {
		return v, nil, err
	}
	if err := r.checkClass(q.Class); err != nil {
		return v, nil, err
	}
	b := weir.Batch{Op: weir.PeekEach}
	var groups []*group
	for i := range v.groups {
		key, err := q.keyOf(&v.groups[i])
		if err != nil {
			continue
		}
		groups = append(groups, &v.groups[i])
		b.Charges = append(b.Charges, weir.Charge{Policy: v.groups[i].charged(r.ClassOf(q)), Key: key})
	}
	if err := n.limiter.Do(ctx, &b); err != nil {
		return v, nil, err
	}
	list := make([]LimitStatus, len(groups))
	for i, d := range b.Decisions {
		list[i] = LimitStatus{Limit: max(0, groups[i].place(d)), Key: b.Charges[i].Key, Remaining: d.Remaining, Capacity: d.Limit, Reset: d.ResetAfter}
	}
	return v, list, nil
}
