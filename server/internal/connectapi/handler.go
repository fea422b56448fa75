package connectapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/gen/weir/v1/weirv1connect"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/ruleset"
)

// Config is what New needs. All fields are required.
type Config struct {
	Engine  *ruleset.Engine
	State   func() *State         // the current state; called once per request
	Observe func(*ruleset.Record) // called with each decision; it must not retain the record
	Log     *slog.Logger

	// ObserveEach is Observe for the decisions on several items. Took is the duration of the
	// first.
	ObserveEach func(items []ruleset.Item, verdicts []ruleset.Verdict, took time.Duration)
}

// State is the configuration that can change while the daemon runs. A State is immutable; a
// change replaces it.
type State struct {
	Rules         *ruleset.Rules
	Authenticator *identity.Authenticator
}

const (
	maxMessage = 64 << 10

	// maxBody is the size of a message and its five bytes of gRPC framing. Without it, connect
	// would read a message that is too long to its end.
	maxBody = maxMessage + 5
)

// New returns the handler of weir.v1.LimiterService, and the path prefix under which it must be
// served.
func New(cfg Config) (path string, handler http.Handler) {
	s := newService(cfg)
	options := []connect.HandlerOption{
		connect.WithReadMaxBytes(maxMessage),
		connect.WithCompression("gzip", nil, nil), // disables connect's default compression
		connect.WithCodec(jsonCodec{"json"}),
		connect.WithCodec(jsonCodec{"json; charset=utf-8"}), // for connect this is another codec
		connect.WithRecover(s.recovered),
	}
	path, inner := weirv1connect.NewLimiterServiceHandler(s, options...)
	return path, &authHandler{state: cfg.State, inner: inner, errors: connect.NewErrorWriter(options...)}
}

// NewService returns the methods for another transport, which authenticates callers and adds them
// to the context of each call with WithCaller. Errors are of type *connect.Error. Config.State
// is not used.
func NewService(cfg Config) weirv1.LimiterServiceServer { return newService(cfg) }

func newService(cfg Config) *service {
	return &service{engine: cfg.Engine, observe: cfg.Observe, observeEach: cfg.ObserveEach, log: cfg.Log}
}

// WithCaller returns a context for a call of client, which is nil for an anonymous caller, that is
// decided by state.
func WithCaller(ctx context.Context, state *State, client *identity.Client) context.Context {
	return context.WithValue(ctx, callerKey{}, &caller{state, client})
}

// service implements the methods. All fields are set once by newService.
type service struct {
	weirv1.UnsafeLimiterServiceServer // nil: the compiler reports missing methods

	engine      *ruleset.Engine
	observe     func(*ruleset.Record)
	observeEach func(items []ruleset.Item, verdicts []ruleset.Verdict, took time.Duration)
	log         *slog.Logger
}

var (
	_ weirv1connect.LimiterServiceHandler = (*service)(nil)
	_ weirv1.LimiterServiceServer         = (*service)(nil)
)

// authHandler authenticates callers. It wraps connect's handler, because connect's interceptors
// have no access to the TLS certificate.
type authHandler struct {
	state  func() *State
	inner  http.Handler
	errors *connect.ErrorWriter
}

func (h *authHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	state := h.state()
	client, err := state.Authenticator.Client(r)
	if err != nil {
		_ = h.errors.Write(w, r, refused(w.Header(), r.Header.Get("Content-Type"), err)) // an error means that the caller is gone
		return
	}
	r = r.WithContext(WithCaller(r.Context(), state, client))
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	h.inner.ServeHTTP(w, r)
}

// caller is the caller of a request and the state for it. It is a context value.
type caller struct {
	state  *State
	client *identity.Client // nil for an anonymous caller
}

type callerKey struct{}

func callerOf(ctx context.Context) *caller { return ctx.Value(callerKey{}).(*caller) }

// name returns the client's name, to which its reservations belong.
func (c *caller) name() string {
	if c.client == nil {
		return ""
	}
	return c.client.Name
}

// rule returns the policy with a name, if the caller may use it.
func (c *caller) rule(name string) (*ruleset.Rule, *connect.Error) {
	if !c.state.Authenticator.MayPolicy(c.client, name) {
		return nil, fail(connect.CodePermissionDenied, "the client %s may not use the policy %s", c.client.Name, quote(name))
	}
	rule := c.state.Rules.Rule(name)
	if rule == nil {
		return nil, fail(connect.CodeNotFound, "no policy is called %s; the page at / and GET /admin/v1/policies list those there are", quote(name))
	}
	return rule, nil
}
