package tiered

import (
	"time"

	"github.com/weirlimit/weir"
)

// BlockSize is blockSize.
var BlockSize = blockSize

// Crowd is crowd.
type Crowd = crowd

// Came is came.
func (c *crowd) Came(hash uint64, now weir.Instant, ttl time.Duration) (int, weir.Instant) {
	return c.came(hash, now, ttl)
}
