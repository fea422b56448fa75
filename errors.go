package weir

import (
	"errors"
	"fmt"

	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/compiled"
)

// Must returns v, and panics if err is not nil. It is for package-level variables whose
// limits are constants:
//
//	var perHost = weir.Must(memstore.NewKeyed(weir.PerSecond(50)))
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A LimitError says which number of which limit cannot be used, why, and what
// would fit. NewPolicy joins one for every limit that has a problem; use
// errors.As.
type LimitError struct {
	Policy  string // "" for a Single
	Limit   string // the limit's name; "" if the policy itself is wrong
	Field   string // as configurations call it: "rate", "per", "burst", "initial", "max_debt", "algorithm", "classes", "classes.realtime.burst", "pace", "on_error", "name", "limits" or "used"
	Value   any    // as given
	Problem string // for example "must be between 1 and 9007199254740991"
}

func (e *LimitError) Error() string {
	where := "weir: "
	if e.Policy != "" {
		where += fmt.Sprintf("policy %q: ", e.Policy)
	}
	if e.Limit != "" {
		where += fmt.Sprintf("limit %q: ", e.Limit)
	}
	return fmt.Sprintf("%s%s %v: %s", where, e.Field, e.Value, e.Problem)
}

// Unwrap returns ErrInvalid.
func (e *LimitError) Unwrap() error { return ErrInvalid }

func badField(field string, value any, problem string) *algo.ParamError {
	return &algo.ParamError{Field: field, Value: value, Problem: problem}
}

// setError puts the names to an error of algo.Ledger.Set.
func setError(p *Policy, err error) error {
	limit := ""
	if e := (*algo.SetError)(nil); errors.As(err, &e) {
		limit = p.limits[e.Rule].Name
	}
	return limitError(p.name, limit, err)
}

// limitError puts the names to an error of package algo.
func limitError(policy, limit string, err error) error {
	var p *algo.ParamError
	if !errors.As(err, &p) {
		return err
	}
	return &LimitError{Policy: policy, Limit: limit, Field: p.Field, Value: p.Value, Problem: p.Problem}
}

// What an error of a Limiter means, as errors.Is finds it. Other errors are those of the
// caller's context.
var (
	// ErrInvalid: the input is wrong, or the store does not support such limits. Nothing was
	// charged. The same call would fail again.
	ErrInvalid = compiled.ErrInvalid

	// ErrReserveOnly is an ErrInvalid. It is returned by Take, and for DebitEach, under a
	// policy with a Concurrency limit: slots are held, not spent, so only Reserve can take them.
	ErrReserveOnly = compiled.Invalid("the policy limits concurrency: use Reserve, and Commit or Cancel when done")

	// ErrState: the stored state of the key cannot be read, because it was not written by a
	// limiter, or in a newer format. Nothing was charged. Other keys are not affected.
	ErrState = errors.New("weir: the stored state of the key cannot be read")

	// ErrBusy: too many calls are in flight. Nothing was charged.
	ErrBusy = errors.New("weir: too many calls are in flight")

	// ErrUnavailable: the store, or the daemon, could not be reached. Nothing was charged,
	// unless the error is also an ErrUnknown.
	ErrUnavailable = errors.New("weir: the store is unavailable")

	// ErrUnknown: the call was sent and no reply came, so it may have been carried out or
	// not. After any error that is not an ErrUnknown, nothing was charged.
	ErrUnknown = errors.New("weir: the outcome is unknown")
)
