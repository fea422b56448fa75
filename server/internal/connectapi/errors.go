package connectapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/internal/identity"
)

// fail returns an error to answer with.
func fail(code connect.Code, format string, args ...any) *connect.Error {
	return connect.NewError(code, brief(fmt.Sprintf(format, args...)))
}

// invalid says what is wrong with a request.
func invalid(format string, args ...any) *connect.Error {
	return fail(connect.CodeInvalidArgument, format, args...)
}

// in says which check of a batch an error is about.
func in(check int, err *connect.Error) *connect.Error {
	return fail(err.Code(), "checks[%d]: %s", check, err.Message())
}

const (
	maxProblem = 512 // gRPC sends it as a header field
	maxQuoted  = 64  // of what a caller sent
)

// cut returns the beginning of s, whole characters in at most so many bytes, and what is
// to follow it: "…" if something was left out.
func cut(s string, most int) (head, rest string) {
	if len(s) <= most {
		return s, ""
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most], "…"
}

// brief returns a problem, cut to what fits into an answer.
func brief(problem string) error {
	head, rest := cut(problem, maxProblem)
	return errors.New(head + rest)
}

// quote returns what a caller sent in a form that is safe to show: quoted, control
// characters escaped, not too long.
func quote(s string) string {
	head, rest := cut(s, maxQuoted)
	return strconv.QuoteToASCII(head) + rest
}

// refused answers who may not come in and sent such a kind of content. WWW-Authenticate is a
// header field by every protocol: metadata of gRPC's errors are trailers, which that one
// must not be.
func refused(h http.Header, kind string, r *identity.Refusal) *connect.Error {
	switch r.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="weir"`)
		return fail(connect.CodeUnauthenticated, "%s", r.Problem)
	case http.StatusTooManyRequests:
		return exhausted(kind, r)
	}
	return fail(connect.CodePermissionDenied, "%s", r.Problem)
}

// exhausted is a refusal that says when to come again, in all ways that clients look for.
// What only gRPC knows is left out for others.
func exhausted(kind string, r *identity.Refusal) *connect.Error {
	err := fail(connect.CodeResourceExhausted, "%s", r.Problem)
	err.Meta().Set("Retry-After", strconv.FormatInt(1+int64(r.RetryAfter/time.Second), 10))
	if strings.HasPrefix(kind, "application/grpc") { // and gRPC-Web
		err.Meta().Set(identity.Pushback, r.PushbackMillis())
	}
	for _, packed := range r.Details() {
		if detail, bad := connect.NewErrorDetail(packed); bad == nil { // it fails for what is not packed yet
			err.AddDetail(detail)
		}
	}
	return err
}

// undecided answers when no decision was made.
func (s *service) undecided(ctx context.Context, policy string, err error) *connect.Error {
	if problem, ok := inputProblem(policy, err); ok {
		return invalid("%s", problem)
	}
	switch {
	case errors.Is(err, guard.ErrGone):
		return fail(connect.CodeNotFound, "the reservation's policy does not exist any more, and with it nothing is held")
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fail(connect.CodeDeadlineExceeded, "the request's time was over before there was a decision")
	case ctx.Err() != nil: // the caller left; nobody is to blame and nobody reads this
		return fail(connect.CodeCanceled, "the request was given up")
	}
	s.log.Error("no decision", "policy", policy, "error", err)
	return fail(connect.CodeUnavailable, "no decision could be made; the daemon's log says why")
}

// inputProblem says what is wrong with a request, if something is, in the sentences of
// /v1. Only verbs have the names that they have here.
func inputProblem(policy string, err error) (string, bool) {
	var badQuery *guard.InputError
	switch {
	case errors.Is(err, weir.ErrReserveOnly):
		return fmt.Sprintf("policy %q limits concurrency: slots are held, not spent, so a check cannot take one; use Reserve", policy), true
	case errors.As(err, &badQuery), errors.Is(err, weir.ErrInvalid) && !errors.Is(err, compiled.ErrLimits):
		return err.Error(), true
	case errors.Is(err, guard.ErrTicket):
		return `"id" is no reservation of this client: it is what Reserve returned`, true
	}
	return "", false
}

// recovered answers when a verb panicked. What it panicked with is for the log alone.
func (s *service) recovered(_ context.Context, spec connect.Spec, _ http.Header, panicked any) error {
	s.log.Error("panic", "procedure", spec.Procedure, "panic", panicked, "stack", string(debug.Stack()))
	return fail(connect.CodeInternal, "the daemon made a mistake; its log says which")
}
