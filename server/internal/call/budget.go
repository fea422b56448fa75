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

// checkBudget decides a query of a budget.
func (c *Core) checkBudget(ctx context.Context, account *budget.Account, rule *ruleset.Rule, q *ruleset.Query, peek bool) (ruleset.Verdict, error) {
	if peek {
		v, err := c.Engine.Peek(ctx, rule, q)
		return spent(v), err
	}
	v, err := c.Engine.Check(ctx, rule, q)
	if err == nil {
		account.Charged(ctx, q, &v)
	}
	return spent(v), err
}

// spent returns a verdict, which is empty after an error, as callers get it: if it is about a prepaid amount, nothing comes back by itself.
func spent(v ruleset.Verdict) ruleset.Verdict {
	if v.Variant == nil || v.Limit < 0 || !budget.IsPrepaid(v.Variant.Limits()[v.Limit]) {
		return v
	}
	v.ResetAfter = weir.Never
	if v.Reason == weir.Exhausted || v.Reason == weir.TooLate {
		v.Reason, v.RetryAfter = weir.Exhausted, weir.Never
	}
	return v
}

// reserveBudget reserves a query of a budget.
func (c *Core) reserveBudget(ctx context.Context, account *budget.Account, rule *ruleset.Rule, q *ruleset.Query, ttl time.Duration) (ruleset.Verdict, *ruleset.Ticket, error) {
	v, ticket, err := c.Engine.Reserve(ctx, rule, q, ttl)
	if err == nil {
		account.Held(ctx, q, &v, ticket, ttl)
	}
	return spent(v), ticket, err
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

// batchWithBudgets decides a batch in which some queries are of budgets.
func (c *Core) batchWithBudgets(ctx context.Context, s *State, kind Batch, items []ruleset.Item, out []ruleset.Verdict) ([]ruleset.Verdict, error) {
	out, err := c.evaluateBatch(ctx, kind, items, out)
	if err != nil {
		return nil, err
	}
	for i := range items {
		account := s.Budget(items[i].Rule.Name())
		switch {
		case account == nil:
			continue
		case items[i].Peek:
		case kind == Debit:
			account.Debited(ctx, &items[i].Query)
		default:
			account.Charged(ctx, &items[i].Query, &out[i])
		}
		out[i] = spent(out[i])
	}
	return out, nil
}
