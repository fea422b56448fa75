package tiered

import (
	"context"
	"time"

	"github.com/weirlimit/weir"
)

// The optional interfaces of a Config.Store. New checks for each of them; a store without one
// works, but less well. A wrapper around a store must forward these methods, or the tier does
// not use them. A declaration such as
//
//	var _ tiered.Partitioned = (*Wrapper)(nil)
//
// makes the compiler check that. A redisstore.Store implements all of them.

// Partitioned is a store whose keys lie on several servers that fail independently, such as
// a Redis Cluster. Each partition has its own circuit breaker.
type Partitioned interface {
	// Partitions returns the number of partitions. It never changes.
	Partitions() int

	// Partition returns the partition of a key, from 0 to Partitions() - 1.
	Partition(p *weir.Policy, key string) int

	// Rounds returns the number of consecutive round trips that Do needs for b. Each of
	// them has Config.Timeout.
	Rounds(b *weir.Batch) int
}

// Timed is a store with a timeout of its own. If that is no more than Config.Timeout, the
// tier needs no timer for its calls.
type Timed interface{ Timeout() time.Duration }

// TimeoutSetter is a store that can allow a longer timeout for calls that no caller waits for, such
// as flushes, whose units would be lost if the reply came too late.
type TimeoutSetter interface {
	WithTimeout(timeout time.Duration) weir.Limiter
}

// PolicyTracker is a store that knows which limits are in force for a policy after a node has
// called Set. Without it, a node notices the changes of other nodes only in replies, and its
// shares keep the old limits.
type PolicyTracker interface {
	// Current returns the policy in force for callers that pass p; nil if it is unknown.
	Current(ctx context.Context, p *weir.Policy) *weir.Policy

	// Changed notifies the store that another node has changed a policy of that name.
	Changed(policy string)
}
