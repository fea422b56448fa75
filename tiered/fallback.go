package tiered

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/weirlimit/weir"
)

// A share is what one of so many nodes may admit by itself while the store is away:
// rate/nodes and burst/nodes of each limit that goes on then, but at least one unit at
// a time. Its state is in Local and persists from outage to outage.
type share struct {
	nodes  int
	policy *weir.Policy // nil if it cannot be represented
	at     []int        // for each limit of the policy its place in the share's, or -1
}

// shareOf returns this node's share under pl.
func (t *Limiter) shareOf(pl *plan) *share {
	nodes := t.nodes()
	if s := pl.fail.share.Load(); s != nil && s.nodes == nodes {
		return s
	}
	s := newShare(pl, nodes)
	pl.fail.share.Store(s)
	return s
}

func newShare(pl *plan, nodes int) *share {
	s := &share{nodes: nodes, at: make([]int, len(pl.perNano))}
	scaled, err := pl.force.Scale(1, int64(nodes))
	if err != nil {
		return s
	}
	var limits []weir.Limit
	for i, l := range scaled.Limits() {
		s.at[i] = -1
		if !slices.Contains(pl.fail.local, i) {
			continue
		}
		if pl.perNano[i] > 0 {
			l.Burst = max(1, l.Burst/int64(nodes))
		}
		s.at[i] = len(limits)
		limits = append(limits, l)
	}
	s.policy, _ = weir.NewPolicy(fmt.Sprintf("share:%d", pl.family.id), limits...)
	return s
}

// fallback decides about a charge while the store is away.
func (t *Limiter) fallback(c *call) weir.Decision {
	t.counts.fallback.Add(1)
	pl := c.plan
	switch {
	case pl.fail.closed:
		return storeDown()
	case len(pl.fail.local) == 0:
		if c.unknown {
			t.counts.unknownUnits.Add(c.cost)
		}
		return weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: pl.capacity, Remaining: pl.capacity, Estimate: true}
	}
	s := t.shareOf(pl)
	if s.policy == nil {
		return storeDown()
	}
	known := c.needEntry(t)
	if known {
		t.seed(c, s)
	}
	d, err := t.config.Local.Take(context.Background(), s.policy, c.key, c.cost)
	if err == nil && d.Allowed {
		t.grantedByShare(c, c.cost)
	}
	return pl.shared(s, d, err)
}

// grantedByShare notes units that the store is to be charged for: all of them if it is
// available, and only has not answered in time; none if it may have charged them already,
// or cannot, lest anybody be charged twice. Less than nothing were given back.
func (t *Limiter) grantedByShare(c *call, units int64) {
	switch {
	case c.unknown:
		t.counts.unknownUnits.Add(max(0, units))
	case units == 0 || c.unrecorded || c.plan.force.ReserveOnly(): // slots are held, not owed
	case c.entry == nil:
		t.counts.forgiven.Add(max(0, units))
	case units > 0 && !t.breakerOf(c.plan.policy, c.key).open.Load():
		t.record(c, units)
	default:
		t.recordShared(c, units)
	}
}

// storeDown is the refusal of a limit that fails closed.
func storeDown() weir.Decision {
	return weir.Decision{Reason: weir.StoreDown, RetryAfter: probeEvery, ResetAfter: probeEvery, Estimate: true}
}

// shared returns a decision of the share as one of the policy. A cost that only the
// whole fleet has room for must wait for the store.
func (pl *plan) shared(s *share, d weir.Decision, err error) weir.Decision {
	if err != nil || d.Reason == weir.TooCostly && d.Limit < pl.capacity {
		return storeDown()
	}
	d.By = uint8(max(0, slices.Index(s.at, int(d.By))))
	d.Estimate = true
	return d
}

// seed lets the share of a key begin an outage no fuller than the store last said:
// what was used there is used in each node's share, too, by a fraction.
func (t *Limiter) seed(c *call, s *share) {
	outage := t.breakerOf(c.plan.policy, c.key).current()
	e := c.entry
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
	if d, err := weir.Peek(context.Background(), t.config.Local, s.policy, c.key, 0); err == nil && int(d.By) == s.at[st.by] {
		missing -= usedOf(perNano/float64(s.nodes), d)
	}
	if missing > 0 {
		_ = t.debitShare(s, c.key, missing) // Local decides next, and says what is wrong
	}
}

// little is what may come back of slow limits while a reply is on its way.
const little = 1e-3

// debitShare charges units to the share of a key, rounded up.
func (t *Limiter) debitShare(s *share, key string, units float64) error {
	cost := int64(min(math.Ceil(units-little), float64(weir.MaxCost)))
	b := weir.Batch{Op: weir.DebitEach, Charges: []weir.Charge{{Policy: s.policy, Key: key, Cost: cost}}}
	return t.config.Local.Do(context.Background(), &b)
}

// usedOf returns how many units are in use after d, of a limit of which perNano units
// come back in a nanosecond, or 0 if it is a window. The time until it is as if unused
// tells that to a fraction, and beyond the limit; but where units are held, it tells
// when the last hold expires.
func usedOf(perNano float64, d weir.Decision) float64 {
	used := float64(d.Limit - d.Remaining)
	if perNano > 0 && d.ResetAfter != weir.Never {
		if exact := float64(d.ResetAfter) * perNano; d.Remaining == 0 || math.Abs(exact-used) <= 1 {
			return exact
		}
	}
	return used
}
