package pacing

import (
	"errors"
	"testing"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
)

func allWaiters() []waiter {
	return append([]waiter{weirPacer(weirName, false), weirPacer(weirName+", smooth", true)}, peers()...)
}

// TestEverybodyPaces makes sure that a waiter waits: weir grants what the time is
// worth and one more. Peers may grant some more, but not as many as there are
// calls. How much less they grant is what is measured.
func TestEverybodyPaces(t *testing.T) {
	const perSecond, d = 1000, 50 * time.Millisecond
	const worth = 50 // starts
	for _, w := range allWaiters() {
		most := float64(worth + 1)
		if w.kind != harness.Weir {
			most = 2 * worth
		}
		for _, goroutines := range []int{1, 8} {
			t.Run(w.name+", "+harness.Goroutines(goroutines), func(t *testing.T) {
				share, cores, err := achieved(w, perSecond, goroutines, d)
				if err != nil {
					t.Fatal(err)
				}
				if starts := share * worth; starts < 1 || starts > most+0.001 {
					t.Errorf("%v starts, want 1 to %v", starts, most)
				}
				if cores < 0 {
					t.Errorf("%v cores were busy", cores)
				}
			})
		}
	}
}

// TestSurveys runs every survey briefly and checks that the answers can be
// true. x/time/rate is known to grant several times its rate if that is high.
func TestSurveys(t *testing.T) {
	surveys := Surveys(20 * time.Millisecond)
	surveys[len(surveys)-1] = smooth(10_000, 300*time.Millisecond) // needs a gap, also where the first start is late
	for _, s := range surveys {
		t.Run(s.Name, func(t *testing.T) {
			a, err := harness.Ask(s, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, sub := range s.Subjects {
				for k, f := range s.Figures {
					v := a.Values[i][k]
					if v < 0 || f.Name == Achieved && v > 20 || f.Unit == "µs" && v > 1e6 {
						t.Errorf("%s, %s: %v %s", sub.Name, f.Name, v, f.Unit)
					}
				}
			}
		})
	}
}

// TestGapErrors knows the gaps: a waiter that sleeps is late, never early.
func TestGapErrors(t *testing.T) {
	sleeper := waiter{name: "sleeper", open: func(int) (func() error, error) {
		return func() error { time.Sleep(3 * time.Millisecond); return nil }, nil
	}}
	off, _, err := gapErrors(sleeper, 1000, 300*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if len(off) < 1 || len(off) > 100 || off[0] < 2*time.Millisecond {
		t.Errorf("errors %v of gaps that are 3 ms or more and should be 1 ms", off)
	}
}

func TestErrorsAreTold(t *testing.T) {
	broken := errors.New("broken")
	for _, w := range []waiter{
		{name: "at once", open: func(int) (func() error, error) { return nil, broken }},
		{name: "at a start", open: func(int) (func() error, error) { return func() error { return broken }, nil }},
	} {
		if _, _, err := achieved(w, 1, 2, time.Hour); !errors.Is(err, broken) {
			t.Errorf("%s: achieved returns %v", w.name, err)
		}
		if _, _, err := gapErrors(w, 1, time.Hour); !errors.Is(err, broken) {
			t.Errorf("%s: gapErrors returns %v", w.name, err)
		}
	}
	instant := waiter{open: func(int) (func() error, error) { return func() error { return nil }, nil }}
	if _, _, err := gapErrors(instant, 1, 0); err == nil {
		t.Error("no error although there was no gap")
	}
}

// TestBoundsDependOnTheLength: a brief run cannot tell one in a thousand.
func TestBoundsDependOnTheLength(t *testing.T) {
	for d, want := range map[time.Duration][2]float64{Whole: {0.999, 1.0005}, Quick: {0.95, 1.01}} {
		for _, s := range Surveys(d) {
			f := s.Figures[0]
			if f.Name == Achieved && [2]float64{f.AtLeast, f.AtMost} != want {
				t.Errorf("%s, %v: %v to %v, want %v", s.Name, d, f.AtLeast, f.AtMost, want)
			}
		}
	}
}

// TestGoalsAreForOne makes sure that of two pacers only the smooth one is judged.
func TestGoalsAreForOne(t *testing.T) {
	judged := 0
	for _, sub := range smooth(10_000, Quick).Subjects {
		if sub.Kind == harness.Weir && !sub.NoGoal {
			judged++
		}
	}
	if judged != 1 {
		t.Errorf("%d pacers are judged, want 1", judged)
	}
}
