package hist

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBuckets(t *testing.T) {
	for _, n := range []uint64{0, 1, 7, 8, 9, 15, 16, 17, 1000, 1 << 40, math.MaxInt64} {
		b := bucket(n)
		if end := uint64(last(b)); end < n || end > n+n/8 {
			t.Errorf("%d is in bucket %d, which ends at %d", n, b, end)
		}
		if b > 0 && uint64(last(b-1)) >= n {
			t.Errorf("%d is in bucket %d, and the one before ends at %d", n, b, last(b-1))
		}
	}
}

func TestQuantiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h Histogram
		list := rapid.SliceOfN(rapid.Int64Range(0, 1<<50), 1, 50).Draw(t, "durations")
		for _, n := range list {
			h.Add(time.Duration(n))
		}
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		s, below := h.Snapshot(), 0
		got := s.Quantile(q)
		for _, n := range list {
			if time.Duration(n) <= got {
				below++
			}
		}
		if s.Count != uint64(len(list)) || below < int(q*float64(len(list))) {
			t.Fatalf("%d of %d are at most %v, the quantile %v", below, s.Count, got, q)
		}
		if n := s.AtMost(got); n != uint64(below) {
			t.Fatalf("AtMost(%v) = %d, want %d", got, n, below)
		}
	})
}

func TestEmpty(t *testing.T) {
	var h Histogram
	if s := h.Snapshot(); s.Quantile(0.5) != 0 || s.Mean() != 0 || s.AtMost(time.Hour) != 0 {
		t.Errorf("%v, %v", s.Quantile(0.5), s.Mean())
	}
	h.Add(-1)
	h.Add(2 * time.Second)
	if s := h.Snapshot(); s.Mean() != time.Second || s.AtMost(time.Second) != 1 {
		t.Errorf("%v, %d", s.Mean(), s.AtMost(time.Second))
	}
}
