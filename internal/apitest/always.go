package apitest

import (
	"context"

	"github.com/weirlimit/weir"
)

// Always is a limiter whose Take returns the same decision for every charge. Its other methods
// must not be called.
type Always struct {
	weir.Limiter // nil
	Decision     weir.Decision
}

// Take returns the decision.
func (a Always) Take(context.Context, *weir.Policy, string, int64) (weir.Decision, error) {
	return a.Decision, nil
}
