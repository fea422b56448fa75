package respapi

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/weirlimit/weir/algo"
)

// rules remembers what numbers compile to, so that the usual ones are not compiled for
// every call. Each set of numbers has one place, and the last that came has it: a caller
// who makes numbers up costs others a compilation now and then, and no memory.
type rules struct {
	seed   maphash.Seed // set by newRules
	places [ruleCache]atomic.Pointer[rule]
}

// ruleCache is how many rules are remembered, about 200 bytes each.
const ruleCache = 4096

// A rule is numbers and what they compile to. It is immutable.
type rule struct {
	numbers Numbers
	gcra    algo.GCRA
}

func newRules() *rules { return &rules{seed: maphash.MakeSeed()} }

// of returns the rule of n. Its error is a *NumbersError.
func (r *rules) of(n Numbers) (*rule, error) {
	place := &r.places[maphash.Comparable(r.seed, n)%ruleCache]
	if known := place.Load(); known != nil && known.numbers == n {
		return known, nil
	}
	g, err := n.compile()
	if err != nil {
		return nil, err
	}
	made := &rule{numbers: n, gcra: *g}
	place.Store(made)
	return made, nil
}
