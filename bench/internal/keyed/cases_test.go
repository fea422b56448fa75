package keyed

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/store/memstore"
)

var tiny = Sizes{Many: 50, Most: 2500, Vast: 5000, Full: 100}

// TestCases lets two goroutines use each contender briefly. That is what
// harness.Measure does, without its runs to count allocations, which take long
// under the race detector.
func TestCases(t *testing.T) {
	const calls = 1500
	for _, c := range Cases(tiny) {
		t.Run(c.Name, func(t *testing.T) {
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
			want := int64(0)
			if c.Expect == harness.Admit {
				want = 2 * calls
			}
			for _, con := range c.Contenders {
				run, err := con.New()
				if err != nil {
					t.Fatal(con.Name, err)
				}
				var admitted atomic.Int64
				var both sync.WaitGroup
				for range 2 {
					both.Go(func() { admitted.Add(int64(run(calls))) })
				}
				both.Wait()
				if got := admitted.Load(); got != want {
					t.Errorf("%s admitted %d, want %d", con.Name, got, want)
				}
			}
		})
	}
}

// stores returns one of each sort, for up to n keys.
func stores(n int) []store {
	c := memstore.Config{MaxKeys: n}
	return append([]store{weirTake("take", c, 0), weirBatch("batch", c, 3), weirTwo("two", c)}, peers()...)
}

// TestKeysAreKeptApart makes sure that each contender refuses the key whose limit
// is used up, and no other.
func TestKeysAreKeptApart(t *testing.T) {
	const a, b = "user-00000000000000a", "user-00000000000000b"
	for _, st := range stores(10) {
		t.Run(st.name, func(t *testing.T) {
			o, err := st.open(setting{units: 3, per: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range []struct {
				keys string
				want int
			}{
				{a + a, 2},
				{a + b + a + a, 2}, // a's last one and b's first
				{a, 0},
				{b + b + b, 2},
				{b + a + b + a, 0},
			} {
				if got := o.take(step.keys); got != step.want {
					t.Errorf("%s: admitted %d, want %d", step.keys, got, step.want)
				}
			}
		})
	}
}

func TestFillFailsLoudly(t *testing.T) {
	for _, tt := range []struct {
		o    opened
		want string
	}{
		{opened{take: func(string) int { return 1 }}, "admitted 1 of 2"},
		{opened{take: func(string) int { return 2 }, size: func() int { return 1 }}, "1 keys have a place of their own, want 2"},
	} {
		if err := tt.o.fill(2); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("error %v, want %q", err, tt.want)
		}
	}
}

func TestCoresToTry(t *testing.T) {
	for all, want := range map[int][]int{1: {1}, 2: {1}, 3: {1, 2}, 4: {1, 2, 4}, 12: {1, 2, 4, 8}} {
		if got := coresToTry(all); !slices.Equal(got, want) {
			t.Errorf("%d cores: %v, want %v", all, got, want)
		}
	}
}

func TestGoals(t *testing.T) {
	goals := make(map[string]float64)
	for _, c := range Cases(Whole) {
		for _, con := range c.Contenders {
			if con.Goal > 0 {
				goals[c.Name+": "+con.Name] = con.Goal
			}
		}
	}
	want := map[string]float64{
		"1 hot key, 2 goroutines: weir Table.Take":      2,
		"100,000 keys, 2 goroutines: weir Table.Take":   3.5,
		"1,000,000 keys, 2 goroutines: weir Table.Take": 1.9,

		"Take beside reservations: weir Take, 1,000 open":                                besideHolds,
		"Reserve and Settle beside reservations: weir ReserveAll and Settle, 1,000 open": besideHolds,
		"Reserve and Settle beside reservations: weir ReserveAll and Settle, 9,990 open": besideHolds,
	}
	if len(goals) != len(want) {
		t.Errorf("goals %v, want %v", goals, want)
	}
	for name, goal := range want {
		if goals[name] != goal {
			t.Errorf("%s has goal %v, want %v", name, goals[name], goal)
		}
	}
}
