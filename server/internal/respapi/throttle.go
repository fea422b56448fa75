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
	// Throttle charges quantity units to a client's key if they fit n, and nothing
	// otherwise. A quantity of 0 only looks. The key is the caller's, who will
	// overwrite it. Numbers that cannot be counted by are a *NumbersError.
	Throttle(ctx context.Context, client string, key []byte, n Numbers, quantity int64) (weir.Decision, error)
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
