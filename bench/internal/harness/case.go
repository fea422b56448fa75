package harness

import (
	"errors"
	"fmt"
	"slices"
)

// Case is one measurement of several contenders, side by side.
type Case struct {
	// Name tells the case apart, for example "allow, 32 goroutines".
	Name string

	// Note says what a reader must know to judge the figures. It may be empty.
	Note string

	// Goroutines is how many call the same limiter at once.
	Goroutines int

	// Procs is GOMAXPROCS while the case is measured. 0 leaves it as it is.
	Procs int

	// Reuse says that one limiter of each contender serves all its runs,
	// because it is dear to make. That is sound if a call costs the same
	// whatever came before. The collector is then off during the runs: with
	// all those limiters alive it would take longer than a run, and each
	// contender would pay for the others' pointers.
	Reuse bool

	// Expect is what every call must answer.
	Expect Expect

	// Against names the contender that ratios are taken against, or is
	// BestPeer.
	Against string

	// NoChart leaves the case out of the chart.
	NoChart bool

	// Contenders are measured in turns.
	Contenders []Contender
}

// BestPeer as Case.Against takes ratios against the peer with the least figure
// in that measurement.
const BestPeer = "the best peer"

// Contender is one way to answer a case.
type Contender struct {
	// Name is how tables call it, for example "x/time/rate".
	Name string

	// Kind says whose it is.
	Kind Kind

	// Module is the path of a peer's module, whose version is reported.
	Module string

	// Goal is the least ratio that is good, for example 2.5: two and a half
	// times as fast as Case.Against. 0 means that the figure only informs.
	Goal float64

	// AtMost is a goal in nanoseconds per call instead, for example 15. 0 means
	// that there is none.
	AtMost float64

	// New makes a limiter in its initial state and returns the loop over it.
	// Each run has its own, unless Case.Reuse.
	New func() (Run, error)
}

// Run makes n calls in a tight loop and returns how many were admitted. The loop
// is the contender's own, so that the call in it is direct and costs every
// contender the same overhead. Runs of several goroutines share the limiter.
type Run func(n int) (admitted int)

// Kind says whose a contender is.
type Kind int

// The kinds of contenders.
const (
	Weir  Kind = iota // ours; each makes a row of its own
	Peer              // another library
	Aside             // another library that promises less, such as one in which keys share a bucket; it only informs
	Floor             // what any answer costs at least, such as reading the clock
)

// Expect is what every call of a case must answer. A contender that answers
// otherwise measured something else, and the run fails.
type Expect int

// The expectations.
const (
	Mixed   Expect = iota // either answer; not checked
	Admit                 // every call is admitted
	Refusal               // every call is refused
)

func (e Expect) check(admitted, calls int) error {
	switch {
	case e == Admit && admitted != calls:
		return fmt.Errorf("admitted %d of %d calls, and should have admitted all", admitted, calls)
	case e == Refusal && admitted != 0:
		return fmt.Errorf("admitted %d of %d calls, and should have refused all", admitted, calls)
	}
	return nil
}

// Validate reports what is wrong with the case.
func (c Case) Validate() error {
	var errs []error
	if c.Goroutines < 1 {
		errs = append(errs, fmt.Errorf("goroutines is %d, and must be at least 1", c.Goroutines))
	}
	names := make(map[string]bool)
	for _, con := range c.Contenders {
		if names[con.Name] {
			errs = append(errs, fmt.Errorf("two contenders are called %q", con.Name))
		}
		names[con.Name] = true
		if con.Goal != 0 && con.AtMost != 0 {
			errs = append(errs, fmt.Errorf("%q has two goals, a ratio and a time", con.Name))
		}
	}
	switch {
	case c.Against == BestPeer:
		if !slices.ContainsFunc(c.Contenders, func(con Contender) bool { return con.Kind == Peer }) {
			errs = append(errs, errors.New("no contender is a peer, the best of which ratios are against"))
		}
	case !names[c.Against]:
		errs = append(errs, fmt.Errorf("no contender is called %q, which ratios are against", c.Against))
	}
	if len(errs) > 0 {
		return fmt.Errorf("case %q: %w", c.Name, errors.Join(errs...))
	}
	return nil
}
