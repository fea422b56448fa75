package keyed

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/store/memstore"
)

// Note is what a reader must know of all cases.
const Note = `Keys are 20 bytes long. Unless the case says otherwise each may have 100,000 units
per second and a burst of 1,000,000,000, so that every call is admitted. weir has a
table for exactly as many keys as there are; the peers have no bound, and what they
offer to forget old keys is off. Each peer has the cheapest call of its own that says
yes or no for a key. httprate offers one for HTTP only; here it is without the headers.
Ratios are against the best peer of the same measurement.

Where there is more than one key, all are there before the first run and are asked for
in a random order, the same for all, and a run begins with the last run's limiter
instead of a fresh one. The collector is off during these runs: all limiters are alive
at once, and each would pay for the others' pointers. That favours limiters that
allocate or have many pointers; the cost of these is reported at the end.`

// weirName is the contender that goals are for.
const weirName = "weir Table.Take"

// batchSize is how many decisions are made by one Table.Do.
const batchSize = 100

// Sizes say how many keys there are.
type Sizes struct {
	Many int // of a case that fits a processor's cache, more or less
	Most int // of a case that does not, and of the survey of all stores
	Vast int // new keys, for weir only: into a table that grows, and into a full one
	Full int // keys of the full table
}

// The sizes to measure with.
var (
	Whole = Sizes{Many: 100_000, Most: 1_000_000, Vast: 10_000_000, Full: 100_000}
	Quick = Sizes{Many: 10_000, Most: 100_000, Vast: 1_000_000, Full: 10_000}
)

// ratioGoals is how many times as fast as the best peer weir wants to be, by the
// number of keys.
var ratioGoals = map[int]float64{1: 2, 100_000: 3.5, 1_000_000: 1.9}

// Cases returns the cases, those with goals first. With several cores they end
// with what more cores bring.
func Cases(s Sizes) []harness.Case {
	cases := []harness.Case{
		admitted(1, 2),
		admitted(s.Many, 2),
		admitted(s.Most, 2),
		refused(2),
	}
	cases = append(cases, holdCases()...)
	cases = append(cases, budgetCase())
	for _, cores := range coresToTry(runtime.NumCPU()) {
		cases = append(cases, scaling(1, cores), scaling(s.Most, cores))
	}
	return cases
}

// admitted asks for n keys from several goroutines, and all calls are admitted.
func admitted(n, goroutines int) harness.Case {
	c := memstore.Config{MaxKeys: n}
	saved := memstore.Config{MaxKeys: n, Snapshots: true}
	stores := append([]store{
		weirTake(weirName, c, ratioGoals[n]),
		weirTake("weir Table.Take, for snapshots", saved, 0),
		weirBatch(fmt.Sprintf("weir Table.Do of %d", batchSize), c, batchSize),
		weirTwo("weir Table.Take, 2 limits", c),
	}, peers()...)
	return walked(n, harness.Case{
		Name:       fmt.Sprintf("%s, %d goroutines", counted(n), goroutines),
		Goroutines: goroutines,
	}, stores)
}

// scaling is admitted with one goroutine on each of so many cores, and fewer
// contenders.
func scaling(n, cores int) harness.Case {
	stores := append([]store{weirTake(weirName, memstore.Config{MaxKeys: n}, 0)}, peers()...)
	return walked(n, harness.Case{
		Name:       fmt.Sprintf("%s, GOMAXPROCS %d", counted(n), cores),
		Note:       "One goroutine on each processor.",
		Goroutines: cores,
		Procs:      cores,
		NoChart:    true,
	}, stores)
}

// coresToTry returns 1, 2, 4 and so on up to all cores. If there are two, the
// cases of two goroutines have shown that already.
func coresToTry(all int) []int {
	cores := []int{1}
	for n := 2; n <= all && all > 2; n *= 2 {
		cores = append(cores, n)
	}
	return cores
}

// walked completes a case in which every call is admitted.
func walked(n int, c harness.Case, stores []store) harness.Case {
	c.Reuse = n > 1
	c.Expect = harness.Admit
	c.Against = harness.BestPeer
	w := sync.OnceValue(func() *walk { return newWalk(n) })
	for _, st := range stores {
		c.Contenders = append(c.Contenders, st.walking(plenty, n, w))
	}
	return c
}

// refused asks for one key that has nothing left.
func refused(goroutines int) harness.Case {
	c := harness.Case{
		Name:       fmt.Sprintf("1 hot key refused, %d goroutines", goroutines),
		Note:       "1 per hour, and that one is taken: every call is refused.",
		Goroutines: goroutines,
		Expect:     harness.Refusal,
		Against:    harness.BestPeer,
		NoChart:    true,
	}
	w := sync.OnceValue(func() *walk { return newWalk(1) })
	for _, st := range append([]store{weirTake(weirName, memstore.Config{MaxKeys: 1}, 0)}, peers()...) {
		c.Contenders = append(c.Contenders, st.walking(scarce, 1, w))
	}
	return c
}

// counted names so many keys: "1 hot key" or "100,000 keys".
func counted(n int) string {
	if n == 1 {
		return "1 hot key"
	}
	return harness.Grouped(n) + " keys"
}
