package budget

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// Learn applies what the headers of a response say about limits and remainders. Where the provider has
// less left than this account believes, the difference is charged: somebody else uses the same
// account, or counts differently. The provider's view only tightens the budget, it never loosens it.
// The differences are counted in Usage.Drift. That a provider's limit is smaller than the account's is no
// difference of what was used, so it is not charged. Headers that name a unit which the account does not count
// are ignored; those that name none are about its only unit, if it has one.
//
// Responses that say nothing cost nothing; others are compared at most ten times a second, or
// whenever the provider has nothing left, and one at a time: what several responses say at once is
// one difference. Workers in other processes that compare at the same instant may charge it, too.
func (a *Account) Learn(ctx context.Context, h http.Header) error {
	now := a.clock()
	views := ParseView(h, a.wallClock())
	if len(views) == 0 || !a.learning.TryLock() {
		return nil
	}
	defer a.learning.Unlock()
	if !a.learnNow(now, views) {
		return nil
	}
	r, err := a.rule()
	if err != nil {
		return err
	}
	list, err := a.engine.Usage(ctx, r, &ruleset.Query{Key: accountKey})
	if err != nil {
		return err
	}
	excess := map[string]int64{}
	for _, v := range views {
		if l := matching(list, unitOf(v, views, r.Units()), v); l != nil {
			excess[l.Limit.Unit] = max(excess[l.Limit.Unit], v.Excess(l.Remaining)-smaller(v, l))
		}
	}
	for unit, n := range excess {
		if err := a.debit(ctx, r, unit, min(n, weir.MaxCost)); err != nil {
			return err
		}
	}
	return nil
}

// learnEvery is how long Learn lets pass before it compares again.
const learnEvery = 100 * time.Millisecond

func (a *Account) learnNow(now weir.Instant, views []View) bool {
	if int64(now)-a.learned.Load() < int64(learnEvery) && !slices.ContainsFunc(views, func(v View) bool { return v.Remaining == 0 }) {
		return false
	}
	a.learned.Store(int64(now))
	return true
}

// unitOf returns which of an account's units a view is about, "" if none. One of requests, as those are whose headers
// name no unit, is about the only unit that the account counts, unless another view of the response names that.
func unitOf(v View, views []View, units []string) string {
	named := func(o View) bool { return slices.Contains(units, o.Unit) }
	switch {
	case named(v):
		return v.Unit
	case len(units) == 1 && v.Unit == ruleset.Requests && !slices.ContainsFunc(views, named):
		return units[0]
	}
	return ""
}

// matching returns the limit that a view is about: of its unit, with the same capacity or else the shortest
// period.
func matching(list []ruleset.LimitUsage, unit string, v View) *ruleset.LimitUsage {
	var best *ruleset.LimitUsage
	for i := range list {
		l := &list[i]
		switch {
		case l.Class != "" || l.Limit.Unit != unit || l.Limit.Mode == ruleset.Shadow:
		case best == nil || l.Capacity == v.Limit && best.Capacity != v.Limit:
			best = l
		case best.Capacity != v.Limit && length(l.Limit.Per) < length(best.Limit.Per):
			best = l
		}
	}
	return best
}

// smaller returns by how much a provider's limit is smaller than ours. Then it may well be another one: of a
// second instead of a minute, of one model instead of all. Nothing was used of what it never has.
func smaller(v View, l *ruleset.LimitUsage) int64 {
	if v.Limit <= 0 {
		return 0
	}
	return max(0, l.Capacity-v.Limit)
}

// debit charges units that others have used.
func (a *Account) debit(ctx context.Context, r *ruleset.Rule, unit string, n int64) error {
	if n <= 0 {
		return nil
	}
	q := ruleset.Query{Key: accountKey, Costs: []ruleset.Cost{{Unit: unit, Amount: n}}, Implied: true, Alone: true}
	if _, err := a.engine.DebitEach(ctx, []ruleset.Item{{Rule: r, Query: q}}); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drift[unit] += n
	return nil
}
