package call

import (
	"context"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/ruleset"
)

// Budget returns the account that a policy is the budget of, nil if it is none.
func (s *State) Budget(policy string) *budget.Account {
	if len(s.Budgets) == 0 {
		return nil
	}
	return s.Budgets[policy]
}

// prepare returns the account of a rule, nil if the rule is no budget, and makes the query one of it.
func (s *State) prepare(rule *ruleset.Rule, q *ruleset.Query) (*budget.Account, error) {
	account := s.Budget(rule.Name())
	switch {
	case account != nil:
		return account, account.Prepare(rule, q)
	case len(q.Methods) > 0:
		return nil, &ruleset.InputError{Field: "method", Problem: "is for budgets, whose tables say what it costs: give the policy a cost"}
	}
	return nil, nil
}

// cooling returns the refusal of a query while the provider wants no calls of the account, which may be
// nil.
func cooling(account *budget.Account, rule *ruleset.Rule) (v ruleset.Verdict, refused bool) {
	if account == nil {
		return v, false
	}
	d, refused := account.Cooling()
	return ruleset.Verdict{Decision: d, Variant: rule.Base(), Limit: -1, Shadow: -1}, refused
}

// checkBudget decides a query of a budget.
func (c *Core) checkBudget(ctx context.Context, account *budget.Account, rule *ruleset.Rule, q *ruleset.Query, peek bool) (ruleset.Verdict, error) {
	if v, refused := cooling(account, rule); refused {
		return v, nil
	}
	if peek {
		return c.Engine.Peek(ctx, rule, q)
	}
	v, err := c.Engine.Check(ctx, rule, q)
	if err == nil {
		account.Charged(ctx, q, &v)
	}
	return v, err
}

// reserveBudget reserves a query of a budget.
func (c *Core) reserveBudget(ctx context.Context, account *budget.Account, rule *ruleset.Rule, q *ruleset.Query, ttl time.Duration) (ruleset.Verdict, *ruleset.Ticket, error) {
	if v, refused := cooling(account, rule); refused {
		return v, nil, nil
	}
	v, ticket, err := c.Engine.Reserve(ctx, rule, q, ttl)
	if err == nil {
		account.Held(ctx, q, &v, ticket, ttl)
	}
	return v, ticket, err
}

// prepareEach prepares the queries of a batch. It returns false if none of them is one of a budget.
func (s *State) prepareEach(items []ruleset.Item) (budgets bool, _ error) {
	for i := range items {
		account, err := s.prepare(items[i].Rule, &items[i].Query)
		if err != nil {
			return false, &ruleset.ItemError{Index: i, Err: err}
		}
		budgets = budgets || account != nil
	}
	return budgets, nil
}

// batchWithBudgets decides a batch in which some queries are of budgets, whose providers may want no
// calls. What was used already is charged in any case.
func (c *Core) batchWithBudgets(ctx context.Context, s *State, kind Batch, items []ruleset.Item, out []ruleset.Verdict) ([]ruleset.Verdict, error) {
	var err error
	refused := map[int]ruleset.Verdict{}
	for i := range items {
		if v, is := cooling(s.Budget(items[i].Rule.Name()), items[i].Rule); is && kind != Debit {
			refused[i] = v
		}
	}
	switch {
	case len(refused) == 0:
		out, err = c.evaluateBatch(ctx, kind, items, out)
	case kind == All:
		out = refuseAll(items, refused)
	default:
		out, err = c.eachBut(ctx, items, refused)
	}
	if err != nil {
		return nil, err
	}
	for i := range items {
		account := s.Budget(items[i].Rule.Name())
		switch _, is := refused[i]; {
		case account == nil || is || items[i].Peek:
		case kind == Debit:
			account.Debited(ctx, &items[i].Query)
		default:
			account.Charged(ctx, &items[i].Query, &out[i])
		}
	}
	return out, nil
}

// refuseAll returns the verdicts of a batch that is charged as a whole, of which some are refused.
func refuseAll(items []ruleset.Item, refused map[int]ruleset.Verdict) []ruleset.Verdict {
	out := make([]ruleset.Verdict, len(items))
	for i := range items {
		v, is := refused[i]
		if !is {
			v = ruleset.Verdict{Decision: weir.Decision{Reason: weir.NotCharged}, Variant: items[i].Rule.Base(), Limit: -1, Shadow: -1}
		}
		out[i] = v
	}
	return out
}

// eachBut decides each query but those that are refused already.
func (c *Core) eachBut(ctx context.Context, items []ruleset.Item, refused map[int]ruleset.Verdict) ([]ruleset.Verdict, error) {
	var rest []ruleset.Item
	var places []int
	for i := range items {
		if _, is := refused[i]; !is {
			rest, places = append(rest, items[i]), append(places, i)
		}
	}
	verdicts, err := c.Engine.CheckEach(ctx, rest, nil)
	if bad, ok := err.(*ruleset.ItemError); ok { //nolint:errorlint // the engine returns it as it is
		return nil, &ruleset.ItemError{Index: places[bad.Index], Err: bad.Err}
	}
	if err != nil {
		return nil, err
	}
	out := make([]ruleset.Verdict, len(items))
	for i, v := range refused {
		out[i] = v
	}
	for at, i := range places {
		out[i] = verdicts[at]
	}
	return out, nil
}
