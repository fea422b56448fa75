package measure

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// It is an HdrHistogram with two digits, in everything that it can do.
func TestCoarseIsLikeHdr(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	model := hdrhistogram.New(1, longest.Microseconds(), 2)
	parts := [3]coarse{}
	var all coarse
	for i := range 5000 {
		d := time.Duration(math.Exp(rnd.Float64() * math.Log(float64(longest)))) // every order of magnitude
		parts[i%3].add(d)
		_ = model.RecordValue(micros(d))
	}
	for i := range parts {
		all.merge(&parts[i])
	}
	for percent := 0.5; percent <= 100; percent += 0.5 {
		if got, want := all.quantile(percent).Microseconds(), model.ValueAtQuantile(percent); got != want {
			t.Errorf("p%v = %d µs, HdrHistogram says %d µs", percent, got, want)
		}
	}
	if all.total != 5000 {
		t.Errorf("%d times, want 5000", all.total)
	}
}

// The buckets follow each other without a gap, up to the longest time.
func TestCoarseBuckets(t *testing.T) {
	next := int64(0)
	for b := range coarseBuckets {
		if got := coarseBucket(next); got != b {
			t.Fatalf("%d µs is in bucket %d, want %d", next, got, b)
		}
		if got := coarseBucket(coarseEnd(b)); got != b {
			t.Fatalf("%d µs is in bucket %d, want %d", coarseEnd(b), got, b)
		}
		next = coarseEnd(b) + 1
	}
	if next <= longest.Microseconds() {
		t.Errorf("the buckets end at %d µs", next)
	}
}

func TestCoarseEdges(t *testing.T) {
	var c coarse
	if d := c.quantile(99); d != 0 {
		t.Errorf("p99 of nothing = %v", d)
	}
	c.add(24 * time.Hour) // counts as longest
	if d := c.quantile(0); d < longest || d > longest+longest/128 {
		t.Errorf("p0 = %v", d)
	}
	c.counts[7] = math.MaxUint32
	c.add(7 * time.Microsecond)
	c.merge(&c)
	if n := c.counts[7]; n != math.MaxUint32 {
		t.Errorf("a full bucket has %d", n)
	}
}
