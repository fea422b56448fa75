package adminapi

import (
	"context"
	"log/slog"

	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/internal/topk"
)

// Config is what New needs. All fields are required.
type Config struct {
	Guard *guard.Guard
	State func() *State // what holds now; a request asks once

	// Overrides are those that operators have set, in the store that all nodes share.
	// What these change is in force when they return. PutOverride returns ErrTooMany if no
	// more fit.
	ListOverrides  func(context.Context) ([]Override, error)
	PutOverride    func(context.Context, Override) error
	RemoveOverride func(ctx context.Context, policy, key string) (bool, error)

	// Top returns who was refused most lately. A label is a policy, a zero byte and a
	// key.
	Top func(n int) []topk.Entry

	// Subscribe has every decision from now on sent to the channel, until cancel is
	// called; those that find it full are left out, and lost returns how many that were
	// since it was last asked. It fails if too many watch already.
	Subscribe func() (records <-chan guard.Record, lost func() int64, cancel func(), err error)

	// Stats returns the figures of the store and the tier, for GET /admin/v1/stats.
	Stats func() map[string]any

	Version string
	Log     *slog.Logger // the audit log goes there, too
}

// State is what can change while the daemon runs. A State is immutable; a change is
// another one.
type State struct {
	Rules         *guard.Rules
	Authenticator *identity.Authenticator
	Effective     []Setting
	Reload        string // what went wrong with the last reload, "" if nothing did
}

// Setting is a value that is in force.
type Setting struct {
	Path   string `json:"path"`   // for example "policies.api.limits[0].rate"
	Value  any    `json:"value"`  // secrets are masked
	Source string `json:"source"` // for example "weir.yaml:12", "WEIR__STORE__KIND" or "default"
}

// Override is an override that an operator has set.
type Override struct {
	Policy string
	guard.Override
}
