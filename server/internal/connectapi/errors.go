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
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/ruleset"
)

// fail returns an error with a code.
func fail(code connect.Code, format string, args ...any) *connect.Error {
	return connect.NewError(code, brief(fmt.Sprintf(format, args...)))
}

// invalid returns the error of an invalid request.
func invalid(format string, args ...any) *connect.Error {
	return fail(connect.CodeInvalidArgument, format, args...)
}

// in adds the index of a batch's check to an error.
func in(check int, err *connect.Error) *connect.Error {
	return fail(err.Code(), "checks[%d]: %s", check, err.Message())
}

const (
	maxProblem = 512 // gRPC sends it as a header field
	maxQuoted  = 64  // of what a caller sent
)

// cut returns the beginning of s, at most so many bytes of whole characters, and the text to
// append: "…" if s was shortened.
func cut(s string, most int) (head, rest string) {
	if len(s) <= most {
		return s, ""
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most], "…"
}

// brief returns a problem, cut to maxProblem bytes.
func brief(problem string) error {
	head, rest := cut(problem, maxProblem)
	return errors.New(head + rest)
}

// quote returns a caller's text in a form that is safe to show: quoted, control characters escaped,
// at most maxQuoted bytes.
func quote(s string) string {
	head, rest := cut(s, maxQuoted)
	return strconv.QuoteToASCII(head) + rest
}

// refused returns the error of a failed authentication. Kind is the request's content type.
// WWW-Authenticate is set directly as a header field, because the metadata of gRPC's errors are
// sent as trailers.
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

// exhausted returns an error with the time to wait, in all ways that clients support. The trailer
// is only for gRPC.
func exhausted(kind string, r *identity.Refusal) *connect.Error {
	err := fail(connect.CodeResourceExhausted, "%s", r.Problem)
	err.Meta().Set("Retry-After", strconv.FormatInt(1+int64(r.RetryAfter/time.Second), 10))
	if strings.HasPrefix(kind, "application/grpc") { // and gRPC-Web
		err.Meta().Set(identity.Pushback, r.PushbackMillis())
	}
	for _, packed := range r.Details() {
		if detail, bad := connect.NewErrorDetail(packed); bad == nil { // it fails only for messages that are not packed
			err.AddDetail(detail)
		}
	}
	return err
}

// undecided returns the error of a request without a decision.
func (s *service) undecided(ctx context.Context, policy string, err error) *connect.Error {
	if problem, ok := inputProblem(policy, err); ok {
		return invalid("%s", problem)
	}
	switch {
	case errors.Is(err, ruleset.ErrGone):
		return fail(connect.CodeNotFound, "the reservation's policy does not exist any more, and with it nothing is held")
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fail(connect.CodeDeadlineExceeded, "the request's time was over before there was a decision")
	case ctx.Err() != nil: // the caller is gone and will not read this
		return fail(connect.CodeCanceled, "the request was canceled")
	}
	s.log.Error("no decision", "policy", policy, "error", err)
	return fail(connect.CodeUnavailable, "no decision could be made; the daemon's log says why")
}

// inputProblem returns the problem of an invalid request, with the text of /v1 except for the
// names of methods.
func inputProblem(policy string, err error) (string, bool) {
	var badQuery *ruleset.InputError
	switch {
	case errors.Is(err, weir.ErrReserveOnly):
		return fmt.Sprintf("policy %q limits concurrency: slots are held, not spent, so a check cannot take one; use Reserve", policy), true
	case errors.As(err, &badQuery), errors.Is(err, weir.ErrInvalid) && !errors.Is(err, compiled.ErrLimits):
		return err.Error(), true
	case errors.Is(err, ruleset.ErrTicket):
		return `"id" is no reservation of this client: it is what Reserve returned`, true
	}
	return "", false
}

// recovered logs a method's panic and returns the error for the caller, which has no details.
func (s *service) recovered(_ context.Context, spec connect.Spec, _ http.Header, panicked any) error {
	s.log.Error("panic", "procedure", spec.Procedure, "panic", panicked, "stack", string(debug.Stack()))
	return fail(connect.CodeInternal, "the daemon made a mistake; its log says which")
}
