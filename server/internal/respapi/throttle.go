package respapi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
)

// Throttler decides for CL.THROTTLE. All methods may be called by any number of
// goroutines.
type Throttler interface {
	// ThrottleEach answers each of a client's asks, in their order.
	ThrottleEach(ctx context.Context, client string, asks []Ask)
}

// An Ask is one CL.THROTTLE: Quantity units are charged to Key if they fit Numbers, and
// nothing otherwise. A quantity of 0 only looks, one above Numbers.Burst is refused for ever,
// and others are at most weir.MaxCost. The key is the caller's, who will overwrite it.
type Ask struct {
	Key      []byte
	Numbers  Numbers
	Quantity int64

	// The answer. Numbers that cannot be counted by are a *NumbersError.
	Decision weir.Decision
	Err      error

	rule *rule // of the numbers, and the key's hash, for Table
	hash uint64
}

// Numbers are the limit that comes with a call: Count units per Period seconds, and Burst
// at once, which is max_burst + 1.
type Numbers struct{ Burst, Count, Period int64 }

// NumbersError says why numbers cannot be counted by.
type NumbersError struct{ Problem string }

func (e *NumbersError) Error() string { return e.Problem }

// maxPeriod is the longest period in seconds.
const maxPeriod = algo.MaxPer / int64(time.Second)

// compile returns the rule of the numbers.
func (n Numbers) compile() (*algo.GCRA, error) {
	if n.Period < 1 || n.Period > maxPeriod {
		return nil, &NumbersError{fmt.Sprintf("period must be between 1 and %d seconds", maxPeriod)}
	}
	g, err := algo.NewGCRA(n.Count, n.Period*int64(time.Second), n.Burst, 0, 0)
	if bad, ok := errors.AsType[*algo.ParamError](err); ok {
		name := map[string]string{"rate": "count", "burst": "max_burst + 1"}[bad.Field]
		return nil, &NumbersError{name + " " + bad.Problem}
	}
	return g, err
}
