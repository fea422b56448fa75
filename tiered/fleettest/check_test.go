package fleettest

import (
	"math"
	"testing"

	"github.com/weirlimit/weir/tiered"
)

// referenceSeeds is how many scenarios the reference nodes are put through.
func referenceSeeds() uint64 {
	if raceEnabled || testing.Short() {
		return 40
	}
	return 250
}

// Check is content with nodes that ask the store for everything, in every mode.
func TestCheckAcceptsDirect(t *testing.T) {
	for seed := range referenceSeeds() {
		s := Draw(1 + seed)
		s.Node = newDirect
		report(t, s, s.Run(t))
	}
}

// Check is content with nodes that do what Async promises, and no more.
func TestCheckAcceptsAllowances(t *testing.T) {
	for seed := range 3 * referenceSeeds() {
		if s := Draw(1 + seed); s.Mode == tiered.Async {
			s.Node = newAllowing("")
			report(t, s, s.Run(t))
		}
	}
}

// Check notices nodes that admit everything, whatever the algorithm and the mode: in each
// scenario in which they admit more than any bound allows.
func TestCheckRejectsAdmitting(t *testing.T) {
	rejected, seen := map[string]int{}, map[string]int{}
	for seed := range referenceSeeds() {
		s := Draw(1 + seed)
		s.Node = newAdmitting
		r := s.Run(t)
		if c := newChecker(s, r); c.troubled() || len(s.Changes) > 0 || c.used("a") < 1.5*c.most() {
			continue // they may have admitted so much
		}
		seen[s.algorithm()]++
		if len(Check(s, r)) > 0 {
			rejected[s.algorithm()]++
		}
	}
	for algorithm, n := range seen {
		if rejected[algorithm] < n {
			t.Errorf("%s: only %d of %d scenarios were rejected", algorithm, rejected[algorithm], n)
		}
	}
	t.Logf("rejected %v", rejected)
}

// most is the most units of a key that its limits could have let pass.
func (c *checker) most() float64 {
	most := math.Inf(1)
	for _, m := range c.limits {
		most = min(most, 2*m.capacity+m.rate*c.s.Length.Seconds())
	}
	return most
}

// Check notices nodes that break one of Async's promises, each in some scenario.
func TestCheckRejectsFaultyAllowances(t *testing.T) {
	for _, fault := range []string{"cap", "flush", "in flight", "repeats"} {
		var problems []error
		seed := uint64(0)
		for ; len(problems) == 0 && seed < 250; seed++ {
			s := Draw(1 + seed)
			if s.Mode == tiered.Async && (fault != "repeats" || s.LoseReply > 0) {
				s.Node = newAllowing(fault)
				problems = Check(s, s.Run(t))
			}
		}
		if len(problems) == 0 {
			t.Errorf("%s: not noticed in %d scenarios", fault, seed)
			continue
		}
		t.Logf("%s: noticed in seed %d: %v", fault, seed, problems[0])
	}
}

func report(t *testing.T, s Scenario, r Result) {
	t.Helper()
	problems := Check(s, r)
	for _, p := range problems {
		t.Errorf("seed %d: %v", s.Seed, p)
	}
	if len(problems) > 0 {
		t.Logf("seed %d: %v", s.Seed, s)
	}
}
