package ruleset

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/storeapi"
)

// A Gate says on which terms a policy admits charges now. It is asked before each attempt, those of waiting
// requests included, so that terms that change apply to requests that wait already, and these keep their
// places. It may be called by any number of goroutines.
type Gate func(ctx context.Context) Terms

// Terms are what a Gate says.
type Terms struct {
	// Plan is the plan by whose limits charges are decided, "" if by the policy's own. Overrides go before
	// it. A refusal by a plan has Decision.Held, since it may end when the terms change.
	Plan string

	// Wait is how long no charge is admitted, whether it fits or not.
	Wait time.Duration
}

// planRetry is the RetryAfter of a charge that exceeds what a plan of a Gate ever has at once, but not what
// the policy has.
const planRetry = 250 * time.Millisecond

// byNone is Decision.By of a refusal that is no limit's.
const byNone = math.MaxUint8

// SetGate gives the policy of a name a gate, which applies to all its charges from the next attempt on,
// except to units that were used already (DebitEach).
func (n *Engine) SetGate(policy string, g Gate) {
	n.setting.Lock()
	defer n.setting.Unlock()
	n.gates[policy] = g
	n.gated.guard(n.gates, n.Rules())
}

// Retry lets the waiting requests of a policy try again at once, because its gate has other terms before that could be
// expected. They keep their places.
func (n *Engine) Retry(policy string) {
	r := n.Rules().Rule(policy)
	if r == nil {
		return
	}
	for i := range r.base.groups {
		n.limiter.Retry(r.base.groups[i].policy.Name())
	}
}

// gatedLimiter is a limiter in front of which gates stand.
type gatedLimiter struct {
	weir.Limiter

	// policies are those with a gate, by their names in charges. The map is never changed. It is nil if there
	// is no gate, so that a charge costs a load more.
	policies atomic.Pointer[map[string]gated]
}

// gated is a policy in charges with a gate.
type gated struct {
	gate Gate
	rule *Rule
}

// guard puts gates in front of those policies of rules that have one.
func (l *gatedLimiter) guard(gates map[string]Gate, rules *Rules) {
	policies := map[string]gated{}
	for name, gate := range gates {
		r := rules.Rule(name)
		if r == nil {
			continue
		}
		for i := range r.base.groups {
			policies[r.base.groups[i].policy.Name()] = gated{gate, r}
		}
	}
	if len(policies) > 0 {
		l.policies.Store(&policies)
	} else {
		l.policies.Store(nil)
	}
}

// Take charges one key.
func (l *gatedLimiter) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	policies := l.policies.Load()
	if policies == nil || p == nil {
		return l.Limiter.Take(ctx, p, key, cost)
	}
	if _, is := (*policies)[p.Name()]; !is {
		return l.Limiter.Take(ctx, p, key, cost)
	}
	b := weir.Batch{Op: weir.TakeAll, Charges: []weir.Charge{{Policy: p, Key: key, Cost: cost}}}
	if err := l.Do(ctx, &b); err != nil {
		return weir.Decision{}, err
	}
	return b.Decisions[0], nil
}

// Do executes a batch.
func (l *gatedLimiter) Do(ctx context.Context, b *weir.Batch) error {
	policies := l.policies.Load()
	if policies == nil || !isGated(*policies, b) {
		return l.Limiter.Do(ctx, b)
	}
	ctx = storeapi.WithPatience(ctx, StorePatience)
	if !decides(b.Op) {
		return l.Limiter.Do(ctx, b)
	}
	terms := termsOf(ctx, *policies, b)
	if terms == nil {
		return l.Limiter.Do(ctx, b)
	}
	return terms.do(ctx, l.Limiter, b)
}

// StorePatience is how long a store may take for a charge of a policy with a gate, if its own timeout is shorter. Such a
// policy is a quota of somebody else. Requests wait for that anyway, whereas what is decided without the store, by this
// process's share, may be refused by its owner.
const StorePatience = 250 * time.Millisecond

// isGated reports whether a batch charges a policy with a gate.
func isGated(policies map[string]gated, b *weir.Batch) bool {
	return slices.ContainsFunc(b.Charges, func(c weir.Charge) bool {
		if c.Policy == nil {
			return false
		}
		_, is := policies[c.Policy.Name()]
		return is
	})
}

// decides reports whether an operation admits or refuses charges.
func decides(op weir.Op) bool {
	return op == weir.TakeEach || op == weir.TakeAll || op == weir.ReserveAll || op == weir.PeekEach
}

