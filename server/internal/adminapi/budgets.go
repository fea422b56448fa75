package adminapi

import (
	"net/http"
	"strings"

	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/server/internal/strictjson"
)

// budgetsPath is the path of all budgets. Below it is the name of one.
const budgetsPath = "/admin/v1/budgets"

// budgetAnswer is what is used of a budget.
type budgetAnswer struct {
	budget.Usage
	Error string `json:"error"` // why horizons and classes are unknown, "" if they are not
}

// budgets answers GET /admin/v1/budgets.
func (a *api) budgets(x *exchange) (any, error) {
	out := []budgetAnswer{}
	for _, account := range a.accounts() {
		out = append(out, a.usageOf(x, account))
	}
	return map[string]any{"budgets": out}, nil
}

// budget answers GET /admin/v1/budgets/{name}.
func (a *api) budget(x *exchange) (any, error) {
	account, err := a.named(x)
	if err != nil {
		return nil, err
	}
	return a.usageOf(x, account), nil
}

// named returns the account that the path names, or a problem.
func (a *api) named(x *exchange) (*budget.Account, error) {
	if account := a.account(x.names.name); account != nil {
		return account, nil
	}
	return nil, call.Errorf(call.NotFound, "no budget is called %s; GET %s lists those there are", strictjson.Quote(x.names.name), budgetsPath)
}

// resumedBudget says how long the cooldown would still have lasted.
type resumedBudget struct {
	Budget     string `json:"budget"`
	CooldownMs int64  `json:"cooldown_ms"` // 0 if there was none
}

// resumeBudget answers POST /admin/v1/budgets/{name}/resume.
func (a *api) resumeBudget(x *exchange) (any, error) {
	account, err := a.named(x)
	if err != nil {
		return nil, err
	}
	left := account.EndCooldown()
	if a.ResumeBudget != nil {
		a.ResumeBudget(account.Name())
	}
	return resumedBudget{Budget: account.Name(), CooldownMs: ruleset.Millis(left)}, nil
}

// usageOf asks the store. If it does not answer, there is what this process knows.
func (a *api) usageOf(x *exchange, account *budget.Account) budgetAnswer {
	u, err := account.Usage(x.r.Context())
	if err == nil {
		return budgetAnswer{Usage: u}
	}
	if x.r.Context().Err() == nil {
		a.Log.Warn("the usage of a budget is unknown", "budget", account.Name(), "error", err)
	}
	return budgetAnswer{Usage: u, Error: "the usage is unknown; the daemon's log says why"}
}

// accounts returns the accounts of the budgets, by name.
func (a *api) accounts() []*budget.Account {
	if a.Budgets == nil {
		return nil
	}
	return a.Budgets()
}

// account returns the account with a name, nil if there is none.
func (a *api) account(name string) *budget.Account {
	for _, account := range a.accounts() {
		if account.Name() == name {
			return account
		}
	}
	return nil
}

// names are those in a path: of a budget or of a route, and of one of its endpoints.
type names struct{ name, alias string }

// find returns the routes of a path, and the names in it.
func (a *api) find(r *http.Request) (list []route, n names) {
	for _, path := range []string{budgetsPath, upstreamsPath} {
		rest, ok := strings.CutPrefix(r.URL.Path, path+"/")
		if !ok {
			continue
		}
		rest, resume := strings.CutSuffix(rest, "/resume")
		name, alias, two := strings.Cut(rest, "/")
		path += "/{name}"
		if two {
			path += "/{alias}"
		}
		if resume {
			path += "/resume"
		}
		if name == "" || two && (alias == "" || strings.Contains(alias, "/")) {
			return nil, names{}
		}
		return a.routes[path], names{name, alias}
	}
	return a.routes[r.URL.Path], names{}
}

// keyed sets the key of a query of a policy. A budget has one, whatever an operator calls it.
func (a *api) keyed(q *ruleset.Query, policy string) error {
	account := a.account(policy)
	if account == nil {
		return nil
	}
	key, err := account.Key(q.Key)
	if err != nil {
		return call.Invalid("%v", err)
	}
	q.Key = key
	return nil
}

// levelAnswer is a change of the level of a budget.
type levelAnswer struct {
	Time        string  `json:"time"`
	Budget      string  `json:"budget"`
	From        string  `json:"from"`
	To          string  `json:"to"`
	Utilisation float64 `json:"utilisation"`
}

// levels subscribes to changes of the levels of budgets, if there can be any.
func (a *api) levels() (list <-chan budget.LevelChange, lost func() int64, cancel func(), err error) {
	if a.SubscribeLevels == nil {
		return nil, func() int64 { return 0 }, func() {}, nil
	}
	return a.SubscribeLevels()
}

// levelChanged sends a change that the reader wants, as an event of its own kind.
func (w *watcher) levelChanged(c *budget.LevelChange) {
	if w.policy != "" && w.policy != c.Account || w.denied { // it refuses nothing
		return
	}
	w.out.event("budget", levelAnswer{
		Time: c.At.UTC().Format("2006-01-02T15:04:05.000Z"), Budget: c.Account, From: c.From.String(), To: c.To.String(), Utilisation: c.Utilisation,
	})
}
