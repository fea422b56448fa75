package connectapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/gen/weir/v1/weirv1connect"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/identity"
)

// Config is what New needs. All fields are required.
type Config struct {
	Guard   *guard.Guard
	State   func() *State       // what holds now; a request asks once
	Observe func(*guard.Record) // is told each decision; it must not keep the record
	Log     *slog.Logger

	// ObserveEach is Observe for the decisions on several items, of which the first took
	// so long.
	ObserveEach func(items []guard.Item, verdicts []guard.Verdict, took time.Duration)
}

// State is what can change while the daemon runs. A State is immutable; a change is
// another one.
type State struct {
	Rules         *guard.Rules
	Authenticator *identity.Authenticator
}

const (
	maxMessage = 64 << 10

	// maxBody has room for a message and the five bytes that gRPC puts before it. Without
	// it connect would read on to the end of a message that is too long, however far away
	// that is.
	maxBody = maxMessage + 5
)

// New returns the handler of weir.v1.LimiterService, and the path under which it is to be
// served: all that begins with it.
func New(cfg Config) (path string, handler http.Handler) {
	s := newService(cfg)
	options := []connect.HandlerOption{
		connect.WithReadMaxBytes(maxMessage),
		connect.WithCompression("gzip", nil, nil), // takes away what connect has by default
		connect.WithCodec(jsonCodec{"json"}),
		connect.WithCodec(jsonCodec{"json; charset=utf-8"}), // to connect, another codec
		connect.WithRecover(s.recovered),
	}
	path, inner := weirv1connect.NewLimiterServiceHandler(s, options...)
	return path, &authHandler{state: cfg.State, inner: inner, errors: connect.NewErrorWriter(options...)}
}

// NewService returns the verbs for another transport, which lets in who may call and puts
// that with WithCaller into the context of each call. Errors are of type *connect.Error.
// State is not asked.
func NewService(cfg Config) weirv1.LimiterServiceServer { return newService(cfg) }

func newService(cfg Config) *service {
	return &service{guard: cfg.Guard, observe: cfg.Observe, observeEach: cfg.ObserveEach, log: cfg.Log}
}

// WithCaller returns a context for a call of client, who is nil if it does not matter who
// calls, that is decided by state.
func WithCaller(ctx context.Context, state *State, client *identity.Client) context.Context {
	return context.WithValue(ctx, callerKey{}, &caller{state, client})
}

// service has the verbs. All fields are set once by newService.
type service struct {
	weirv1.UnsafeLimiterServiceServer // nil: all verbs are here, or this does not compile

	guard       *guard.Guard
	observe     func(*guard.Record)
	observeEach func(items []guard.Item, verdicts []guard.Verdict, took time.Duration)
	log         *slog.Logger
}

var (
	_ weirv1connect.LimiterServiceHandler = (*service)(nil)
	_ weirv1.LimiterServiceServer         = (*service)(nil)
)

// door lets in who may call. It stands before connect because connect's own handlers see
// header fields only: no certificate, and no address to throttle.
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

// caller is who asks, and what holds for the request. It travels in the context.
type caller struct {
	state  *State
	client *identity.Client // nil if it does not matter who
}

type callerKey struct{}

func callerOf(ctx context.Context) *caller { return ctx.Value(callerKey{}).(*caller) }

// name returns the namespace of the caller's reservations.
func (c *caller) name() string {
	if c.client == nil {
		return ""
	}
	return c.client.Name
}

// rule returns the policy that the caller asks for.
func (c *caller) rule(name string) (*guard.Rule, *connect.Error) {
	if c.client != nil && !c.client.May(name) {
		return nil, fail(connect.CodePermissionDenied, "the client %s may not use the policy %s", c.client.Name, quote(name))
	}
	rule := c.state.Rules.Rule(name)
	if rule == nil {
		return nil, fail(connect.CodeNotFound, "no policy is called %s; the page at / and GET /admin/v1/policies list those there are", quote(name))
	}
	return rule, nil
}
