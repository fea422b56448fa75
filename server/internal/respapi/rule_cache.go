package respapi

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/weirlimit/weir/algo"
)

// ruleCache is a direct-mapped cache of compiled parameters, so that common ones are not compiled
// for every call. Parameters with the same slot replace each other: a caller that sends random
// parameters causes some compilations for others, and uses no more memory.
type ruleCache struct {
	seed  maphash.Seed // set by newRuleCache
	slots [ruleCacheSize]atomic.Pointer[rule]
}

// ruleCacheSize is the number of slots, of about 200 bytes each.
const ruleCacheSize = 4096

// A rule is compiled parameters. It is immutable.
type rule struct {
	params Params
	gcra   algo.GCRA
}

func newRuleCache() *ruleCache { return &ruleCache{seed: maphash.MakeSeed()} }

// get returns the rule of n. Its error is a *ParamsError.
func (r *ruleCache) get(n Params) (*rule, error) {
	place := &r.slots[maphash.Comparable(r.seed, n)%ruleCacheSize]
	if known := place.Load(); known != nil && known.params == n {
		return known, nil
	}
	g, err := n.compile()
	if err != nil {
		return nil, err
	}
	made := &rule{params: n, gcra: *g}
	place.Store(made)
	return made, nil
}