// batchTerms are the terms of the charges of a batch.
type batchTerms struct {
	charges []weir.Charge // under the plans of the terms
	waits   []time.Duration
}

// termsOf returns the terms of a batch, nil if no gate has any.
func termsOf(ctx context.Context, policies map[string]gated, b *weir.Batch) *batchTerms {
	var t *batchTerms
	for i, c := range b.Charges {
		if c.Policy == nil || b.Op == weir.PeekEach && c.Cost == 0 { // a question about the usage
			continue
		}
		g, is := policies[c.Policy.Name()]
		if !is {
			continue
		}
		terms := g.gate(ctx)
		if terms == (Terms{}) {
			continue
		}
		if t == nil {
			t = &batchTerms{slices.Clone(b.Charges), make([]time.Duration, len(b.Charges))}
		}
		t.charges[i].Policy, t.waits[i] = g.rule.under(terms.Plan, c.Policy), terms.Wait
	}
	return t
}

// under returns the policy of a charge under a plan.
func (r *Rule) under(plan string, p *weir.Policy) *weir.Policy {
	if plan == "" || p.Compiled().Override {
		return p
	}
	if g := r.planned(plan).group(p.Name()); g != nil {
		return g.charged(p.ClassName())
	}
	return p
}

// do executes a batch on terms.
func (t *batchTerms) do(ctx context.Context, l weir.Limiter, b *weir.Batch) error {
	closed := slices.ContainsFunc(t.waits, func(d time.Duration) bool { return d > 0 })
	var err error
	switch {
	case !closed || b.Op == weir.PeekEach:
		err = t.run(ctx, l, b, b.Op, t.charges)
	case b.Op == weir.TakeEach:
		err = t.takeOpen(ctx, l, b)
	default:
		err = t.run(ctx, l, b, weir.PeekEach, t.charges)
	}
	if err != nil {
		return err
	}
	for i := range b.Decisions {
		t.apply(i, &b.Charges[i], &b.Decisions[i])
	}
	if closed && (b.Op == weir.TakeAll || b.Op == weir.ReserveAll) {
		refuseAll(b.Decisions)
	}
	return nil
}

// run has the limiter execute an operation for charges, with the results of b.
func (t *batchTerms) run(ctx context.Context, l weir.Limiter, b *weir.Batch, op weir.Op, charges []weir.Charge) error {
	on := *b
	on.Op, on.Charges = op, charges
	err := l.Do(ctx, &on)
	b.Decisions, b.Receipts, b.Settled = on.Decisions, on.Receipts, on.Settled
	return err
}

// takeOpen makes those charges of b for which there is nothing to wait, and peeks at the others.
func (t *batchTerms) takeOpen(ctx context.Context, l weir.Limiter, b *weir.Batch) error {
	peek := weir.Batch{Op: weir.PeekEach, Charges: t.charges}
	if err := l.Do(ctx, &peek); err != nil {
		return err
	}
	open := slices.Clone(t.charges)
	for i, wait := range t.waits {
		if wait > 0 {
			open[i].Cost = 0
		}
	}
	if err := t.run(ctx, l, b, weir.TakeEach, open); err != nil {
		return err
	}
	for i, wait := range t.waits {
		if wait > 0 {
			b.Decisions[i] = peek.Decisions[i]
		}
	}
	return nil
}

// apply makes the decision on a charge one on its terms.
func (t *batchTerms) apply(i int, c *weir.Charge, d *weir.Decision) {
	if planned := t.charges[i].Policy != c.Policy; planned && !d.Allowed {
		if d.Reason == weir.TooCostly && c.Cost <= c.Policy.Capacity() {
			d.Reason, d.RetryAfter = weir.Exhausted, planRetry
		}
		d.Held = d.Held || d.Reason == weir.Exhausted
	}
	if wait := t.waits[i]; wait > 0 && (d.Allowed || d.Reason == weir.Exhausted && d.RetryAfter < wait) {
		*d = weir.Decision{Reason: weir.Exhausted, RetryAfter: wait, By: byNone}
	}
}

// refuseAll makes the admitted charges those of a batch that was refused because of another.
func refuseAll(decisions []weir.Decision) {
	for i := range decisions {
		if d := &decisions[i]; d.Allowed {
			d.Allowed, d.Reason = false, weir.NotCharged
		}
	}
}
