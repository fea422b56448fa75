package call

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/ruleset"
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
	if head := Cut(text, maxText); len(head) < len(text) {
		return head + "…"
	}
	return text
}

// Invalid returns a BadInput.
func Invalid(format string, args ...any) *Error {
	return &Error{Kind: BadInput, Problem: fmt.Sprintf(format, args...), Item: NoItem}
}

// In returns the error as that of a check of a batch.
func (e *Error) In(item int) *Error {
	e.Item = item
	return e
}

// Status returns the HTTP status.
func (e *Error) Status() int {
	switch e.Kind {
	case BadInput:
		return http.StatusBadRequest
	case Unauthenticated:
		return http.StatusUnauthorized
	case Forbidden:
		return http.StatusForbidden
	case NotFound:
		return http.StatusNotFound
	case Throttled:
		return http.StatusTooManyRequests
	case BadEncoding:
		return http.StatusUnsupportedMediaType
	case TooLong:
		return http.StatusRequestEntityTooLarge
	case Slow:
		return http.StatusRequestTimeout
	}
	return http.StatusServiceUnavailable
}

// Code returns the code of gRPC and Connect, which have the same numbers.
func (e *Error) Code() uint32 {
	const (
		canceled, invalidArgument, deadlineExceeded, notFound = 1, 3, 4, 5

		permissionDenied, resourceExhausted, unavailable, unauthenticated = 7, 8, 14, 16
	)
	switch e.Kind {
	case BadInput:
		return invalidArgument
	case Unauthenticated:
		return unauthenticated
	case Forbidden:
		return permissionDenied
	case NotFound:
		return notFound
	case Throttled:
		return resourceExhausted
	case DeadlineExceeded:
		return deadlineExceeded
	case Canceled:
		return canceled
	}
	return unavailable
}

// refused returns the error of a failed authentication.
func refused(r *identity.Refusal) *Error {
	kinds := map[int]Kind{http.StatusUnauthorized: Unauthenticated, http.StatusTooManyRequests: Throttled}
	e := &Error{Kind: kinds[r.Status], Problem: r.Problem, Item: NoItem, Refusal: r}
	if e.Kind == 0 {
		e.Kind = Forbidden
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
		return &Error{Kind: NotFound, Problem: "the reservation's policy is not configured; its units stay held until they expire", Item: NoItem}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &Error{Kind: DeadlineExceeded, Problem: "the request's time was over before there was a decision", Item: NoItem}
	case ctx.Err() != nil: // the caller is gone and will not read this
		return &Error{Kind: Canceled, Problem: "the request was canceled", Item: NoItem}
	}
	c.Log.Error("no decision", "policy", policy, "error", err)
	return &Error{Kind: Unavailable, Problem: "no decision could be made; the daemon's log says why", Item: NoItem}
}

// maxQuoted is how many bytes of a caller's text an error repeats.
const maxQuoted = 64

// Quote returns a caller's text in a form that is safe to show: quoted, control characters escaped,
// cut to whole characters in maxQuoted bytes.
func Quote(s string) string {
	head := Cut(s, maxQuoted)
	if len(head) < len(s) {
		return strconv.QuoteToASCII(head) + "…"
	}
	return strconv.QuoteToASCII(s)
}

// Cut returns the beginning of a text: whole characters in at most so many bytes.
func Cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// policyOf returns the policy of the item that an error is about, "" if it is about none.
func policyOf(items []ruleset.Item, err error) string {
	if bad, ok := errors.AsType[*ruleset.ItemError](err); ok {
		return items[bad.Index].Rule.Name()
	}
	return ""
}
