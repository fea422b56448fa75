package tiered

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/compiled"
)

// A share is the policy by which one of several nodes decides alone while the store is
// unavailable: rate/nodes and burst/nodes of each limit that fails local, but at least one
// unit. Its state is in Local and persists from outage to outage.
type share struct {
	nodes  int
	policy *weir.Policy // nil if it cannot be represented
	usage  *weir.Policy // the same state, to find out what is in use; see usageOf. It may be nil
	at     []int        // for each limit of the original policy its index in the share's, or -1
}

// shareOf returns this node's share under pl.
func (t *Limiter) shareOf(pl *plan) *share {
	nodes := t.nodes()
	if s := pl.share.Load(); s != nil && s.nodes == nodes {
		return s
	}
	s := newShare(pl, nodes)
	pl.share.Store(s)
	return s
}

func newShare(pl *plan, nodes int) *share {
	s := &share{nodes: nodes, at: make([]int, len(pl.perNano))}
	scaled, err := pl.force.Scale(1, int64(nodes))
	if err != nil {
		return s
	}
	var limits []weir.Limit
	lends := slices.ContainsFunc(pl.failLocal, func(i int) bool { return scaled.Limits()[i].Algorithm == weir.Lending })
	for i, l := range scaled.Limits() {
		s.at[i] = -1
		if !slices.Contains(pl.failLocal, i) {
			continue
		}
		if pl.perNano[i] > 0 || l.Algorithm == weir.Lending {
			l = burstShare(l, int64(nodes))
		}
		if !lends {
			l.Pace = "" // the classes are another limit's
		}
		s.at[i] = len(limits)
		limits = append(limits, l)
	}
	if s.policy, err = weir.NewPolicy(fmt.Sprintf("share:%d", pl.history.id), limits...); err == nil {
		s.usage = usageOf(s.policy)
		s.policy = ofClass(s.policy, pl.force.ClassName())
	}
	return s
}

// maxOwed is how many times a share's burst may be in use, for usageOf.
const maxOwed = 1024

// usageOf returns a policy on the state of p of which Limit − Remaining is what is in use: held units count, but not
// the time for which they may be held still, and owed ones as far as there is room for them beyond the
// burst. A limit with classes is one without, as what is left for one class says nothing about the others.
// If p is no single rate, it is p. It is nil if there is none, for limits that take decades to be replenished.
func usageOf(p *weir.Policy) *weir.Policy {
	l := p.Limits()[0]
	if len(p.Limits()) > 1 || !isSmooth(l) && l.Algorithm != weir.Lending {
		return p
	}
	for times := int64(maxOwed); times > 0; times /= 2 { // slow limits have room for less
		if u, err := p.With(weir.Limit{Name: l.Name, Rate: l.Rate, Per: l.Per, Burst: times * l.Burst}); err == nil {
			return u
		}
	}
	return nil
}

// burstShare returns a limit with one of so many parts of its bursts, at least one unit.
func burstShare(l weir.Limit, nodes int64) weir.Limit {
	l.Burst = max(1, l.Burst/nodes)
	classes := l.Classes.List()
	for i := range classes {
		classes[i].Burst /= nodes
	}
	l.Classes = weir.ClassesOf(classes...)
	return l
}

// withoutStore decides a charge by OnError. If this node's share must decide, it sets c.share.
func (t *Limiter) withoutStore(c *call) weir.Decision {
	pl, s := c.plan, t.shareOf(c.plan)
	switch {
	case pl.failsClosed || len(pl.failLocal) > 0 && s.policy == nil:
		return storeDown()
	case len(pl.failLocal) > 0:
		c.share = s
	}
	return weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: pl.capacity, Remaining: pl.capacity, Estimate: true}
}

// fallback executes TakeEach, PeekEach or DebitEach of a charge while the store is unavailable. A
// debit is charged to this node's share, too, so that the share does not grant those units again.
// Its decision is always Allowed, even if the policy fails closed, because the debit is recorded
// or may have been made.
func (t *Limiter) fallback(op weir.Op, c *call) weir.Decision {
	d := t.withoutStore(c)
	if c.share != nil {
		if op != weir.PeekEach {
			t.seed(c)
		}
		d = c.shared(t.onShare(op, c))
	}
	switch {
	case op == weir.DebitEach:
		d.Allowed = true
		return d
	case op == weir.TakeEach && d.Allowed:
		t.grantedHere(c, c.cost)
	}
	t.counts.fallback.Add(1)
	return d
}

