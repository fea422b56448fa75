package harness_test

import (
	"errors"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
)

var tiny = harness.Settings{Rounds: 3, PerRun: 200 * time.Microsecond}

// counter admits everything, or nothing.
func counter(admits bool) func() (harness.Run, error) {
	return func() (harness.Run, error) {
		var calls atomic.Int64
		return func(n int) (admitted int) {
			for range n {
				calls.Add(1)
				if admits {
					admitted++
				}
			}
			return admitted
		}, nil
	}
}

func TestMeasure(t *testing.T) {
	c := harness.Case{
		Name: "count", Goroutines: 4, Expect: harness.Admit, Against: "b",
		Contenders: []harness.Contender{
			{Name: "a", New: counter(true)},
			{Name: "b", Kind: harness.Peer, New: counter(true)},
			{Name: "floor", Kind: harness.Floor, New: counter(false)}, // answers nothing, and need not
		},
	}
	var steps []string
	res, err := harness.Measure(c, tiny, func(step string) { steps = append(steps, step) })
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"preparing a", "preparing b", "preparing floor", "round 1 of 3", "round 2 of 3", "round 3 of 3"}
	if !slices.Equal(steps, want) {
		t.Errorf("progress reported %q, want %q", steps, want)
	}
	if len(res.Measurements) != 3 {
		t.Fatalf("%d measurements, want one per contender", len(res.Measurements))
	}
	for i, m := range res.Measurements {
		if m.Best <= 0 || m.Median < m.Best || m.Allocs != 0 {
			t.Errorf("%s: %+v", c.Contenders[i].Name, m)
		}
	}
}

func TestMeasureTakesTurns(t *testing.T) {
	var order []string
	note := func(name string) func() (harness.Run, error) {
		return func() (harness.Run, error) {
			order = append(order, name)
			return func(n int) int { time.Sleep(time.Millisecond); return n }, nil
		}
	}
	c := harness.Case{Name: "turns", Goroutines: 1, Against: "a", Contenders: []harness.Contender{
		{Name: "a", New: note("a")}, {Name: "b", New: note("b")}, {Name: "c", New: note("c")},
	}}
	if _, err := harness.Measure(c, tiny, nil); err != nil {
		t.Fatal(err)
	}
	// Allocations and one calibrating run each, then the rounds.
	if got, want := strings.Join(order, ""), "aabbcc"+"abc"+"bca"+"cab"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
}

// TestMeasureReuses makes sure that the runs of a contender share one limiter,
// and that nothing is collected while the rounds last.
func TestMeasureReuses(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	made, rounds := 0, false
	collections := make(map[uint32]bool) // their numbers, during the rounds
	c := harness.Case{Name: "reuse", Goroutines: 1, Reuse: true, Against: "a", Contenders: []harness.Contender{{
		Name: "a",
		New: func() (harness.Run, error) {
			made++
			return func(n int) int {
				garbage = make([]byte, 4<<20)
				if rounds {
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					collections[m.NumGC] = true
				}
				return n
			}, nil
		},
	}}}
	long := harness.Settings{Rounds: 3, PerRun: time.Millisecond}
	_, err := harness.Measure(c, long, func(step string) { rounds = strings.HasPrefix(step, "round") })
	if err != nil {
		t.Fatal(err)
	}
	if made != 1 {
		t.Errorf("%d limiters were made, want 1", made)
	}
	if len(collections) != 1 {
		t.Errorf("collections during the rounds: %v, want always the same number", collections)
	}
	if percent := debug.SetGCPercent(100); percent != 100 {
		t.Errorf("the collector is left at %d %%", percent)
	}
}

var garbage []byte

func TestMeasureSetsProcs(t *testing.T) {
	procs, before := 0, runtime.GOMAXPROCS(0)
	c := harness.Case{Name: "procs", Goroutines: 1, Procs: before + 1, Against: "a", Contenders: []harness.Contender{{
		Name: "a",
		New: func() (harness.Run, error) {
			procs = runtime.GOMAXPROCS(0)
			return func(n int) int { return n }, nil
		},
	}}}
	if _, err := harness.Measure(c, tiny, nil); err != nil {
		t.Fatal(err)
	}
	if after := runtime.GOMAXPROCS(0); procs != before+1 || after != before {
		t.Errorf("%d processors before, %d during, %d after", before, procs, after)
	}
}

