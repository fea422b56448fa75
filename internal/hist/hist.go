// Package hist counts durations in a histogram that many goroutines write to and that can be read
// at any time.
//
//	var h hist.Histogram
//	h.Add(12 * time.Millisecond)
//	h.Snapshot().Quantile(0.99)
//
// Each power of two has eight buckets, so a quantile is at most an eighth too large and never too small.
// A histogram takes 4 KiB. It does not forget.
package hist

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Durations below 8 ns have a bucket each. Above, a bucket is the position of the highest bit and the three
// bits after it.
const (
	fine    = 3
	buckets = (64 - fine) << fine
)

// Histogram counts durations. The zero value is empty.
type Histogram struct {
	counts [buckets]atomic.Uint64
	sum    atomic.Int64 // nanoseconds
}

// Add counts a duration; negative ones count as 0.
func (h *Histogram) Add(d time.Duration) {
	d = max(0, d)
	h.counts[bucket(uint64(d))].Add(1)
	h.sum.Add(int64(d))
}

func bucket(n uint64) int {
	if n < 1<<fine {
		return int(n)
	}
	high := bits.Len64(n) - 1
	return (high-fine+1)<<fine | int(n>>(high-fine))&(1<<fine-1)
}

// last returns the greatest duration of a bucket.
func last(b int) time.Duration {
	if b < 1<<fine {
		return time.Duration(b)
	}
	high := b>>fine + fine - 1
	first := uint64(1<<fine|b&(1<<fine-1)) << (high - fine)
	return time.Duration(first + 1<<(high-fine) - 1)
}

// Snapshot is what a histogram had counted at a moment. Durations that are added meanwhile may be in it or not.
type Snapshot struct {
	Count  uint64
	Sum    time.Duration
	counts [buckets]uint64
}

// Snapshot returns what was counted so far.
func (h *Histogram) Snapshot() *Snapshot {
	s := &Snapshot{Sum: time.Duration(h.sum.Load())}
	for i := range h.counts {
		s.counts[i] = h.counts[i].Load()
		s.Count += s.counts[i]
	}
	return s
}

// Quantile returns a duration that a share q of all durations does not exceed, 0 if there are none.
func (s *Snapshot) Quantile(q float64) time.Duration {
	rank, seen := uint64(q*float64(s.Count)), uint64(0)
	if s.Count == 0 {
		return 0
	}
	rank = min(max(1, rank), s.Count)
	for i, n := range s.counts {
		if seen += n; seen >= rank {
			return last(i)
		}
	}
	return last(buckets - 1)
}

// AtMost returns how many durations do not exceed a limit, as far as the buckets tell: those in its own
// bucket do not count unless the limit is the bucket's end.
func (s *Snapshot) AtMost(limit time.Duration) (n uint64) {
	for i := range s.counts {
		if last(i) > limit {
			break
		}
		n += s.counts[i]
	}
	return n
}

// Mean returns the mean duration, 0 if there are none.
func (s *Snapshot) Mean() time.Duration {
	if s.Count == 0 {
		return 0
	}
	return s.Sum / time.Duration(s.Count)
}
