package ruleset

import (
	"context"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/storeapi"
)

// LimitUsage is how much of a limit is in use, by everybody or by one class.
type LimitUsage struct {
	Limit     Limit
	Name      string        // of the limit, as in headers
	Class     string        // "" for the limit as a whole
	Capacity  int64         // the most that fits at once, for the class
	Remaining int64         // what fits now, for the class
	Reset     time.Duration // until it is as if unused
}

// Used returns the units in use, at most Capacity: what was used beyond it shows in Reset.
func (u *LimitUsage) Used() int64 { return u.Capacity - u.Remaining }

// Usage returns the status of every enforced or shadowed limit for a query's keys, and of each of
// its classes, under the query's plan. Its class and cost are ignored, and so are overrides. It changes nothing.
// Groups by attributes that the query lacks are left out.
func (n *Engine) Usage(ctx context.Context, r *Rule, q *Query) ([]LimitUsage, error) {
	variant := r.planned(q.Plan)
	views, err := variant.usageViews()
	if err != nil {
		return nil, err
	}
	var list []LimitUsage
	b := weir.Batch{Op: weir.PeekEach}
	for i := range views {
		v := &views[i]
		key, err := q.keyOf(&variant.groups[v.group])
		if err != nil {
			continue
		}
		list = append(list, LimitUsage{Limit: variant.limits[v.limit], Name: variant.names[v.limit], Class: v.class})
		b.Charges = append(b.Charges, weir.Charge{Policy: v.policy, Key: key})
	}
	if err := n.limiter.Do(ctx, &b); err != nil {
		return nil, err
	}
	for i, d := range b.Decisions {
		list[i].Capacity, list[i].Remaining, list[i].Reset = d.Limit, d.Remaining, d.ResetAfter
	}
	return list, nil
}

// A usageView is a policy with one limit of a rule, on the same state: a decision tells only of
// the tightest limit of a policy.
type usageView struct {
	group, limit int // places in the variant
	class        string
	policy       *weir.Policy
}

type usageViews struct {
	once  sync.Once
	views []usageView
	err   error
}

// usageViews returns the views of all limits and classes, which are made once.
func (v *Variant) usageViews() ([]usageView, error) {
	v.usage.once.Do(func() {
		for i := range v.groups {
			g := &v.groups[i]
			for _, limit := range g.limits {
				if err := v.usage.add(g, i, limit, v.limits[limit].Limit); err != nil {
					v.usage.err = err
					return
				}
			}
		}
	})
	return v.usage.views, v.usage.err
}

// add adds the views of a limit: as a whole, which for a limit with classes is one without, and
// for each class.
func (u *usageViews) add(g *group, place, limit int, l weir.Limit) error {
	classes := weir.ClassesOf()
	if l.Algorithm == weir.Lending {
		classes, l.Classes, l.Algorithm = l.Classes, weir.Classes{}, weir.GCRA
	}
	l.Pace = ""
	whole, err := storeapi.Override(g.policy, l)
	if err != nil {
		return err
	}
	u.views = append(u.views, usageView{group: place, limit: limit, policy: whole})
	if classes == (weir.Classes{}) {
		return nil
	}
	l.Classes, l.Algorithm = classes, weir.Lending
	lent, err := storeapi.Override(g.policy, l)
	if err != nil {
		return err
	}
	for _, name := range lent.ClassNames() {
		view, err := lent.Class(name)
		if err != nil {
			return err
		}
		u.views = append(u.views, usageView{group: place, limit: limit, class: name, policy: view})
	}
	return nil
}
