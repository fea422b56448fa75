package respapi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
)

// Throttler makes the decisions of CL.THROTTLE. All methods may be called by any number of
// goroutines.
type Throttler interface {
	// ThrottleEach decides each of a client's requests, in their order.
	ThrottleEach(ctx context.Context, client string, requests []ThrottleRequest)
}

// A ThrottleRequest is one CL.THROTTLE: Quantity units are charged to Key if they fit Params, and
// nothing otherwise. A quantity of 0 charges nothing, one above Params.Burst is always refused,
// and others are at most weir.MaxCost. Key must not be retained: the caller reuses its memory.
type ThrottleRequest struct {
	Key      []byte
	Params   Params
	Quantity int64

	// The result. Err is a *ParamsError for invalid limit parameters.
	Decision weir.Decision
	Err      error

	rule *rule // the compiled Params and the key's hash, for Table
	hash uint64
}

// Params are the limit parameters of a call: Count units per Period seconds, and a Burst of
// max_burst + 1 units.
type Params struct{ Burst, Count, Period int64 }

// ParamsError says why limit parameters are invalid.
type ParamsError struct{ Problem string }

func (e *ParamsError) Error() string { return e.Problem }

// maxPeriod is the longest period in seconds.
const maxPeriod = algo.MaxPer / int64(time.Second)

// compile returns the GCRA of the parameters.
func (n Params) compile() (*algo.GCRA, error) {
	if n.Period < 1 || n.Period > maxPeriod {
		return nil, &ParamsError{fmt.Sprintf("period must be between 1 and %d seconds", maxPeriod)}
	}
	g, err := algo.NewGCRA(n.Count, n.Period*int64(time.Second), n.Burst, 0, 0)
	if bad, ok := errors.AsType[*algo.ParamError](err); ok {
		name := map[string]string{"rate": "count", "burst": "max_burst + 1"}[bad.Field]
		return nil, &ParamsError{name + " " + bad.Problem}
	}
	return g, err
}
