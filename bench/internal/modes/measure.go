package modes

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir/bench/internal/redisserver"
	"github.com/weirlimit/weir/bench/internal/report"
)

// Sizes say how much is measured.
type Sizes struct {
	Nodes []int // how many there are, in turns

	Rounds int // with room
	PerRun time.Duration

	Steady, Rush, Rest, Pulse time.Duration // of an attack; see schedule
	Pulses                    int
}

// The sizes to measure with: about two minutes, and half of one.
var (
	Whole = Sizes{
		Nodes: []int{1, 2, 3, 4}, Rounds: 5, PerRun: 400 * time.Millisecond,
		Steady: 2 * time.Second, Rush: 300 * time.Millisecond, Rest: 1100 * time.Millisecond, Pulse: 30 * time.Millisecond, Pulses: 6,
	}
	Quick = Sizes{
		Nodes: []int{1, 2, 3, 4}, Rounds: 2, PerRun: 200 * time.Millisecond,
		Steady: time.Second, Rush: 200 * time.Millisecond, Rest: 500 * time.Millisecond, Pulse: 30 * time.Millisecond, Pulses: 3,
	}
)

// Figures are what was measured, and where.
type Figures struct {
	Sizes   Sizes
	Machine report.Machine
	Redis   string // for example "redis-server 7.0.15"
	Date    time.Time

	Rooms     []Room
	Disturbed int // runs of Rooms that counted although others had the cores
	Attacks   []Attack
}

// Measure measures everything on a server of its own. It calls progress before each
// step. An error means that a bound was broken or that Redis did not answer in time, and
// is harness.Missing if the machine has none.
func Measure(s Sizes, progress func(step string)) (f Figures, err error) {
	srv, err := redisserver.Start()
	if err != nil {
		return Figures{}, err
	}
	defer srv.Stop()
	f = Figures{Sizes: s, Machine: report.ThisMachine(), Redis: redisserver.Version(), Date: time.Now()}
	if f.Rooms, f.Disturbed, err = measureRoom(srv, s, progress); err != nil {
		return f, err
	}
	if f.Attacks, err = measureAttacks(srv, s, progress); err != nil {
		return f, err
	}
	return f, f.check()
}

// check returns which bounds were broken.
func (f Figures) check() error {
	var problems []error
	for _, a := range f.Attacks {
		if !a.Holds() {
			problems = append(problems, fmt.Errorf("%v, nodes: %d: %.2f units were granted too much, more than the bound of %.0f", a.Mode, a.Nodes, a.Excess, a.Bound))
		}
	}
	return errors.Join(problems...)
}
