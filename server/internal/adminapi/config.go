package adminapi

import (
	"context"
	"log/slog"

	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/internal/topk"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/upstream"
)

// Config is what New needs. All fields but Guard are required.
type Config struct {
	Engine *ruleset.Engine
	State  func() *State // the current state; called once per request

	// These functions access the overrides that operators have set, in the store that all
	// nodes share. Changes are in force when they return. PutOverride returns ErrTooMany at
	// the maximum number.
	ListOverrides  func(context.Context) ([]Override, error)
	PutOverride    func(context.Context, Override) error
	RemoveOverride func(ctx context.Context, policy, key string) (bool, error)

	// Top returns the keys with the most refusals lately. A label is a policy, a zero byte and
	// a key.
	Top func(n int) []topk.Entry

	// Subscribe sends every decision from now on to the channel, until cancel is called.
	// Decisions are dropped while the channel is full, and lost returns how many were dropped
	// since its last call. It fails if there are too many subscribers.
	Subscribe func() (records <-chan ruleset.Record, lost func() int64, cancel func(), err error)

	// SubscribeViolations is Subscribe for violations of the guard. It may be nil.
	SubscribeViolations func() (violations <-chan guard.Violation, lost func() int64, cancel func(), err error)

	// SubscribeLevels is Subscribe for changes of the levels of budgets. It may be nil.
	SubscribeLevels func() (changes <-chan budget.LevelChange, lost func() int64, cancel func(), err error)

	// Stats returns the statistics of the store and the tier, for GET /admin/v1/stats.
	Stats func() map[string]any

	// Guard returns the guard, nil if there is none at the moment. It is called once per request
	// about the guard. The default is nil: there is none.
	Guard func() *guard.Guard

	// Budgets returns the accounts of the budgets, by name. It is called for requests that may be
	// about one. The default is nil: there are none.
	Budgets func() []*budget.Account

	// Routes returns the statistics of the gateway's routes, by name. The default is nil: there are none.
	Routes func() []upstream.Stats

	// ResumeUpstream lets an endpoint of a route be tried again, as upstream.Pool.Resume does, and ResumeBudget the
	// account of a budget in all routes. Either may be nil.
	ResumeUpstream func(route, alias string)
	ResumeBudget   func(name string)

	Version string
	Log     *slog.Logger // the audit log goes there, too
}

// State is the configuration that can change while the daemon runs. A State is immutable; a
// change replaces it.
type State struct {
	Rules         *ruleset.Rules
	Authenticator *identity.Authenticator
	Effective     []Setting
	Reload        string // the error of the last reload, "" if it succeeded
	API           API
}

// API is where /v1 is served, for the page at /.
type API struct {
	URL    string `json:"url"`    // for example "http://127.0.0.1:8080"; "" if the listener is that of the admin API
	Socket string `json:"socket"` // the path of its Unix socket, "" if it has none
	Token  bool   `json:"token"`  // callers need a client's token
}

// Setting is a value that is in force.
type Setting struct {
	Path   string `json:"path"`   // for example "policies.api.limits[0].rate"
	Value  any    `json:"value"`  // secrets are masked; null if it comes into force with a restart
	Source string `json:"source"` // for example "weir.yaml:12", "WEIR__STORE__KIND" or "default"

	// Pending, if set, is what the setting will be after a restart.
	Pending *Pending `json:"pending,omitempty"`
}

// Pending is a value that a reload has read and that needs a restart.
type Pending struct {
	Value  any    `json:"value"` // null if the setting was removed
	Source string `json:"source"`
}

// Override is an override that an operator has set.
type Override struct {
	Policy string
	ruleset.Override
}

// settingsAnswer is the configuration that is in force.
type settingsAnswer struct {
	Version string `json:"version"`
	Reload  struct {
		Error string `json:"error"` // "" if the last reload went well
	} `json:"reload"`
	API      API       `json:"api"`
	Settings []Setting `json:"settings"`
}

// settings answers GET /admin/v1/config.
func (a *api) settings(x *exchange) (any, error) {
	out := settingsAnswer{Version: a.Version, API: x.state.API, Settings: x.state.Effective}
	out.Reload.Error = x.state.Reload
	if out.Settings == nil {
		out.Settings = []Setting{}
	}
	return out, nil
}
