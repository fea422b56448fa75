package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/fielderr"
	"github.com/weirlimit/weir/ruleset"
)

// MaxBudgets bounds the budgets of a configuration, and so the series of their metrics.
const MaxBudgets = 100

// validateBudgets returns what is wrong with the budgets, but for their names among the policies.
func (l *Live) validateBudgets() error {
	var problems []error
	if n := len(l.Budgets); n > MaxBudgets {
		problems = append(problems, fielderr.New("server", fmt.Sprintf("there are %d: at most %d fit", n, MaxBudgets), "Budgets"))
	}
	for _, c := range l.Budgets {
		problems = append(problems, c.Validate())
	}
	return errors.Join(problems...)
}

// budgetPolicies returns the policies of the budgets, without those that are not valid.
func (l *Live) budgetPolicies() []ruleset.Policy {
	var list []ruleset.Policy
	for _, c := range l.Budgets {
		if p, err := c.Policy(); err == nil {
			list = append(list, p)
		}
	}
	return list
}

// prepareBudgets checks the budgets. An account outlives its configuration, so that what it has counted
// stays.
func prepareBudgets(_ *Server, next, old *state) error {
	if err := next.live.validateBudgets(); err != nil {
		return err
	}
	next.call.Budgets = make(map[string]*budget.Account, len(next.live.Budgets))
	for _, c := range next.live.Budgets {
		if old != nil && old.call.Budgets[c.Name] != nil {
			next.call.Budgets[c.Name] = old.call.Budgets[c.Name]
		}
	}
	return nil
}

// commitBudgets puts the budgets of a state in force.
func commitBudgets(s *Server, t *transaction, st *state) error {
	err := s.applyBudgets(st)
	if err != nil && t.old != nil {
		return errors.Join(err, s.applyBudgets(t.old))
	}
	return err
}

// applyBudgets gives the accounts of a state its configurations, and makes those that are new. A state
// that was in force has all of its accounts.
func (s *Server) applyBudgets(st *state) error {
	for _, c := range st.live.Budgets {
		c.Logger, c.OnLevel = s.cfg.Log, s.levelChanged
		if account := st.call.Budgets[c.Name]; account != nil {
			if err := account.Replace(c); err != nil {
				return err
			}
			continue
		}
		account, err := budget.Attach(s.core.Engine, c)
		if err != nil {
			return err
		}
		st.call.Budgets[c.Name] = account
	}
	return nil
}

// levelChanged logs that a budget has another level, and tells subscribers.
func (s *Server) levelChanged(c budget.LevelChange) {
	log := s.cfg.Log.Info
	if c.To > c.From {
		log = s.cfg.Log.Warn
	}
	log("budget", "budget", c.Account, "level", c.To.String(), "from", c.From.String(), "utilisation", c.Utilisation)
	s.observer.LevelChanged(c)
}

// accounts returns the accounts in force, by name.
func (s *Server) accounts() []*budget.Account {
	var list []*budget.Account
	for _, account := range s.state.Load().call.Budgets {
		list = append(list, account)
	}
	slices.SortFunc(list, func(a, b *budget.Account) int { return cmp.Compare(a.Name(), b.Name()) })
	return list
}

// budgetUsages returns the usage of all budgets. Of those whose usage is unknown it is what this
// process knows.
func (s *Server) budgetUsages(ctx context.Context) []budget.Usage {
	var list []budget.Usage
	for _, account := range s.accounts() {
		u, _ := account.Usage(ctx)
		list = append(list, u)
	}
	return list
}
