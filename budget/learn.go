package budget

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// Learn applies what the headers of a response say about limits and remainders. Where the provider has
// less left than this account believes, the difference is charged: somebody else uses the same
// account, or counts differently. The provider's view only tightens the budget, it never loosens it.
// The differences are counted in Usage.Drift. That a provider's limit is smaller than the account's is no
// difference of what was used, so it is not charged. Headers that name a unit which the account does not count
// are ignored; those that name none are about its only unit, if it has one. Of several limits of a unit only what is left of
// the longest counts, see Drift.
//
// Responses that say nothing cost nothing; when others are compared says Learning.
func (a *Account) Learn(ctx context.Context, h http.Header) error {
	return a.learning.Learn(a.wallClock(), h, func(views []View) error { return a.compare(ctx, views) })
}

// compare charges what the provider has counted and this account has not.
func (a *Account) compare(ctx context.Context, views []View) error {
	r, err := a.rule()
	if err != nil {
		return err
	}
	list, err := a.engine.Usage(ctx, r, &ruleset.Query{Key: accountKey})
	if err != nil {
		return err
	}
	for unit, n := range Drift(views, r.Units(), list) {
		if err := a.debit(ctx, r, unit, n); err != nil {
			return err
		}
	}
	return nil
}

// Learning bounds how often the headers of responses are compared with what was counted here: at most ten times a
// second, or whenever the provider has nothing left, and one at a time, because what several responses say at once is
// one difference. Workers in other processes that compare at the same instant may charge it, too. An Account has one
// of its own; others are for limits that belong to no account. The zero value is ready.
type Learning struct {
	last atomic.Int64 // the time of the last comparison in Unix nanoseconds; it is written with busy held
	busy sync.Mutex   // held during a comparison
}

// learnEvery is how long Learn lets pass before it compares again.
const learnEvery = 100 * time.Millisecond

// Learn calls compare with what the headers of a response say, if they say anything and it is time.
func (l *Learning) Learn(now time.Time, h http.Header, compare func([]View) error) error {
	views := ParseView(h, now)
	if len(views) == 0 || !l.busy.TryLock() {
		return nil
	}
	defer l.busy.Unlock()
	if !l.due(now, views) {
		return nil
	}
	return compare(views)
}

func (l *Learning) due(now time.Time, views []View) bool {
	if now.UnixNano()-l.last.Load() < int64(learnEvery) && !slices.ContainsFunc(views, func(v View) bool { return v.Remaining == 0 }) {
		return false
	}
	l.last.Store(now.UnixNano())
	return true
}

// Drift returns by unit how much less of limits the provider has left than they have, as far as it is to be charged. Units
// are those that the limits count. What is in flight is used here before the provider counts it, so it is no difference.
//
// Units that others have used are charged to all limits of the unit, as those of a call are. So what is left of a limit does
// not count if the unit has a longer one: a provider that counts by windows often has less left of a second than a bucket
// has, and that would be missing for the rest of a month. Of what is left of the longest limit, at most half of what the
// shorter ones have left is charged at once, and the rest with later responses: otherwise a difference of a month would let
// a limit of a second refuse everything for hours.
func Drift(views []View, units []string, limits []ruleset.LimitUsage) map[string]int64 {
	drift := map[string]int64{}
	for _, v := range views {
		l := matching(limits, unitOf(v, views, units), v)
		if l == nil {
			continue
		}
		if n := min(v.Excess(l.Remaining)-smaller(v, l), mostDrift(limits, l)); n > drift[l.Limit.Unit] {
			drift[l.Limit.Unit] = n
		}
	}
	return drift
}

// mostDrift returns how many units may be charged at once because of what is left of a limit, see Drift.
func mostDrift(list []ruleset.LimitUsage, because *ruleset.LimitUsage) int64 {
	most := int64(weir.MaxCost)
	for i := range list {
		l := &list[i]
		switch {
		case l == because || !isDebited(l, because.Limit.Unit):
		case length(l.Limit.Per) > length(because.Limit.Per):
			return 0
		case l.Limit.Mode != ruleset.Shadow:
			most = min(most, l.Remaining/2)
		}
	}
	return most
}

// isDebited reports whether units that others have used are charged to a limit: to those of the unit, but not to classes,
// which are parts of one, or calls in flight.
func isDebited(l *ruleset.LimitUsage, unit string) bool {
	return l.Class == "" && l.Limit.Unit == unit && l.Limit.Algorithm != weir.Concurrency
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

// matching returns the limit that a view is about: of its unit, with the same capacity or else the shortest period. A
// view that does not name its limit may be about any; one that is longer than a minute, and than the provider takes to
// have more, is not charged for that.
func matching(list []ruleset.LimitUsage, unit string, v View) *ruleset.LimitUsage {
	var best *ruleset.LimitUsage
	for i := range list {
		l := &list[i]
		switch {
		case !isDebited(l, unit) || l.Limit.Mode == ruleset.Shadow:
		case best == nil || l.Capacity == v.Limit && best.Capacity != v.Limit:
			best = l
		case best.Capacity != v.Limit && length(l.Limit.Per) < length(best.Limit.Per):
			best = l
		}
	}
	if best != nil && v.Limit == 0 && length(best.Limit.Per) > max(time.Minute, v.FullAfter, v.MoreAfter) {
		return nil
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
	q := ruleset.Query{Key: accountKey, Costs: []ruleset.Cost{{Unit: unit, Amount: n}}, Implied: true, Alone: true}
	if _, err := a.engine.DebitEach(ctx, []ruleset.Item{{Rule: r, Query: q}}); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drift[unit] += n
	return nil
}
