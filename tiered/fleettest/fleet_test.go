package fleettest

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run this seed only")
	fromFlag  = flag.Uint64("from", 1, "the first seed")
	countFlag = flag.Int("seeds", 0, "how many seeds to run")
	traceFlag = flag.Bool("calls", false, "print all calls and store operations")
)

// TestMain has goroutines run one after the other, so that a seed is the same run each
// time.
func TestMain(m *testing.M) {
	flag.Parse()
	if !raceEnabled {
		runtime.GOMAXPROCS(1)
	}
	os.Exit(m.Run())
}

// TestFleet runs many seeds. They are chances, drawn once: a new one that fails is worth
// a test of its own.
func TestFleet(t *testing.T) {
	seeds := seedsToRun()
	n := tally{}
	start := time.Now()
	for _, seed := range seeds {
		runSeed(t, Draw(seed), n)
	}
	took := time.Since(start)
	t.Logf("%d seeds in %v, %.0f per second", len(seeds), took.Round(time.Millisecond), float64(len(seeds))/took.Seconds())
	for _, k := range slices.Sorted(maps.Keys(n)) {
		t.Logf("%8d %s", n[k], k)
	}
}

// tally counts what was seen.
type tally map[string]int

// of counts a scenario and its calls.
func (n tally) of(s Scenario, r Result) {
	kind := strings.Fields(s.Kind())
	n["seeds "+kind[0]+" "+kind[1]]++
	n["seeds "+kind[0]+" "+kind[2]]++
	for _, label := range kind[3:] {
		n["seeds with "+label]++
	}
	for _, c := range r.Calls {
		if !c.takes() {
			n[fmt.Sprintf("calls %v neither", s.Mode)]++
			continue
		}
		outcome := "refused"
		if c.Decision.Allowed {
			outcome = "admitted"
		}
		n[fmt.Sprintf("calls %v %s by %s", s.Mode, outcome, sourceNames[c.By])]++
	}
}

var sourceNames = []string{ByStore: "store", ByNode: "node", ByShare: "share", ByNobody: "nobody"}

func seedsToRun() (seeds []uint64) {
	if *seedFlag != 0 {
		return []uint64{*seedFlag}
	}
	n := 1000
	switch {
	case *countFlag > 0:
		n = *countFlag
	case raceEnabled:
		n = 150
	case testing.Short():
		n = 200
	case os.Getenv("WEIR_TEST") == "all":
		n = 20_000
	}
	for i := range n {
		seeds = append(seeds, *fromFlag+uint64(i))
	}
	return seeds
}

// runSeed runs a scenario and checks it.
func runSeed(t *testing.T, s Scenario, n tally) {
	t.Helper()
	r := s.Run(t)
	if *traceFlag {
		trace(r)
	}
	n.of(s, r)
	failed := false
	for _, p := range Check(s, r) {
		failed = true
		t.Errorf("seed %d: %v", s.Seed, p)
	}
	if failed {
		t.Logf("%v\nrun it again: go test ./tiered/fleettest -run TestFleet -seed %d -calls", s, s.Seed)
	}
}

func trace(r Result) {
	at := 0
	for _, c := range r.Calls {
		for ; at < len(r.Ops) && r.Ops[at].At < c.Start; at++ {
			fmt.Printf("%12v store %+v\n", r.Ops[at].At, r.Ops[at])
		}
		fmt.Println(c)
	}
	for i, s := range r.Stats {
		fmt.Printf("node %d: %+v\n", i, s)
	}
}
