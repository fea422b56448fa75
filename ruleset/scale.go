package ruleset

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/storeapi"
)

// scales are the shares of their rates at which enforced limits and limits in shadow are, of the groups
// that are the key's own.
type scales struct {
	enforced, shadow Share
	own              uint64 // a bit for each group of the variant; those from maxOwn on have none
}

// maxOwn is how many groups of a variant can be scaled.
const maxOwn = 64

// isAll says whether nothing is scaled.
func (s scales) isAll() bool { return s.enforced == All && s.shadow == All || s.own == 0 }

// maxScaled is the maximum number of scaled variants that a variant caches.
const maxScaled = 8

// orAll returns s or, if it is 0, All.
func (s Share) orAll() Share {
	if s == 0 {
		return All
	}
	return s
}

// Scale returns the shares of the configured rates at which the variant's limits are: the enforced
// ones, and those in shadow. All means that they are unchanged. A key that the rollout does not
// include has all limits in shadow, and both are Query.ShadowScale.
func (v *Variant) Scale() (enforced, shadow Share) {
	return v.scales.enforced.orAll(), v.scales.shadow.orAll()
}

// checkScale returns an error if a scale of the query is not a share.
func (q *Query) checkScale() error {
	if q.Scale > All {
		return &InputError{"scale", "must be at most 100%"}
	}
	if q.ShadowScale > All {
		return &InputError{"shadow_scale", "must be at most 100%"}
	}
	return nil
}

// scaledFor returns the variant at the scales of a query, or v itself if they are invalid, which
// check reports.
func (v *Variant) scaledFor(q *Query) *Variant {
	s := scales{q.Scale.orAll(), q.ShadowScale.orAll(), q.ownGroups(v)}
	if !v.rule.includes(q.Key) {
		s.enforced = s.shadow
	}
	if s.isAll() || q.Scale > All || q.ShadowScale > All {
		return v
	}
	return v.scaled(s)
}

// ownGroups returns the groups that are charged to the key itself, as in scales. The state of the
// others, for example by organization, is shared with other keys, whose rates stay as they are.
func (q *Query) ownGroups(v *Variant) (own uint64) {
	for i := range v.groups[:min(len(v.groups), maxOwn)] {
		if key, err := q.keyOf(&v.groups[i]); err == nil && key == q.Key {
			own |= 1 << i
		}
	}
	return own
}

// scaled returns the variant at some scales. It caches the first maxScaled different ones, and
// computes others each time. The cached list is replaced as a whole; a call that loses the race to
// replace it tries again.
func (v *Variant) scaled(s scales) *Variant {
	for {
		var list []*Variant
		known := v.variants.Load()
		if known != nil {
			list = *known
		}
		for _, w := range list {
			if w.scales == s {
				return w
			}
		}
		w := v.newScaled(s)
		if len(list) >= maxScaled {
			return w
		}
		next := append(slices.Clip(list), w)
		if v.variants.CompareAndSwap(known, &next) {
			return w
		}
	}
}

// newScaled computes the variant at some scales.
func (v *Variant) newScaled(s scales) *Variant {
	w := &Variant{
		rule: v.rule, override: v.override, plan: v.plan, names: v.names, enforced: v.enforced, simple: v.simple,
		limits: slices.Clone(v.limits), groups: slices.Clone(v.groups), scales: s,
	}
	for i := range w.groups {
		share := s.enforced
		if i >= w.enforced {
			share = s.shadow
		}
		if s.own&(1<<i) != 0 {
			w.scaleGroup(&w.groups[i], share)
		}
	}
	return w
}

// scaleGroup scales a group of v and its limits. It is part of newScaled.
func (v *Variant) scaleGroup(g *group, s Share) {
	scaled := scalePolicy(g.policy, s)
	if scaled == g.policy {
		return
	}
	g.policy = scaled
	for at, l := range scaled.Limits() {
		v.limits[g.limits[at]].Limit = l
	}
}

// scalePolicy returns a policy at a share of its rates, on the same state. Stores must not replace
// it when the policy changes, so it is marked as an override. It is p itself if nothing changes.
func scalePolicy(p *weir.Policy, s Share) *weir.Policy {
	before := p.Limits()
	limits := slices.Clone(before)
	for i := range limits {
		limits[i] = scaleLimit(limits[i], s)
	}
	if slices.Equal(limits, before) {
		return p
	}
	scaled, err := storeapi.Override(p, limits...)
	if err != nil { // cannot be: each limit is valid, and names and the periods of windows are p's
		return p
	}
	return scaled
}

// scaleLimit returns a limit at a share of its rate. A limit of concurrency has none and stays. If
// the limit would take longer than 40 years to refill, which cannot be represented, the least
// greater share that can is used, within 2%: for example 2.5% for 0.01% of 1 per year.
func scaleLimit(l weir.Limit, s Share) weir.Limit {
	if l.Algorithm == weir.Concurrency {
		return l
	}
	p, err := weir.NewPolicy("scaled", l)
	if err != nil { // cannot be: the limit is one of a policy
		return l
	}
	for ; s < All; s += 1 + s/64 {
		if scaled, err := p.Scale(int64(s), int64(All)); err == nil {
			return scaled.Limits()[0]
		}
		if scaled, err := p.With(stretch(p.Limits()[0], s)); err == nil {
			return scaled.Limits()[0]
		}
	}
	return l
}

// stretch returns a limit with the same number of units in a longer period, rounded up to
// microseconds. Scale keeps the rate exact where it can, and fails if the numbers become too large,
// for example for 33.33% of 7 per 30 days.
func stretch(l weir.Limit, s Share) weir.Limit {
	hi, lo := bits.Mul64(uint64(l.Per.Duration()), uint64(All))
	if hi >= uint64(s) {
		return weir.Limit{} // invalid
	}
	per, _ := bits.Div64(hi, lo, uint64(s))
	if per > math.MaxInt64-uint64(time.Microsecond) {
		return weir.Limit{}
	}
	l.Per = weir.Every((time.Duration(per)/time.Microsecond + 1) * time.Microsecond)
	return l
}

// leaveOutShadow removes the charges in shadow.
func (e *evaluation) leaveOutShadow() {
	clear(e.groups[e.enforced:])
	clear(e.charges[e.enforced:])
	e.groups, e.charges = e.groups[:e.enforced], e.charges[:e.enforced]
}
