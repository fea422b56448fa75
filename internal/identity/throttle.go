package identity

import (
	"context"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
)

// Throttle limits failed authentications to 20 per minute and address. Its memory is bounded:
// beyond 10,000 addresses, new ones share a counter.
type Throttle struct {
	table  *memstore.Table
	policy *weir.Policy
}

const (
	failedLogins      = "failed-logins" // the name of the policy
	failuresPerMinute = 20
	failureAddresses  = 10_000
)

// NewThrottle returns a Throttle without failures.
func NewThrottle() (*Throttle, error) {
	table, err := memstore.New(memstore.Config{MaxKeys: failureAddresses})
	if err != nil {
		return nil, err
	}
	policy, err := weir.NewPolicy(failedLogins, weir.Limit{Rate: failuresPerMinute, Per: weir.Every(time.Minute)})
	return &Throttle{table: table, policy: policy}, err
}

// Failed records a failed authentication from address.
func (t *Throttle) Failed(address string) {
	_, _ = t.table.Take(context.Background(), t.policy, address, 1) // a memstore.Table does not fail
}

// Blocked reports whether address is throttled, and how long it has to wait until it may try
// again.
func (t *Throttle) Blocked(address string) (time.Duration, bool) {
	d, err := weir.Peek(context.Background(), t.table, t.policy, address, 1)
	if err != nil || d.Allowed {
		return 0, false
	}
	return d.RetryAfter, true
}
