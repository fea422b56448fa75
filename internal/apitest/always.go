package apitest

import (
	"context"

	"github.com/weirlimit/weir"
)

// Always is a limiter that decides each charge of Take the same. Its other methods are not
// to be called.
type Always struct {
	weir.Limiter // nil
	Decision     weir.Decision
}

// Take returns the decision.
func (a Always) Take(context.Context, *weir.Policy, string, int64) (weir.Decision, error) {
	return a.Decision, nil
}
