package main

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestWindow(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	type step struct {
		at              time.Duration
		units           int64
		bucket, rolling time.Duration // how long each reading wants to wait
	}
	tests := map[string][]step{
		"a burst, then nothing for 10 s, although the bucket has refilled": {
			{0, 5000, 0, 0},
			{0, 1, 2 * ms, 10 * s},
			{5 * s, 2500, 0, 5 * s},
			{5 * s, 2501, 2 * ms, 5 * s},
			{10*s - 1, 1, 0, 1},
			{10 * s, 5000, 0, 0},
			{10 * s, 1, 2 * ms, 10 * s},
		},
		"an even rate is never refused": {
			{0, 500, 0, 0},
			{s, 500, 0, 0},
			{2 * s, 500, 0, 0},
			{3 * s, 500, 0, 0},
			{4 * s, 500, 0, 0},
			{5 * s, 500, 0, 0},
			{6 * s, 500, 0, 0},
			{7 * s, 500, 0, 0},
			{8 * s, 500, 0, 0},
			{9 * s, 500, 0, 0},
			{10 * s, 500, 0, 0},
			{11 * s, 500, 0, 0},
		},
		"a large call waits for several entries, a small one for the first": {
			{0, 1000, 0, 0},
			{1 * s, 2000, 0, 0},
			{2 * s, 2000, 0, 0},
			{2 * s, 1, 0, 8 * s},
			{2 * s, 1000, 0, 8 * s},
			{2 * s, 1001, 2 * ms, 9 * s},
			{2 * s, 5000, 8 * s, 10 * s},
		},
		"refused and free calls are not counted": {
			{0, 4999, 0, 0}, {0, 2, 2 * ms, 10 * s}, {0, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 0, 0},
		},
		"time that goes back stands still": {
			{10 * s, 5000, 0, 0}, {0, 1, 2 * ms, 10 * s}, {20*s - 1, 1, 0, 1}, {20 * s, 1, 0, 0},
		},
		"a long pause gives one burst": {
			{0, 5000, 0, 0}, {time.Hour, 5000, 0, 0}, {time.Hour, 1, 2 * ms, 10 * s},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			var w window
			for i, step := range steps {
				w.advance(step.at)
				if bucket, rolling := w.bucketWait(step.units), w.rollingWait(step.units); bucket != step.bucket || rolling != step.rolling {
					t.Fatalf("step %d: %d units at %v wait %v and %v, want %+v", i, step.units, step.at, bucket, rolling, step)
				}
				if got, want := w.take(step.at, step.units), max(step.bucket, step.rolling); got != want {
					t.Fatalf("step %d: take = %v, want %v", i, got, want)
				}
			}
		})
	}
}

// TestWindowRandomly compares the sums of random calls with both readings, computed from a list of
// everything that was admitted. The wait after a refusal is exact.
func TestWindowRandomly(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var w window
	var admitted []entry
	now, level, last := time.Duration(0), int64(capacity*perUnit), time.Duration(0)
	for range 20_000 {
		now += time.Duration(random.Int64N(int64(200 * time.Millisecond)))
		units := 1 + random.Int64N(300)
		sum := units
		for _, e := range admitted {
			if e.at > now-span {
				sum += e.units
			}
		}
		level, last = min(level+int64(now-last), int64(span)), now
		want := sum <= capacity && level >= units*int64(perUnit)
		wait := w.take(now, units)
		if (wait == 0) != want {
			t.Fatalf("%d units at %v wait %v; %d would be in the window, %d ns in the bucket", units, now, wait, sum, level)
		}
		if wait == 0 {
			admitted = append(admitted, entry{now, units})
			admitted = admitted[max(0, len(admitted)-capacity):]
			level -= units * int64(perUnit)
			continue
		}
		early, onTime := w, w
		early.log, onTime.log = append([]entry{}, w.log...), append([]entry{}, w.log...)
		if early.take(now+wait-1, units) == 0 || onTime.take(now+wait, units) != 0 {
			t.Fatalf("a wait of %v is not the shortest", wait)
		}
	}
	if w.peak <= capacity-300 || w.peak > capacity { // a call has at most 300 units
		t.Errorf("the peak is %d", w.peak)
	}
}
