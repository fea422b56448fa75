package algo

import "fmt"

// A ParamError names the number that a rule cannot be built from, and says
// what would fit.
type ParamError struct {
	Field   string // "rate", "per", "burst", "max_debt", "initial", "zone", "algorithm" or "used"
	Value   any    // as given, for example 0 or "month"
	Problem string // for example "must be at least 1"
}

func (e *ParamError) Error() string {
	return fmt.Sprintf("%s %v: %s", e.Field, e.Value, e.Problem)
}

func badParam(field string, value any, format string, args ...any) *ParamError {
	return &ParamError{Field: field, Value: value, Problem: fmt.Sprintf(format, args...)}
}

// checkCount refuses what cannot be a number of units.
func checkCount(field string, n int64) error {
	if n < 1 || n > MaxRate {
		return badParam(field, n, "must be between 1 and %d", MaxRate)
	}
	return nil
}

// checkPer refuses what cannot be a period in nanoseconds.
func checkPer(per int64) error {
	if per < 1 || per > MaxPer {
		return badParam("per", per, "must be between 1 ns and 40 years (%d ns)", MaxPer)
	}
	return nil
}

// Fill is how full a rule starts, as the share that is missing in millionths:
// 0 is full (the default), 1,000,000 empty.
type Fill uint32

// FillSteps is the number of steps from full to empty.
const FillSteps = 1_000_000

func checkFill(f Fill) error {
	if f > FillSteps {
		return badParam("initial", uint32(f), "more than all of it would be missing; at most %d millionths fit", FillSteps)
	}
	return nil
}
