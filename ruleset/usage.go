package ruleset

import (
	"context"
	"slices"
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

	// Guaranteed is how many units per Limit.Per are the class's own, and OwnUsed how many units of its own
	// burst are in use. What it borrows is not in OwnUsed, and neither is what it lends.
	Guaranteed, OwnUsed int64
}

// Used returns the units in use, at most Capacity: what was used beyond it shows in Reset. Of a class it is what the
// class cannot take now of its Capacity, whoever uses it.
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
	b := weir.Batch{Op: weir.PeekEach, Charges: make([]weir.Charge, 0, len(views))}
	read := make([]*usageView, 0, len(views)) // those of the charges
	for i := range views {
		v := &views[i]
		key, err := q.keyOf(&variant.groups[v.group])
		if err != nil {
			continue
		}
		read = append(read, v)
		b.Charges = append(b.Charges, weir.Charge{Policy: v.policy, Key: key})
	}
	if err := n.limiter.Do(ctx, &b); err != nil {
		return nil, err
	}
	list := make([]LimitUsage, 0, len(read))
	for i, d := range b.Decisions {
		list = read[i].appendUsage(list, variant, d)
	}
	return list, nil
}

// A usageView is a policy with one limit of a rule, on the same state: a decision tells only of
// the tightest limit of a policy.
type usageView struct {
	group, limit int        // places in the variant
	class        weir.Class // without a name for the limit as a whole
	own          bool       // without borrowing; the view before is that of the class with borrowing
	policy       *weir.Policy
}

// appendUsage appends what a decision on the view tells, or adds it to the usage of the class.
func (v *usageView) appendUsage(list []LimitUsage, variant *Variant, d weir.Decision) []LimitUsage {
	used := d.Limit - d.Remaining
	if v.own {
		list[len(list)-1].OwnUsed = used
		return list
	}
	u := LimitUsage{
		Limit: variant.limits[v.limit], Name: variant.names[v.limit], Class: v.class.Name,
		Capacity: d.Limit, Remaining: d.Remaining, Reset: d.ResetAfter, Guaranteed: v.class.Guaranteed,
	}
	if v.class.NoBorrow {
		u.OwnUsed = used
	}
	return append(list, u)
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
	classes := l.Classes
	if classes != (weir.Classes{}) {
		l.Classes, l.Algorithm = weir.Classes{}, weir.GCRA
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
	return u.addClasses(g, usageView{group: place, limit: limit}, l)
}

// addClasses adds the views of a limit's classes: with what each may borrow and, if that differs, without it.
func (u *usageViews) addClasses(g *group, v usageView, l weir.Limit) error {
	classes := l.Classes.List()
	lent, err := storeapi.Override(g.policy, l)
	if err != nil {
		return err
	}
	l.Classes = withoutBorrowing(classes)
	alone, err := storeapi.Override(g.policy, l)
	if err != nil {
		return err
	}
	for _, c := range classes {
		v.class, v.own = c, false
		if v.policy, err = lent.Class(c.Name); err != nil {
			return err
		}
		u.views = append(u.views, v)
		if c.NoBorrow || c.Guaranteed == 0 {
			continue
		}
		v.own = true
		if v.policy, err = alone.Class(c.Name); err != nil {
			return err
		}
		u.views = append(u.views, v)
	}
	return nil
}

// withoutBorrowing returns classes of which none borrows, but for those that have nothing of their own.
func withoutBorrowing(classes []weir.Class) weir.Classes {
	classes = slices.Clone(classes)
	for i := range classes {
		classes[i].NoBorrow = classes[i].NoBorrow || classes[i].Guaranteed > 0
	}
	return weir.ClassesOf(classes...)
}
