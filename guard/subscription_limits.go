package guard

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/fielderr"
)

// Bounds of Subscriptions. Each item is a charge of the batch that adds it, and a reservation of its
// own, of which stores have at most 10,000 for a key.
const (
	maxItemsEach    = 1_000
	maxItemsTotal   = 10_000
	maxSubscription = 10_000
)

// Names of limits in SubscriptionDecision.Limit.
const (
	limitSubscriptions = "subscriptions"
	limitItemsEach     = "items_each"
	limitItemsTotal    = "items_total"
	limitCreate        = "create"
	limitModify        = "modify"
)

// subscriptionLimits are a compiled Subscriptions. They are immutable.
type subscriptionLimits struct {
	each   int64        // items of one subscription
	slots  *weir.Policy // open subscriptions
	items  *weir.Policy // items in all
	create *weir.Policy
	modify *weir.Policy
}

// newSubscriptionLimits compiles c, of which nil means no limits. The names of the policies begin
// with prefix. Its error joins a *fielderr.Error for each problem, with paths that begin in
// Subscriptions.
func newSubscriptionLimits(prefix string, c *Subscriptions) (*subscriptionLimits, error) {
	if c == nil {
		return nil, nil
	}
	b := subscriptionBuilder{prefix: prefix + "/subscriptions"}
	l := &subscriptionLimits{
		each:   b.number("ItemsEach", c.ItemsEach, 100, maxItemsEach),
		slots:  b.atOnce("", "PerSubject", c.PerSubject, 10, maxSubscription),
		items:  b.atOnce("/items", "ItemsTotal", c.ItemsTotal, 500, maxItemsTotal),
		create: b.rate("/create", "Create", c.Create, weir.PerMinute(5)),
		modify: b.rate("/modify", "Modify", c.Modify, weir.PerMinute(30)),
	}
	if len(b.problems) > 0 {
		return nil, errors.Join(b.problems...)
	}
	return l, nil
}

// policies returns the policies that are charged, always in the same order: of subscriptions, items,
// creation and modification.
func (l *subscriptionLimits) policies() []*weir.Policy {
	if l == nil {
		return nil
	}
	return []*weir.Policy{l.slots, l.items, l.create, l.modify}
}

// opening returns what a new subscription is charged under, the rate last.
func (l *subscriptionLimits) opening(items int64) []*weir.Policy {
	list := make([]*weir.Policy, 0, items+2)
	return append(l.ofItems(append(list, l.slots), items), l.create)
}

// adding returns what more items are charged under, the rate last.
func (l *subscriptionLimits) adding(items int64) []*weir.Policy {
	return append(l.ofItems(make([]*weir.Policy, 0, items+1), items), l.modify)
}

// ofItems appends the policy of each item: a lease of its own for each, as only whole leases can be
// released.
func (l *subscriptionLimits) ofItems(list []*weir.Policy, items int64) []*weir.Policy {
	for range items {
		list = append(list, l.items)
	}
	return list
}

// check refuses items that the limiter need not be called for: more than a subscription may have
// that has so many, and more than all may have.
func (l *subscriptionLimits) check(has, items int64) (SubscriptionDecision, bool) {
	name, limit, remaining := "", int64(0), int64(0)
	switch total := l.items.Capacity(); {
	case has+items > l.each:
		name, limit, remaining = limitItemsEach, l.each, max(0, l.each-has)
	case items > total:
		name, limit, remaining = limitItemsTotal, total, max(0, total-has)
	default:
		return SubscriptionDecision{}, true
	}
	d := weir.Decision{Reason: weir.Exhausted, Limit: limit, Remaining: remaining, RetryAfter: weir.Never, ResetAfter: weir.Never}
	if items > limit {
		d.Reason = weir.TooCostly
	}
	return SubscriptionDecision{Decision: d, Limit: name}, false
}

// decision returns the decision on a batch of opening or adding.
func (l *subscriptionLimits) decision(b *weir.Batch) SubscriptionDecision {
	worst := b.Worst()
	d := SubscriptionDecision{Decision: b.Decisions[worst]}
	if d.Allowed || d.Reason != weir.Exhausted && d.Reason != weir.TooCostly {
		return d
	}
	switch b.Charges[worst].Policy {
	case l.slots:
		d.Limit = limitSubscriptions
	case l.items:
		d.Limit = limitItemsTotal
		if !d.Estimate {
			d.Remaining = l.fitting(b)
		}
	case l.create:
		d.Limit = limitCreate
	case l.modify:
		d.Limit = limitModify
	}
	return d
}

// fitting returns how many items of a refused batch would have fitted. The decisions on the others
// do not say it, as each is made as if those before it had been charged.
func (l *subscriptionLimits) fitting(b *weir.Batch) (n int64) {
	for i, c := range b.Charges {
		switch {
		case c.Policy != l.items:
		case b.Decisions[i].Reason > weir.Admitted:
			return n
		default:
			n++
		}
	}
	return n
}

// A subscriptionBuilder makes policies and collects problems.
type subscriptionBuilder struct {
	prefix   string
	problems []error
}

func (b *subscriptionBuilder) number(field string, n, otherwise, most int64) int64 {
	if n < 0 || n > most {
		b.problems = append(b.problems, &fielderr.Error{
			Package: "guard", Path: []any{field}, Value: n, Problem: fmt.Sprintf("must be between 1 and %d, or 0 for the default of %d", most, otherwise),
		})
	}
	if n == 0 {
		return otherwise
	}
	return n
}

// atOnce makes the policy of a limit of units in use at the same time.
func (b *subscriptionBuilder) atOnce(name, field string, n, otherwise, most int64) *weir.Policy {
	units := b.number(field, n, otherwise, most)
	if n < 0 {
		return nil
	}
	return b.policy(name, field, weir.Limit{Rate: units, Algorithm: weir.Concurrency})
}

// rate makes the policy of a rate.
func (b *subscriptionBuilder) rate(name, field string, l, otherwise weir.Limit) *weir.Policy {
	if l == (weir.Limit{}) {
		l = otherwise
	}
	if l.Algorithm == weir.Concurrency {
		b.problems = append(b.problems, fielderr.New("guard", "must be a rate, such as 5 per minute, and no limit of concurrency", field))
		return nil
	}
	return b.policy(name, field, l)
}

func (b *subscriptionBuilder) policy(name, field string, l weir.Limit) *weir.Policy {
	p, err := weir.NewPolicy(b.prefix+name, l)
	for _, e := range fielderr.Split(err) {
		problem := e.Error()
		if bad, ok := errors.AsType[*weir.LimitError](e); ok {
			what := strings.TrimSuffix(bad.Problem, "; leave the limit out for no limit") // here that is the default
			problem = fmt.Sprintf("%s %v: %s", bad.Field, bad.Value, what)
		}
		b.problems = append(b.problems, fielderr.New("guard", problem, field))
	}
	return p
}
