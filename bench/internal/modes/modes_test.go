package modes

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir/tiered"
)

// tiny makes short runs.
var tiny = Sizes{
	Nodes: []int{1, 2}, Rounds: 1, PerRun: 100 * time.Millisecond,
	Steady: 150 * time.Millisecond, Rush: 20 * time.Millisecond, Rest: 50 * time.Millisecond, Pulse: 10 * time.Millisecond, Pulses: 1,
}

// TestMeasure looks whether the figures can be true, and that no mode breaks its bound.
func TestMeasure(t *testing.T) {
	f, err := Measure(tiny, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Rooms) != 6 || len(f.Attacks) != 6 {
		t.Fatalf("%d and %d figures, want 6 each", len(f.Rooms), len(f.Attacks))
	}
	document(t, f)
	for _, r := range f.Rooms {
		if r.PerSecond <= 0 || r.Least > r.PerSecond || r.Most < r.PerSecond {
			t.Errorf("%v, %d nodes: %.0f decisions per second, from %.0f to %.0f", r.Mode, r.Nodes, r.PerSecond, r.Least, r.Most)
		}
		if exact := r.Mode == tiered.Exact; exact && r.Calls != 1 || !exact && r.Calls > 0.5 {
			t.Errorf("%v, %d nodes: %v calls for a decision", r.Mode, r.Nodes, r.Calls)
		}
	}
	for _, a := range f.Attacks {
		if !a.Holds() || a.Excess < 0 {
			t.Errorf("%v, %d nodes: excess %v, bound %v", a.Mode, a.Nodes, a.Excess, a.Bound)
		}
		if most := 1 + (a.Bound+1)/Burst; a.Used <= 0 || a.Used > most { // how much is used in a short run depends on the machine
			t.Errorf("%v, %d nodes: used %v of what there was", a.Mode, a.Nodes, a.Used)
		}
		if a.Calls < 1 || a.There < 0 {
			t.Errorf("%v, %d nodes: %d calls, Redis worked for %v", a.Mode, a.Nodes, a.Calls, a.There)
		}
		if a.Asked < a.Granted || a.Granted < 1 {
			t.Errorf("%v, %d nodes: %d of %d granted", a.Mode, a.Nodes, a.Granted, a.Asked)
		}
	}
}

// document looks whether the charts are well-formed, and whether figures replace figures.
func document(t *testing.T, f Figures) {
	t.Helper()
	for name, chart := range f.Charts() {
		for d := xml.NewDecoder(bytes.NewReader(chart)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	page := []byte("before " + beginMark + "\nold\n" + endMark + " after")
	var err error
	for range 2 {
		if page, err = f.Rewrite(page); err != nil {
			t.Fatal(err)
		}
	}
	if want := fmt.Sprintf("before %s\n\n%s\n%s after", beginMark, f.Markdown(), endMark); string(page) != want {
		t.Errorf("the page became\n%s", page)
	}
	if _, err := f.Rewrite([]byte(beginMark)); !errors.Is(err, errMarks) {
		t.Errorf("error %v, want %v", err, errMarks)
	}
}

// TestBrokenBoundIsTold makes sure that an excess above the bound is an error.
func TestBrokenBoundIsTold(t *testing.T) {
	for _, tt := range []struct {
		attack Attack
		ok     bool
	}{
		{Attack{Mode: tiered.Exact, Nodes: 4}, true},
		{Attack{Mode: tiered.Exact, Nodes: 4, Excess: 1}, false},
		{Attack{Mode: tiered.Async, Nodes: 4, Excess: 100, Bound: bound(tiered.Async, 4)}, true},
		{Attack{Mode: tiered.Async, Nodes: 4, Excess: 101, Bound: bound(tiered.Async, 4)}, false},
		{Attack{Mode: tiered.Async, Nodes: 1, Excess: 101, Bound: bound(tiered.Async, 1)}, false},
	} {
		if err := (Figures{Attacks: []Attack{tt.attack}}).check(); (err == nil) != tt.ok {
			t.Errorf("%+v: error %v", tt.attack, err)
		}
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0.00", 1: "1", 0.5: "0.50", 0.038: "0.038", 0.0000123: "0.000012"} {
		if got := small(v); got != want {
			t.Errorf("%v is written %s, want %s", v, got, want)
		}
	}
	for v, want := range map[float64]string{1: "1", 0.1: "1 in 10", 1e-6: "1 in 1M"} {
		if got := oneIn(v); got != want {
			t.Errorf("%v is written %s, want %s", v, got, want)
		}
	}
}

func TestExcess(t *testing.T) {
	at := func(ms ...int) (list []grant) {
		for i := 0; i < len(ms); i += 2 {
			list = append(list, grant{time.Duration(ms[i]) * time.Millisecond, time.Duration(ms[i+1]) * time.Millisecond})
		}
		return list
	}
	for _, tt := range []struct {
		name   string
		grants []grant
		want   float64 // with burst 2, rate 100
	}{
		{"none", nil, -2},
		{"a burst at once", at(0, 0, 0, 0), 0},
		{"one too many", at(0, 0, 0, 0, 0, 0), 1},
		{"the third may have been 10 ms later", at(0, 0, 0, 0, 0, 10), 0},
		{"the third 5 ms too early", at(0, 0, 0, 0, 5, 5), 0.5},
		{"the first may have been earlier", at(0, 20, 20, 20, 20, 20), 0},
		{"the worst is in the middle", at(0, 0, 100, 100, 100, 100, 100, 100, 100, 100, 500, 500), 2},
	} {
		if got := excess(tt.grants, 2, 100); got < tt.want-1e-9 || got > tt.want+1e-9 {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestExcessOfAllIntervals compares with a count in every interval.
func TestExcessOfAllIntervals(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var grants []grant
		for range 1 + random.IntN(30) {
			called := time.Duration(random.IntN(1000)) * time.Millisecond
			grants = append(grants, grant{called, called + time.Duration(random.IntN(50))*time.Millisecond})
		}
		want := -5.0
		for _, from := range grants {
			for _, to := range grants {
				n := 0.0
				for _, g := range grants {
					if g.called >= from.called && g.returned <= to.returned {
						n++
					}
				}
				if n > 0 {
					want = max(want, n-5-20*(to.returned-from.called).Seconds())
				}
			}
		}
		if got := excess(grants, 5, 20); got < want-1e-9 || got > want+1e-9 {
			t.Fatalf("%v: %v, want %v", grants, got, want)
		}
	}
}
