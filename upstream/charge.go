package upstream

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/ruleset"
)

// A lease is the permission to send one request to one endpoint: it has passed the gates, and is charged.
//
// The charge is a reservation until the request is written, and then counts as used: so what is not sent can be
// given back exactly. One that nobody settles counts as used after holdToSend.
type lease struct {
	pool     *Pool // set once, like all up to the blank line
	endpoint *endpoint
	call     *Call
	probe    bool    // it is for a probe
	passes   [3]pass // of the endpoint's gates
	query    *ruleset.Query
	ticket   *ruleset.Ticket // of the account, nil if there is none
	batch    *weir.Batch     // of an endpoint without an account, nil if it has no limit
	limit    string          // the tightest one, see Reply
	quota    weir.Limit      // the same
	unit     string          // of quota
	decision weir.Decision

	mu      sync.Mutex // guards the fields below
	settled bool
	reports bool // the transport reports what it does, as net/http does
	writes  int  // how often it has written the request

	ended sync.Once // see end
}

// holdToSend is how long a charge may be given back: opening a connection takes that long at most.
const holdToSend = 12 * time.Second

// refusal is why an endpoint cannot take a request now.
type refusal struct {
	endpoint *endpoint
	at       time.Time // when it can; the zero time if a call has to end first, or nobody can say
	never    bool      // it never can
	held     bool      // it may be able to earlier: when a reservation ends, such as that of a call which is being sent
	limit    string    // what refuses
}

// charge charges an endpoint for a call, or for a probe, or returns why it cannot take it.
func (p *Pool) charge(ctx context.Context, e *endpoint, c *Call, probe bool) (*lease, refusal, error) {
	now := time.Now()
	l := &lease{pool: p, endpoint: e, call: c, probe: probe}
	if r, ok := l.enter(now); !ok {
		return nil, r, nil
	}
	e.memory.stats.attempts.Add(1)
	d, err := l.reserve(ctx)
	seen := asSent(d, l.quota)
	if err == nil && d.Allowed {
		l.decision = seen
		e.memory.learn(now, seen)
		return l, refusal{}, nil
	}
	l.leave()
	if err != nil {
		return nil, refusal{}, err
	}
	e.memory.stats.skipped.Add(1)
	e.memory.learn(now, seen)
	r := refusal{endpoint: e, at: now.Add(max(1, d.RetryAfter)), held: d.Held, limit: l.limit}
	if d.RetryAfter == weir.Never {
		r.at, r.never = time.Time{}, true
	}
	return nil, r, nil
}

// asSent returns what a limit will say when the request has been sent, a moment from now. Limits that refill bit by bit
// take reservations for units that are used when they expire, so their ResetAfter is later by that.
func asSent(d weir.Decision, l weir.Limit) weir.Decision {
	if _, zone := l.Per.Calendar(); zone != nil {
		return d
	}
	switch l.Algorithm {
	case weir.Auto, weir.GCRA, weir.TokenBucket, weir.Lending:
		if d.ResetAfter > holdToSend && d.ResetAfter != weir.Never {
			d.ResetAfter -= holdToSend
		}
	}
	return d
}

// enter passes the endpoint's gates and takes its slot.
func (l *lease) enter(now time.Time) (refusal, bool) {
	e := l.endpoint
	if r, closed := e.closed(now, l.probe); closed {
		return r, false
	}
	var entered int
	for i, g := range e.gates() {
		var ok bool
		if l.passes[i], _, ok = g.enter(now); !ok {
			break
		}
		entered++
	}
	if n := e.memory.inFlight.Add(1); entered == len(l.passes) && (e.Concurrency == 0 || n <= int64(e.Concurrency)) {
		return refusal{}, true
	}
	l.leave() // others were faster; a pass that was not got is that of an open gate
	r, closed := e.closed(now, l.probe)
	if !closed {
		r = refusal{endpoint: e, at: now, limit: limitedByFailure}
	}
	return r, false
}