// onShare executes an operation on the share of a key.
func (t *Limiter) onShare(op weir.Op, c *call) (weir.Decision, error) {
	if op == weir.TakeEach {
		return t.config.Local.Take(context.Background(), c.share.policy, c.key, c.cost)
	}
	b := weir.Batch{Op: op, Charges: []weir.Charge{c.ofShare()}}
	if err := t.config.Local.Do(context.Background(), &b); err != nil {
		return weir.Decision{}, err
	}
	return b.Decisions[0], nil
}

// ofShare returns the charge under the policy of the share.
func (c *call) ofShare() weir.Charge {
	return weir.Charge{Policy: c.share.policy, Key: c.key, Cost: c.cost}
}

// fallbackAll executes TakeAll and ReserveAll while the store is unavailable, for the reason why.
// Either all charges fit this node's shares, or none is made.
func (t *Limiter) fallbackAll(b *weir.Batch, calls []call, why error) error {
	t.counts.fallback.Add(int64(len(calls)))
	local := weir.Batch{Op: b.Op, TTL: b.TTL}
	for i := range calls {
		c := &calls[i]
		c.why = why
		b.Decisions[i] = t.withoutStore(c)
		if c.share != nil {
			t.seed(c)
			local.Charges = append(local.Charges, c.ofShare())
		}
	}
	if !b.Allowed() { // one fails closed
		notCharged(b)
		return nil
	}
	if err := t.config.Local.Do(context.Background(), &local); err != nil {
		return err
	}
	t.report(b, &local, calls)
	return nil
}

// report copies Local's decisions on the shares to the batch.
func (t *Limiter) report(b, local *weir.Batch, calls []call) {
	allowed, at := local.Allowed(), 0
	for i := range calls {
		c, r := &calls[i], weir.Receipt{ID: t.failOpenID, Units: calls[i].cost, Expiry: calls[i].now.Add(compiled.DefaultTTL)}
		if c.share != nil {
			b.Decisions[i] = c.shared(local.Decisions[at], nil)
			if b.Op == weir.ReserveAll && allowed {
				r = local.Receipts[at]
				t.receipts.keep(r, c.now)
			}
			at++
		}
		if allowed {
			t.grantedHere(c, c.cost)
		}
		if allowed && b.Op == weir.ReserveAll {
			b.Receipts[i] = r
		}
	}
	if !allowed {
		notCharged(b)
	}
}

// notCharged marks the charges that fit as not charged, because another one of the batch was
// denied.
func notCharged(b *weir.Batch) {
	for i := range b.Decisions {
		if d := &b.Decisions[i]; d.Allowed {
			d.Allowed, d.Reason = false, weir.NotCharged
		}
	}
}

// grantedHere records units that were granted without the store, so that it is charged for them
// later. Units of an unknown outcome are only counted, because the store may have charged them
// and nothing is charged twice; units that cannot be charged are ignored. If the breaker is
// closed the store is charged for all units, otherwise for those that unitsToCharge returns.
// Negative units are a refund.
func (t *Limiter) grantedHere(c *call, units int64) {
	switch {
	case errors.Is(c.why, weir.ErrUnknown):
		t.counts.unknownUnits.Add(max(0, units))
	case units == 0 || c.share == nil: // units that failed open are not recorded
	case errors.Is(c.why, weir.ErrState) || c.plan.force.ReserveOnly(): // the key is unreadable, or slots, which are released and not charged
	case units > 0 && !t.breakerOf(c.plan.policy, c.key).open.Load():
		t.record(c, units, 0)
	default:
		t.record(c, 0, units)
	}
}

// storeDown returns the denial of a limit that fails closed.
func storeDown() weir.Decision {
	return weir.Decision{Reason: weir.StoreDown, RetryAfter: probeEvery, ResetAfter: probeEvery, Estimate: true}
}

// shared converts a decision of the share to one of the original policy. A cost that exceeds
// the share but not the policy is denied with StoreDown: only the store can admit it.
func (c *call) shared(d weir.Decision, err error) weir.Decision {
	if err != nil || d.Reason == weir.TooCostly && d.Limit < c.plan.capacity {
		return storeDown()
	}
	d.By = uint8(max(0, slices.Index(c.share.at, int(d.By))))
	d.Estimate = true
	return d
}

