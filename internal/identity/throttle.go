package identity

import (
	"context"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
)

// Throttle makes who failed to prove an identity too often wait: 20 times a minute from
// one address. It is bounded: beyond so many addresses, new ones share.
type Throttle struct {
	table  *memstore.Table
	policy *weir.Policy
}

const (
	failedLogins      = "failed-logins" // what the limit is called
	failuresPerMinute = 20
	failureAddresses  = 10_000
)

// NewThrottle returns a Throttle that nobody has met yet.
func NewThrottle() (*Throttle, error) {
	table, err := memstore.New(memstore.Config{MaxKeys: failureAddresses})
	if err != nil {
		return nil, err
	}
	policy, err := weir.NewPolicy(failedLogins, weir.Limit{Rate: failuresPerMinute, Per: weir.Every(time.Minute)})
	return &Throttle{table: table, policy: policy}, err
}

// Failed notes that somebody at address failed.
func (t *Throttle) Failed(address string) {
	_, _ = t.table.Take(context.Background(), t.policy, address, 1) // memory does not fail
}

// Blocked says whether address has to wait, and for how long, before it may try again.
func (t *Throttle) Blocked(address string) (time.Duration, bool) {
	d, err := weir.Peek(context.Background(), t.table, t.policy, address, 1)
	if err != nil || d.Allowed {
		return 0, false
	}
	return d.RetryAfter, true
}
