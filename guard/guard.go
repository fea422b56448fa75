package guard

import (
	"context"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// Guard decides requests. Make one with New. All methods may be called by any number of goroutines.
type Guard struct{}

// New returns a Guard that charges l. Its error joins an *Error for each problem.
func New(l weir.Limiter, c Config) (*Guard, error) { return nil, nil }

// Set replaces the configuration. Counts and penalties are kept. If it returns an error, the old
// configuration stays.
func (g *Guard) Set(ctx context.Context, c Config) error { return nil }

// Close ends all subscriptions.
func (g *Guard) Close() {}

// Identifier returns what identifies callers.
func (g *Guard) Identifier() *Identifier { return nil }

// IsExempt says whether an endpoint is disabled, so that no limits of endpoints apply to it.
func (g *Guard) IsExempt(method, path string) bool { return false }

// Quota is the status of a limit for a subject.
type Quota struct {
	Endpoint  string // the name of the endpoint's policy
	Limit     string // the limit's name in headers
	Capacity  int64
	Remaining int64
	Reset     time.Duration
	Hidden    bool
}

// Quotas returns the status of the limits of an endpoint for a subject, or of all endpoints if the path
// is "". It charges nothing.
func (g *Guard) Quotas(ctx context.Context, s Subject, method, path string) ([]Quota, error) {
	return nil, nil
}

// Penalty returns when the subject's penalty ends. It is the zero time if there is none.
func (g *Guard) Penalty(ctx context.Context, subject string) (until time.Time, err error) {
	return time.Time{}, nil
}

// Pardon ends the subject's penalty and sets its score to zero.
func (g *Guard) Pardon(ctx context.Context, subject string) error { return nil }

// Policies returns the policies of a configuration, for a program that compiles them together with
// others and passes the result to Compile.
func (c Config) Policies() ([]ruleset.Policy, error) { return nil, nil }

// Rules are a compiled Config. They are immutable.
type Rules struct{}

// Compile compiles a configuration whose Policies were compiled to rules.
func Compile(c Config, rules *ruleset.Rules) (*Rules, error) { return nil, nil }

// NewWith returns a Guard on an engine that has the policies of the rules.
func NewWith(engine *ruleset.Engine, rules *Rules, hooks Hooks) (*Guard, error) { return nil, nil }

// Apply puts those limits in force that are not policies of the engine's rules. Replace needs it
// before.
func (g *Guard) Apply(ctx context.Context, rules *Rules) error { return nil }

// Replace puts rules in force whose policies the engine has applied.
func (g *Guard) Replace(rules *Rules) {}

// Rules returns the rules that are in force.
func (g *Guard) Rules() *Rules { return nil }
