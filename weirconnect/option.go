package weirconnect

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/weirhttp"
)

// Option is an option of New and Limit.
type Option func(*config)

type config struct {
	http         []weirhttp.Option
	perMessage   bool
	authenticate func(context.Context, http.Header) (context.Context, error)
	verify       func(context.Context, any) (guard.Subject, bool)
	failed       func(connect.Code) bool
}

// By is weirhttp.By: a policy and what its keys are, such as weirhttp.Header("X-Api-Key") or
// weirhttp.ClientIP(proxies...). It is an option of Limit, which needs at least one.
func By(policy *weir.Policy, key weirhttp.KeyFunc, options ...weirhttp.RuleOption) Option {
	return With(weirhttp.By(policy, key, options...))
}

// With adds options of weirhttp: Cost, Skip, OnError, Attributes and LegacyHeaders. Their functions get
// a request without a body and method, with the procedure as path, the header, and the address of the
// peer. Refuse and Failed have no effect.
func With(options ...weirhttp.Option) Option {
	return func(c *config) { c.http = append(c.http, options...) }
}

// PerMessage charges streams for each message that the server receives.
func PerMessage() Option { return func(c *config) { c.perMessage = true } }

// Authenticate sets a function that is called between the two stages of a Guard. It returns a
// context with the caller (guard.WithSubject), or an error, which is the reply; a *connect.Error has a
// code. It is an option of New.
func Authenticate(f func(ctx context.Context, header http.Header) (context.Context, error)) Option {
	return func(c *config) { c.authenticate = f }
}

// Verify sets a function that finds the subject of a unary call in its message, such as the creator of
// a signed event. It must verify what it returns: with an identity that anybody can claim, anybody
// could use up the limits of others. False means that the message has no valid identity; the call
// is then charged as without Verify. It is called between the stages, after Authenticate. It is an
// option of New, and guard.Identity.Sources must include SourceContext, as it does by default.
func Verify(f func(ctx context.Context, message any) (guard.Subject, bool)) Option {
	return func(c *config) { c.verify = f }
}

// Failed says which errors are failures at endpoints with guard.CountFailures. The default is
// unauthenticated and permission_denied. A panic is always a failure, and so is another error after the
// caller has left. It is an option of New.
func Failed(f func(connect.Code) bool) Option {
	return func(c *config) { c.failed = f }
}

func newConfig(options []Option) *config {
	c := &config{}
	for _, o := range options {
		o(c)
	}
	return c
}

// isFailure is the default of Failed.
func isFailure(code connect.Code) bool {
	return code == connect.CodeUnauthenticated || code == connect.CodePermissionDenied
}