// seed initializes the share of a key at its first use in an outage from the last known state in
// the store: of the units in use there, each node's share gets its fraction.
func (t *Limiter) seed(c *call) {
	if !c.needEntry(t) {
		return
	}
	outage := t.breakerOf(c.plan.policy, c.key).outage.Load() + 1
	e, s := c.entry, c.share
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.seeded == outage {
		return
	}
	e.seeded = outage
	st := e.state
	if st.limits != c.plan.limits || s.at[st.by] < 0 {
		return
	}
	perNano := c.plan.perNano[st.by]
	used := usedOf(perNano, weir.Decision{Limit: st.limit, Remaining: st.remaining, ResetAfter: st.resetAt.Sub(st.at)})
	used -= perNano * float64(c.now.Sub(st.at))
	if used <= 0 || c.now >= st.resetAt {
		return
	}
	missing := min(used, float64(st.limit)) / float64(s.nodes)
	share := call{share: s, key: c.key}
	if d, err := t.onShare(weir.PeekEach, &share); err == nil && int(d.By) == s.at[st.by] {
		missing -= usedOf(perNano/float64(s.nodes), d)
	}
	if missing > 0 {
		share.cost = int64(min(math.Ceil(missing-little), float64(weir.MaxCost)))
		_, _ = t.onShare(weir.DebitEach, &share) // the next decision by Local reports the problem
	}
}

// little is a tolerance, in units: what slow limits replenish while a reply is in flight.
const little = 1e-3

// usedOf returns how many units of a limit are in use after d. perNano is the number of units
// that are replenished per nanosecond; 0 for a window. ResetAfter gives the result as a fraction,
// and above the limit, too; but while units are reserved, it is when the last reservation
// expires, so it is only used where it agrees with Remaining, or nothing remains.
func usedOf(perNano float64, d weir.Decision) float64 {
	used := float64(d.Limit - d.Remaining)
	if perNano > 0 && d.ResetAfter != weir.Never {
		if exact := float64(d.ResetAfter) * perNano; d.Remaining == 0 || math.Abs(exact-used) <= 1 {
			return exact
		}
	}
	return used
}

// settleOrRenew settles or renews reservations where they were made: in the store or in Local.
func (t *Limiter) settleOrRenew(ctx context.Context, b *weir.Batch) error {
	var here, there []int
	sub := weir.Batch{Op: b.Op, TTL: b.TTL} // for the store
	for i, r := range b.Receipts {
		switch {
		case r.ID == t.failOpenID:
			if b.Op == weir.Renew {
				b.Decisions[i] = weir.Decision{Allowed: true, Reason: weir.Admitted, Estimate: true}
			}
		case t.receipts.has(r.ID):
			here = append(here, i)
		default:
			there = append(there, i)
			sub.Charges, sub.Receipts = append(sub.Charges, b.Charges[i]), append(sub.Receipts, r)
		}
	}
	if len(there) > 0 {
		if err := t.settleThere(ctx, &sub); err != nil {
			return err
		}
	}
	for at, i := range there {
		b.Decisions[i], b.Receipts[i], b.Settled[i] = sub.Decisions[at], sub.Receipts[at], sub.Settled[at]
	}
	for _, i := range here {
		if err := t.settleHere(b, i); err != nil {
			return err
		}
	}
	return nil
}

// settleThere settles or renews reservations in the store. Charges that were denied because of
// them may be admitted afterwards, even if a reservation was committed in full: a slot is free,
// or its expiry has changed.
func (t *Limiter) settleThere(ctx context.Context, b *weir.Batch) error {
	calls := t.beginAll(b.Charges)
	defer t.changing(b.Charges)()
	if err := t.do(ctx, b); err != nil {
		return err
	}
	for i := range calls {
		if over := b.Settled[i].Overrun; over > 0 {
			t.chargedElsewhere(&calls[i], over)
		}
	}
	return nil
}

// settleHere settles or renews a reservation in Local, and adjusts the unsynced usage.
func (t *Limiter) settleHere(b *weir.Batch, i int) error {
	c := t.begin(b.Charges[i])
	c.share = t.shareOf(c.plan)
	local := weir.Batch{Op: b.Op, TTL: b.TTL, Charges: []weir.Charge{c.ofShare()}, Receipts: b.Receipts[i : i+1]}
	if err := t.config.Local.Do(context.Background(), &local); err != nil {
		return err
	}
	s := local.Settled[0]
	b.Decisions[i], b.Settled[i] = local.Decisions[0], s
	if b.Op == weir.Settle {
		t.receipts.forget(b.Receipts[i])
		t.grantedHere(&c, s.Overrun-s.Refunded)
	}
	return nil
}