// leave ends a lease that was not used. It wakes nobody: the heads of lines would wake each other for ever while they
// try in vain. Who was refused because of the slot tries again soon, see recheck.
func (l *lease) leave() {
	for i, g := range l.endpoint.gates() {
		g.leave(l.passes[i])
	}
	l.endpoint.memory.inFlight.Add(-1)
}

// end gives the slot back after a call, when its response has ended, and lets those in line look again if they may have
// waited for that. Only the first call does.
func (l *lease) end() {
	l.ended.Do(func() {
		l.endpoint.memory.inFlight.Add(-1)
		if l.endpoint.Concurrency > 0 {
			l.pool.lines.wake()
		}
	})
}

// isHalf reports whether one of the gates was half open. Then others may wait for the end of the call.
func (l *lease) isHalf() bool { return l.passes[0].half || l.passes[1].half || l.passes[2].half }

// reserve charges the endpoint's limit and its account, both or none.
func (l *lease) reserve(ctx context.Context) (weir.Decision, error) {
	e := l.endpoint
	switch {
	case e.budget != nil:
		return l.reserveAccount(ctx)
	case e.policy == nil:
		return weir.Decision{Allowed: true, Reason: weir.Admitted}, nil
	}
	b := &weir.Batch{Op: weir.ReserveAll, TTL: holdToSend, Charges: e.charges(l.call, nil)}
	if err := l.pool.do(ctx, b); err != nil {
		return weir.Decision{}, err
	}
	d := b.Decisions[0]
	l.limit, l.quota = e.ownLimit(d.By)
	if d.Allowed {
		l.batch = b
	}
	return d, nil
}

// endpointKey is the key under which an endpoint's limit is charged.
const endpointKey = "endpoint"

// charges appends what a call costs of the endpoint's own limit: a request for each of its members.
func (e *endpoint) charges(c *Call, list []weir.Charge) []weir.Charge {
	if e.policy == nil {
		return list
	}
	return append(list, weir.Charge{Policy: e.policy, Key: endpointKey, Cost: int64(max(1, len(c.Methods)))})
}

func (l *lease) reserveAccount(ctx context.Context) (weir.Decision, error) {
	a := l.endpoint.budget
	rule, q, err := l.endpoint.query(l.pool.engine.Rules(), l.call)
	if err == nil && l.probe {
		q.Class = rule.UrgentClass() // its guaranteed share is the one that a probe can rely on, whatever less urgent calls there are
	}
	if err != nil {
		return weir.Decision{}, err
	}
	v, ticket, err := l.pool.engine.Reserve(ctx, rule, q, holdToSend)
	if err != nil {
		return weir.Decision{}, err
	}
	a.Held(ctx, q, &v, ticket, holdToSend)
	l.query, l.ticket = q, ticket
	l.limit, l.quota, l.unit = l.endpoint.limitOf(&v)
	return v.Decision, nil
}

// limitOf returns the limit that a verdict is about, as Reply has it. The account's name is not in it: callers are not
// to know it. Neither are they to know what is left of a limit that is hidden.
func (e *endpoint) limitOf(v *ruleset.Verdict) (name string, l weir.Limit, unit string) {
	switch {
	case v.With != nil:
		name, l = e.ownLimit(v.By)
		return name, l, ""
	case v.Limit >= 0:
		one := v.Variant.Limits()[v.Limit]
		if one.Hidden && v.Allowed {
			return "", l, ""
		}
		return "budget" + strings.TrimPrefix(v.Variant.LimitName(v.Limit), e.Budget), one.Limit, one.Unit
	case !v.Allowed:
		return limitedByRefusal, l, ""
	}
	return "", l, ""
}

