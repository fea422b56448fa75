package call

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"google.golang.org/grpc/codes"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/strictjson"
	"github.com/weirlimit/weir/weirhttp"
)

// Kind is what kind of error a call has.
type Kind uint8

// The kinds. In all of them nothing was charged, but for Unavailable, where the outcome may be
// unknown.
const (
	BadInput         Kind = iota + 1 // the request is wrong; the same one would fail again
	Unauthenticated                  // a token is missing or unknown
	Forbidden                        // the client may not do that
	NotFound                         // there is no such policy
	Conflict                         // the daemon has no room for the change
	Throttled                        // too many failed authentications
	BadEncoding                      // the body is encoded
	TooLong                          // the body is too long
	Slow                             // the body did not arrive in time
	DeadlineExceeded                 // the caller's deadline has passed
	Canceled                         // the caller has left
	Unavailable                      // no decision could be made
)

// An Error says why a call has no decision. A refusal by a limit is a decision, not an Error.
type Error struct {
	Kind    Kind
	Field   string            // of the request, if one is wrong and Problem does not name it
	Problem string            // what is wrong, and what to do
	Item    int               // the index of the wrong check of a batch, or NoItem
	Refusal *identity.Refusal // of an authentication that failed, else nil
}

// NoItem is the Item of an Error that is not about a check of a batch.
const NoItem = -1

// Error returns the text for the caller.
func (e *Error) Error() string {
	text := e.Problem
	if e.Field != "" {
		text = fmt.Sprintf("%q %s", e.Field, text)
	}
	if e.Item != NoItem {
		text = fmt.Sprintf("checks[%d]: %s", e.Item, text)
	}
	return text
}

// maxText is the greatest length of Text: gRPC sends it as a header field.
const maxText = 512

// Text returns Error, cut to what fits a header field.
func (e *Error) Text() string {
	text := e.Error()
	if head := strictjson.Cut(text, maxText); len(head) < len(text) {
		return head + "…"
	}
	return text
}

// Errorf returns an Error, which is not about a check of a batch.
func Errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Problem: fmt.Sprintf(format, args...), Item: NoItem}
}

// Invalid returns a BadInput.
func Invalid(format string, args ...any) *Error { return Errorf(BadInput, format, args...) }

// In returns the error as that of a check of a batch.
func (e *Error) In(item int) *Error {
	e.Item = item
	return e
}

// wire is how each kind of error is sent: as an HTTP status, and as a code of gRPC and Connect, which
// have the same numbers.
var wire = [...]struct {
	status int
	code   codes.Code
}{
	BadInput:         {http.StatusBadRequest, codes.InvalidArgument},
	Unauthenticated:  {http.StatusUnauthorized, codes.Unauthenticated},
	Forbidden:        {http.StatusForbidden, codes.PermissionDenied},
	NotFound:         {http.StatusNotFound, codes.NotFound},
	Conflict:         {http.StatusConflict, codes.FailedPrecondition},
	Throttled:        {http.StatusTooManyRequests, codes.ResourceExhausted},
	BadEncoding:      {http.StatusUnsupportedMediaType, codes.Unavailable},
	TooLong:          {http.StatusRequestEntityTooLarge, codes.Unavailable},
	Slow:             {http.StatusRequestTimeout, codes.Unavailable},
	DeadlineExceeded: {http.StatusServiceUnavailable, codes.DeadlineExceeded},
	Canceled:         {http.StatusServiceUnavailable, codes.Canceled},
	Unavailable:      {http.StatusServiceUnavailable, codes.Unavailable},
}

// Status returns the HTTP status.
func (e *Error) Status() int { return wire[e.Kind].status }

// Code returns the code of gRPC and Connect.
func (e *Error) Code() codes.Code { return wire[e.Kind].code }

// Write answers an HTTP request with the error, as a problem (RFC 9457).
func (e *Error) Write(w http.ResponseWriter) {
	if e.Refusal != nil {
		e.Refusal.Write(w)
		return
	}
	weirhttp.Problem{Status: e.Status(), Detail: e.Error()}.Write(w)
}

// Refused returns the error of a failed authentication.
func Refused(r *identity.Refusal) *Error {
	e := &Error{Kind: Forbidden, Problem: r.Problem, Item: NoItem, Refusal: r}
	switch r.Status {
	case http.StatusUnauthorized:
		e.Kind = Unauthenticated
	case http.StatusTooManyRequests:
		e.Kind = Throttled
	}
	return e
}

// Undecided returns the error of a call for which no decision was made. What is not the caller's
// mistake is logged.
func (c *Core) Undecided(ctx context.Context, policy string, err error) *Error {
	if bad, ok := errors.AsType[*ruleset.ItemError](err); ok {
		return c.Undecided(ctx, policy, bad.Err).In(bad.Index)
	}
	if bad, ok := errors.AsType[*ruleset.InputError](err); ok {
		return &Error{Kind: BadInput, Field: bad.Field, Problem: bad.Problem, Item: NoItem}
	}
	switch {
	case errors.Is(err, weir.ErrReserveOnly):
		return Invalid("policy %q limits concurrency: slots are held, not spent, so a check cannot take one; reserve one instead", policy)
	case errors.Is(err, weir.ErrInvalid) && !errors.Is(err, compiled.ErrLimits):
		return Invalid("%s", err)
	case errors.Is(err, ruleset.ErrTicket):
		return &Error{Kind: BadInput, Field: "id", Problem: "is no reservation of this client: it is what reserve returned", Item: NoItem}
	case errors.Is(err, ruleset.ErrGone):
		return Errorf(NotFound, "the reservation's policy is not configured; its units stay held until they expire")
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return Errorf(DeadlineExceeded, "the request's time was over before there was a decision")
	case ctx.Err() != nil: // the caller is gone and will not read this
		return Errorf(Canceled, "the request was canceled")
	}
	c.Log.Error("no decision", "policy", policy, "error", err)
	return Errorf(Unavailable, "no decision could be made; the daemon's log says why")
}
