package budget

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/jsonrpc"
	"github.com/weirlimit/weir/ruleset"
)

// An account can be charged with queries that are made elsewhere, such as those of the daemon's callers,
// alone or in a batch with charges of other policies. Around the call of the engine they need:
//
//	err := account.Prepare(rule, &query)              // before Check, Reserve, Peek, CheckAll …
//	account.Charged(ctx, &query, &verdict)            // after all of them but Peek, or
//	account.Held(ctx, &query, &verdict, ticket, ttl)  // after Reserve
//
// and their tickets are settled and renewed by Settle and Renew.

// Prepare makes a query one of the account. Its key is the account's only one: the caller leaves it
// out, or says "-" where there must be one. The cost is that of its methods by the account's table, or
// as Units says for a plain number. Costs in units leave the others at 0, but a call is one request. The
// rule is the account's, in the version by which the query will be decided.
//
// Cooldowns and the level Paused apply to the account's charges however they are made.
func (a *Account) Prepare(r *ruleset.Rule, q *ruleset.Query) error {
	key, err := a.Key(q.Key)
	if err != nil {
		return err
	}
	costs, err := a.queryCosts(r.Units(), q)
	if err != nil {
		return err
	}
	q.Key, q.Plan, q.Costs, q.Implied = key, "", costs, true
	return nil
}

// Key returns the account's only key for what a caller says the key is: nothing, "-" or the key itself.
// Anything else is an *ruleset.InputError.
func (a *Account) Key(said string) (string, error) {
	if said != "" && said != "-" && said != accountKey {
		return "", &ruleset.InputError{Field: "key", Problem: fmt.Sprintf("is not for %q, which is a budget and has one key: leave it out, or write -", a.name)}
	}
	return accountKey, nil
}

// queryCosts returns what a query costs of each unit. Costs in units that no limit counts stay, so that
// the engine refuses them.
func (a *Account) queryCosts(units []string, q *ruleset.Query) ([]ruleset.Cost, error) {
	none := q.Implied && len(q.Costs) == 0
	switch {
	case slices.ContainsFunc(q.Methods, func(m string) bool { return m == "" || len(m) > jsonrpc.MaxMethod }):
		return nil, &ruleset.InputError{Field: "method", Problem: fmt.Sprintf("must have 1 to %d bytes", jsonrpc.MaxMethod)}
	case len(q.Methods) > 0 && !none:
		return nil, &ruleset.InputError{Field: "method", Problem: "says what the call costs: leave out cost"}
	case len(q.Methods) > 0:
		amounts, err := a.methodCosts(q.Methods...)
		if err != nil {
			return nil, &ruleset.InputError{Field: "method", Problem: "has no cost: " + strings.Replace(err.Error(), "budget: ", "", 1)}
		}
		return a.costs(units, In(amounts))
	case none && !slices.Equal(units, []string{ruleset.Requests}):
		return nil, &ruleset.InputError{Field: "cost", Problem: fmt.Sprintf("is missing: the budget counts %s, so name the method or say the cost", strings.Join(units, ", "))}
	}
	costs := slices.Clone(q.Costs)
	for _, unit := range units {
		if slices.ContainsFunc(costs, func(c ruleset.Cost) bool { return c.Unit == unit }) {
			continue
		}
		n := q.Cost
		switch {
		case unit == ruleset.Requests && (len(units) > 1 || q.Implied):
			n = 1
		case q.Implied:
			n = 0
		}
		costs = append(costs, ruleset.Cost{Unit: unit, Amount: n})
	}
	return costs, nil
}

// Charged counts the decision on a prepared query, and observes the utilisation if that is due.
func (a *Account) Charged(ctx context.Context, q *ruleset.Query, v *ruleset.Verdict) {
	if v.Allowed {
		a.granted(q, nil, 0)
	}
	a.warnSoft(v)
	a.observeSometimes(ctx, q.Costs)
}

// Debited is Charged for a query of DebitEach: what was used already is an overrun.
func (a *Account) Debited(ctx context.Context, q *ruleset.Query) {
	a.overran(q)
	a.observeSometimes(ctx, q.Costs)
}

// Held is Charged for a reservation. The ticket is nil if it was refused.
func (a *Account) Held(ctx context.Context, q *ruleset.Query, v *ruleset.Verdict, t *ruleset.Ticket, ttl time.Duration) {
	if t != nil {
		a.granted(q, t, ttl)
	}
	a.warnSoft(v)
	a.observeSometimes(ctx, q.Costs)
}

// Settle ends a reservation of the account, be it one of another process. A plain number is what was
// used of every unit but requests, unless the limits count only those. A unit that neither the limits nor
// the table of costs count, and that was not reserved here, is a *ruleset.InputError: it is misspelt.
func (a *Account) Settle(ctx context.Context, t *ruleset.Ticket, used ruleset.Used) (weir.Settled, error) {
	if err := a.checkUsed(t, used.Costs); err != nil {
		return weir.Settled{}, err
	}
	if used.HaveCost && !used.All && !used.None {
		used.HaveCost, used.Costs = false, slices.Clone(used.Costs)
		units := a.Units()
		for _, unit := range units {
			if unit == ruleset.Requests && len(units) > 1 || slices.ContainsFunc(used.Costs, func(c ruleset.Cost) bool { return c.Unit == unit }) {
				continue
			}
			used.Costs = append(used.Costs, ruleset.Cost{Unit: unit, Amount: used.Cost})
		}
	}
	return a.settle(ctx, t, nil, used)
}

// checkUsed refuses units that are misspelt: settled without them, all that was reserved would count as used.
func (a *Account) checkUsed(t *ruleset.Ticket, used []ruleset.Cost) error {
	units := a.Units()
	for _, c := range used {
		if c.Unit == ruleset.Requests || slices.Contains(units, c.Unit) || a.Costs().counts(c.Unit) || a.holds(t, c.Unit) {
			continue
		}
		return &ruleset.InputError{Field: "used", Problem: fmt.Sprintf("has the unit %q, which the budget does not count; it counts %s", shorten(c.Unit), strings.Join(units, ", "))}
	}
	return nil
}

// holds reports whether an open reservation of this process holds a unit. The limits may count it no more.
func (a *Account) holds(t *ruleset.Ticket, unit string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.open[t.ID()].costs, func(c ruleset.Cost) bool { return c.Unit == unit })
}

// Renew moves the expiry of a reservation of the account to ttl from now. It returns false if the
// reservation is over.
func (a *Account) Renew(ctx context.Context, t *ruleset.Ticket, ttl time.Duration) (bool, error) {
	renewed, err := a.engine.Renew(ctx, t, ttl)
	if err != nil || !renewed {
		return renewed, err
	}
	now := a.clock()
	a.mu.Lock()
	defer a.mu.Unlock()
	if r, open := a.open[t.ID()]; open {
		r.expiry = expiry(now, ttl)
		a.open[t.ID()] = r
	}
	return true, nil
}
