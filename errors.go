package weir

import (
	"errors"
	"fmt"

	"github.com/weirlimit/weir/algo"
)

// A LimitError says which number of which limit cannot be used, why, and what
// would fit. NewPolicy joins one for every limit that has a problem; use
// errors.As.
type LimitError struct {
	Policy  string // "" for a Single
	Limit   string // the limit's name; "" if the policy itself is wrong
	Field   string // as configurations call it: "rate", "per", "burst", "initial", "max_debt", "algorithm", "on_error", "name", "limits" or "used"
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

// A CostError reports a cost that is negative or above MaxCost.
type CostError struct{ Cost int64 }

func (e *CostError) Error() string {
	return fmt.Sprintf("weir: cost %d: must be between 0 and %d", e.Cost, MaxCost)
}

// CheckCost returns a *CostError unless 0 ≤ cost ≤ MaxCost.
func CheckCost(cost int64) error {
	if cost < 0 || cost > MaxCost {
		return &CostError{cost}
	}
	return nil
}

// A TTLError reports a reservation time that is out of range.
type TTLError struct{ Problem string }

func (e *TTLError) Error() string { return "weir: ttl " + e.Problem }

// ErrBatch is returned for a Batch with an unknown Op or a charge without a
// policy.
var ErrBatch = errors.New("weir: a batch needs a known operation, and every charge a policy")

// ErrReserveOnly is returned by Take, and for DebitEach, under a policy with a
// Concurrency limit: slots are held, not spent, so only Reserve can take them.
var ErrReserveOnly = errors.New("weir: the policy limits concurrency: use Reserve, and Commit or Cancel when done")

// ErrUnknown is part of every error after which a charge may have been made or
// not: the call had been sent, and no answer came. After other errors, nothing was
// charged.
var ErrUnknown = errors.New("weir: the outcome is unknown")

// ErrState is part of every error that says that the stored state of one key cannot be
// read: it is not a limiter's, or of a newer format. Nothing was charged. The
// error is about that key alone; the store works.
var ErrState = errors.New("weir: the stored state of the key cannot be read")

// ErrUnfit is part of every error that says that limits do not fit: the store cannot
// count by such numbers, or a key has more units in use than they can represent.
// Nothing was charged, and the store is well.
var ErrUnfit = errors.New("weir: the limits do not fit")

// ErrReceipts is returned when a reservation is settled or renewed with fewer or
// more receipts or costs than it has charges.
var ErrReceipts = errors.New("weir: a reservation is settled with one receipt and one cost for each charge")