func TestMeasureCountsAllocations(t *testing.T) {
	var sink *int
	c := harness.Case{Name: "allocate", Goroutines: 1, Against: "a", Contenders: []harness.Contender{{
		Name: "a",
		New: func() (harness.Run, error) {
			return func(n int) int {
				for i := range n {
					if i%2 == 0 {
						sink = new(int)
					}
				}
				return n
			}, nil
		},
	}}}
	res, err := harness.Measure(c, tiny, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := res.Measurements[0].Allocs; got != 0.5 {
		t.Errorf("%v allocations per call, want 0.5", got)
	}
	_ = sink
}

func TestMeasureFailsLoudly(t *testing.T) {
	broken := func() (harness.Run, error) { return nil, errors.New("no such limit") }
	a := func(f func() (harness.Run, error)) []harness.Contender {
		return []harness.Contender{{Name: "a", New: f}}
	}
	for _, tt := range []struct {
		name string
		c    harness.Case
		want string
	}{
		{"refused", harness.Case{Goroutines: 2, Against: "a", Expect: harness.Admit, Contenders: a(counter(false))}, "should have admitted all"},
		{"admitted", harness.Case{Goroutines: 2, Against: "a", Expect: harness.Refusal, Contenders: a(counter(true))}, "should have refused all"},
		{"broken", harness.Case{Goroutines: 1, Against: "a", Contenders: a(broken)}, "no such limit"},
		{"nobody", harness.Case{Goroutines: 0, Against: "b", Contenders: a(counter(true))}, `no contender is called "b"`},
		{"goroutines", harness.Case{Goroutines: 0, Against: "a", Contenders: a(counter(true))}, "at least 1"},
		{"peerless", harness.Case{Goroutines: 1, Against: harness.BestPeer, Contenders: a(counter(true))}, "no contender is a peer"},
		{"twins", harness.Case{Goroutines: 1, Against: "a", Contenders: slices.Repeat(a(counter(true)), 2)}, "two contenders"},
		{"goals", harness.Case{Goroutines: 1, Against: "a", Contenders: []harness.Contender{{Name: "a", Goal: 2, AtMost: 15}}}, "two goals"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.c.Name = tt.name
			_, err := harness.Measure(tt.c, tiny, nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.name) {
				t.Errorf("error %v, want one with %q and the case's name", err, tt.want)
			}
		})
	}
}

func TestBusyTime(t *testing.T) {
	stat := "cpu  100 5 20 9000 77 3 2 10 4 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
	if got, ok := harness.BusyTime(stat); !ok || got != 1400*time.Millisecond {
		t.Errorf("%v, %v; want 1.4s: 100+5+20+3+2+10 ticks", got, ok)
	}
	for _, bad := range []string{"", "cpu 1 2", "intr 1 2 3 4 5 6 7 8 9", "cpu a b c d e f g h i"} {
		if _, ok := harness.BusyTime(bad); ok {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestCPUTime(t *testing.T) {
	before, err := harness.CPUTime()
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < 20*time.Millisecond; {
		runtime.Gosched()
	}
	after, err := harness.CPUTime()
	if err != nil || after <= before {
		t.Errorf("%v before work and %v after it, error %v", before, after, err)
	}
}

func TestRatio(t *testing.T) {
	r := harness.Result{
		Case: harness.Case{Goroutines: 1, Against: "b", Contenders: []harness.Contender{{Name: "a"}, {Name: "b"}}},
		Measurements: []harness.Measurement{
			{Best: 10, Median: 20, Runs: []float64{20, 10, 40}},
			{Best: 30, Median: 90, Runs: []float64{90, 30, 160}},
		},
	}
	if r.Figure(0) != 10 || r.Ratio(0) != 3 {
		t.Errorf("one goroutine: figure %v, ratio %v; want the best, 10 and 3", r.Figure(0), r.Ratio(0))
	}
	r.Case.Goroutines = 2
	if r.Figure(0) != 20 || r.Ratio(0) != 4 {
		t.Errorf("two: figure %v, ratio %v; want medians, 20 and of 4.5, 3 and 4", r.Figure(0), r.Ratio(0))
	}
}

func TestAgainstBestPeer(t *testing.T) {
	r := harness.Result{
		Case: harness.Case{Goroutines: 2, Against: harness.BestPeer, Contenders: []harness.Contender{
			{Name: "weir"},
			{Name: "slow", Kind: harness.Peer},
			{Name: "fast", Kind: harness.Peer},
			{Name: "shares keys", Kind: harness.Aside},
			{Name: "clock", Kind: harness.Floor},
		}},
		Measurements: []harness.Measurement{
			{Best: 10, Median: 10, Runs: []float64{10, 10, 10}},
			{Best: 1, Median: 60, Runs: []float64{60, 1, 60}}, // lucky once
			{Best: 20, Median: 40, Runs: []float64{20, 40, 50}},
			{Best: 5, Median: 5, Runs: []float64{5, 5, 5}},
			{Best: 2, Median: 2, Runs: []float64{2, 2, 2}},
		},
	}
	if r.Against() != 2 || r.Ratio(0) != 4 || r.Ratio(2) != 1 {
		t.Errorf("against %d, ratios %v and %v; want 2, 4 and 1", r.Against(), r.Ratio(0), r.Ratio(2))
	}
}
