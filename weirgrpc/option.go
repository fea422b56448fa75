package weirgrpc

import (
	"context"

	"google.golang.org/grpc/codes"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/weirhttp"
)

// Option is an option of the interceptors.
type Option func(*config)

type config struct {
	http         []weirhttp.Option
	perMessage   bool
	authenticate func(context.Context) (context.Context, error)
	verify       func(context.Context, any) (guard.Subject, bool)
	failed       func(codes.Code) bool
}

// By is weirhttp.By: a policy and what its keys are, such as weirhttp.Header("X-Api-Key"), which is
// the metadata x-api-key, or weirhttp.ClientIP(proxies...). It is an option of LimitUnaryServer and
// LimitStreamServer, which need at least one.
func By(policy *weir.Policy, key weirhttp.KeyFunc, options ...weirhttp.RuleOption) Option {
	return With(weirhttp.By(policy, key, options...))
}

// With adds options of weirhttp: Cost, Skip, OnError, Attributes and LegacyHeaders. Their functions get
// a request without a body and method, with the procedure as path, the metadata as header, and the
// address of the peer. Refuse and Failed have no effect.
func With(options ...weirhttp.Option) Option {
	return func(c *config) { c.http = append(c.http, options...) }
}

// PerMessage charges streams for each message that the server receives. It has no effect on unary
// calls.
func PerMessage() Option { return func(c *config) { c.perMessage = true } }

// Authenticate sets a function that is called between the two stages of a Guard. It returns a
// context with the caller (guard.WithSubject), or an error, which is the reply. It is an option of
// UnaryServer and StreamServer.
func Authenticate(f func(context.Context) (context.Context, error)) Option {
	return func(c *config) { c.authenticate = f }
}

// Verify sets a function that finds the subject of a unary call in its message, such as the creator of
// a signed event. It must verify what it returns: with an identity that anybody can claim, anybody
// could use up the limits of others. False means that the message has no valid identity; the call
// is then charged as without Verify. It is called between the stages, after Authenticate. It is an
// option of UnaryServer, and guard.Identity.Sources must include SourceContext, as it does by
// default.
func Verify(f func(ctx context.Context, message any) (guard.Subject, bool)) Option {
	return func(c *config) { c.verify = f }
}

// Failed says which errors are failures at endpoints with guard.CountFailures. The default is
// Unauthenticated and PermissionDenied. A panic is always a failure, and so is another error after
// the caller has left. It is an option of UnaryServer and StreamServer.
func Failed(f func(codes.Code) bool) Option {
	return func(c *config) { c.failed = f }
}

func newConfig(options []Option) *config {
	c := &config{}
	for _, o := range options {
		o(c)
	}
	return c
}

// checkLimit panics if there are options that need a Guard.
func (c *config) checkLimit(name string) {
	if c.authenticate != nil || c.verify != nil || c.failed != nil {
		panic("weirgrpc: " + name + ": Authenticate, Verify and Failed are options of UnaryServer and StreamServer")
	}
}

// isFailure is the default of Failed.
func isFailure(code codes.Code) bool {
	return code == codes.Unauthenticated || code == codes.PermissionDenied
}
