package measure

import (
	"math"
	"math/bits"
	"time"
)

// coarse is a small histogram for the points of a series. It answers what an
// HdrHistogram with two significant digits would, takes 12 KB instead of 25, and adds
// another one in 7 µs instead of 60. A worker waits while six hundred of them are merged,
// so that makes 4 ms instead of 40.
//
// It counts microseconds. Up to 255 each has its own bucket. Above, each power of two
// has 128: with n bits in the number and s = n - 8, the number's upper 8 bits, of
// which the first is set, choose one of 128, and s the row of 128.
//
//	1000 µs: n = 10, s = 2, 1000 >> 2 = 250, bucket 256 + (2-1)*128 + 250-128 = 506
//
// That bucket is 4 µs wide, from 1000 to 1003: no bucket is wider than 1/128 of what is
// in it.
type coarse struct {
	total  int64
	counts [coarseBuckets]uint32 // each stays at its maximum
}

const (
	fineBuckets   = 256
	rowBuckets    = fineBuckets / 2
	longestBits   = 30 // of longest, in microseconds
	coarseBuckets = fineBuckets + (longestBits-8)*rowBuckets
)

func (c *coarse) add(d time.Duration) {
	c.total++
	n := &c.counts[coarseBucket(micros(d))]
	*n = saturated(uint64(*n) + 1)
}

func (c *coarse) merge(other *coarse) {
	c.total += other.total
	for i := range other.counts {
		if n := other.counts[i]; n != 0 { // few are not
			c.counts[i] = saturated(uint64(c.counts[i]) + uint64(n))
		}
	}
}

// quantile returns the upper end of the bucket in which a percentile is, 0 if there are
// no times.
func (c *coarse) quantile(percent float64) time.Duration {
	rank := max(1, int64(percent/100*float64(c.total)+0.5))
	for i := range c.counts {
		if rank -= int64(c.counts[i]); rank <= 0 {
			return time.Duration(coarseEnd(i)) * time.Microsecond
		}
	}
	return 0
}

// coarseBucket returns the bucket of a number of microseconds, at most longest.
func coarseBucket(us int64) int {
	if us < fineBuckets {
		return int(us)
	}
	s := bits.Len64(uint64(us)) - 8
	return fineBuckets + (s-1)*rowBuckets + int(us>>s) - rowBuckets
}

// coarseEnd returns the greatest number in a bucket.
func coarseEnd(bucket int) int64 {
	if bucket < fineBuckets {
		return int64(bucket)
	}
	s := (bucket-fineBuckets)/rowBuckets + 1
	top := int64((bucket-fineBuckets)%rowBuckets + rowBuckets)
	return (top+1)<<s - 1
}

func saturated(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }
