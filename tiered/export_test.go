package tiered

import (
	"time"

	"github.com/weirlimit/weir"
)

// BlockSize is blockSize.
var BlockSize = blockSize

// AdmissionSketch is admissionSketch.
type AdmissionSketch = admissionSketch

// Observe is observe.
func (s *admissionSketch) Observe(hash uint64, now weir.Instant, ttl time.Duration) (int, weir.Instant) {
	return s.observe(hash, now, ttl)
}
