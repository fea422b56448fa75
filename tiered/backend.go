package tiered

import (
	"context"
	"time"

	"github.com/weirlimit/weir"
)

// What a Config.Store may be able to do besides deciding. Each ability is an interface that
// New looks for; a store without it works, only less well. Whoever wraps a store and passes
// the wrapper to New must forward these methods, or the tier does without them. A declaration
// such as
//
//	var _ tiered.Partitioned = (*Wrapper)(nil)
//
// makes the compiler check that. Package redisstore's Store has all of them.

// Partitioned is a store whose keys lie on several servers that fail independently, such as
// a Redis Cluster. Each partition has its own circuit breaker.
type Partitioned interface {
	// Partitions returns how many partitions there are. It never changes.
	Partitions() int

	// Partition returns the partition of a key, from 0 to Partitions() - 1.
	Partition(p *weir.Policy, key string) int

	// Rounds returns how many round trips, one after the other, Do needs for b. Each of
	// them has Config.Timeout.
	Rounds(b *weir.Batch) int
}

// Timed is a store that ends its calls by itself. If its Timeout is no more than
// Config.Timeout, calls cost no timer here.
type Timed interface{ Timeout() time.Duration }

// Patient is a store that can give more time to calls for which no caller waits, such as
// flushes: if the reply comes too late, units are lost.
type Patient interface {
	Patiently(timeout time.Duration) weir.Limiter
}

// PolicyTracker is a store that knows which limits are in force for a policy, after any node
// has called Set. Without it, a node learns of other nodes' changes only from replies, and its
// fallback keeps the old limits.
type PolicyTracker interface {
	// Current returns the policy in force for callers that bring p; nil if it cannot say.
	Current(ctx context.Context, p *weir.Policy) *weir.Policy

	// Changed tells the store that another node has changed a policy of that name.
	Changed(policy string)
}