// ownLimit returns one of the endpoint's own limits, by its place in the policy.
func (e *endpoint) ownLimit(by uint8) (name string, l weir.Limit) {
	list := e.policy.Limits()
	switch {
	case int(by) >= len(list): // no limit has refused
		return limitedByRefusal, l
	case list[by].Name == "main":
		return "limit", list[by]
	}
	return list[by].Name, list[by]
}

// query returns the account's rule and the query for a call.
func (e *endpoint) query(rules *ruleset.Rules, c *Call) (*ruleset.Rule, *ruleset.Query, error) {
	rule := rules.Rule(e.Budget)
	if rule == nil {
		return nil, nil, fmt.Errorf("upstream: endpoint %q: %w: %q", e.Alias, budget.ErrRemoved, e.Budget)
	}
	q := &ruleset.Query{Alone: true, Shadow: true, With: e.charges(c, nil)}
	if slices.Contains(rule.Classes(), c.Class) {
		q.Class = c.Class
	}
	if e.budget.Costs() != nil && len(c.Methods) > 0 {
		q.Methods, q.Implied = c.Methods, true
	} else {
		q.Cost = int64(max(1, len(c.Methods)))
	}
	return rule, q, e.budget.Prepare(rule, q)
}

// wrote notes that the transport has written the request, and so spent what was reserved. It returns at once,
// because a connection waits for it.
func (l *lease) wrote() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reports = true
	if l.writes++; l.writes == 1 {
		l.endpoint.memory.stats.sent.Add(1)
		l.endpoint.memory.stats.rate.add(time.Now())
	}
	if l.ticket == nil && l.batch == nil {
		return
	}
	if l.writes > 1 {
		go l.chargeAgain()
		return
	}
	go l.settle(true)
}

// unsent reports, when the transport has returned an error, whether the request was provably not written.
func (l *lease) unsent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reports && l.writes == 0
}

// settle ends the reservation, as used or not. Only the first call does.
func (l *lease) settle(used bool) {
	l.mu.Lock()
	first := !l.settled
	l.settled = true
	l.mu.Unlock()
	if !first {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	if err := l.settleNow(ctx, used); err != nil {
		l.pool.set.Load().config.Logger.Warn("upstream: a charge is not settled, and counts as used", "pool", l.pool.name, "upstream", l.endpoint.Alias, "error", err)
	}
	if !used || l.pool.lines.awaited.Load() > 0 {
		l.pool.lines.wake()
	}
}

const settleTimeout = time.Second

func (l *lease) settleNow(ctx context.Context, used bool) error {
	switch {
	case l.ticket != nil:
		_, err := l.endpoint.budget.Settle(ctx, l.ticket, ruleset.Used{All: used, None: !used})
		return err
	case l.batch == nil:
		return nil
	}
	b := &weir.Batch{Op: weir.Settle, Charges: slices.Clone(l.batch.Charges), Receipts: l.batch.Receipts}
	if !used {
		b.Charges[0].Cost = 0
	}
	return l.pool.do(ctx, b)
}

// chargeAgain charges a request that the transport has written once more, after a connection was lost.
func (l *lease) chargeAgain() {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	if b := l.endpoint.charges(l.call, nil); len(b) > 0 {
		_ = l.pool.do(ctx, &weir.Batch{Op: weir.DebitEach, Charges: b})
	}
	if l.query == nil {
		return
	}
	q := *l.query
	q.With = nil
	rule := l.pool.engine.Rules().Rule(l.endpoint.Budget)
	if rule == nil {
		return
	}
	if _, err := l.pool.engine.DebitEach(ctx, []ruleset.Item{{Rule: rule, Query: q}}); err == nil {
		l.endpoint.budget.Debited(ctx, &q)
	}
}

// connecting notes that the transport reports what it does.
func (l *lease) connecting() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reports = true
}

// sentUnseen notes that the request was sent if the transport has not reported it.
func (l *lease) sentUnseen() {
	l.mu.Lock()
	unseen := l.writes == 0
	l.mu.Unlock()
	if unseen {
		l.wrote()
	}
}
