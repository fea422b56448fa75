package tiered

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// farAway is further than anything that is remembered.
const farAway = 365 * 24 * time.Hour

// A family is the policies of one name, whose limits share their state.
type policyHistory struct {
	name string // set once, like the next two
	id   int    // names its rows in Local
	salt uint64

	// epoch changes when a limit is set: denials, leases and allowances of before
	// are void.
	epoch atomic.Uint64

	mu       sync.Mutex         // guards the field below
	policies map[uint64]version // by the fingerprint of what callers bring
}

// A version is a policy that callers bring, and what decides instead: nil if nothing does.
type version struct{ brought, force *weir.Policy }

// mostVersions bounds the policies of one name that are told apart.
const mostVersions = 256

// replaced puts new in force wherever old was.
func (f *policyHistory) replaced(old, new *weir.Policy) {
	f.mu.Lock()
	defer f.mu.Unlock()
	from := f.forceLocked(old)
	f.putLocked(old, new)
	f.putLocked(from, new)
	f.putLocked(new, new)
	for _, v := range f.policies {
		if v.force != nil && fingerprint(v.force) == fingerprint(from) {
			f.putLocked(v.brought, new)
		}
	}
	f.epoch.Add(1)
}

// follow looks up what is in force for the policies that callers bring. It says whether
// that has changed.
func (f *policyHistory) follow(current func(p *weir.Policy) *weir.Policy) (changed bool) {
	f.mu.Lock()
	list := slices.Collect(maps.Values(f.policies))
	f.mu.Unlock()
	for _, v := range list {
		in := current(v.brought)
		if in == nil {
			continue
		}
		f.mu.Lock()
		if fingerprint(f.forceLocked(v.brought)) != fingerprint(in) {
			f.putLocked(v.brought, in)
			changed = true
		}
		f.mu.Unlock()
	}
	return changed
}

// bring notes that callers bring p, and returns what decides for them, as far as this node
// knows.
func (f *policyHistory) bring(p *weir.Policy) *weir.Policy {
	f.mu.Lock()
	defer f.mu.Unlock()
	in := f.forceLocked(p)
	f.putLocked(p, in)
	return in
}

func (f *policyHistory) forceLocked(p *weir.Policy) *weir.Policy {
	if in := f.policies[fingerprint(p)].force; in != nil {
		return in
	}
	return p
}

// putLocked puts in in force for those who bring p. If there are too many policies, those that
// decide themselves are forgotten, and then all: nobody should still bring what was replaced
// long ago.
func (f *policyHistory) putLocked(p, in *weir.Policy) {
	v := version{brought: p, force: in}
	if fingerprint(p) == fingerprint(in) {
		v.force = nil
	}
	if _, known := f.policies[fingerprint(p)]; !known && len(f.policies) >= mostVersions {
		maps.DeleteFunc(f.policies, func(_ uint64, v version) bool { return v.force == nil })
		if len(f.policies) >= mostVersions {
			clear(f.policies)
		}
	}
	f.policies[fingerprint(p)] = v
}

// fingerprint tells limits apart, on all nodes alike.
func fingerprint(p *weir.Policy) uint64 {
	h := fnv.New64a()
	for _, l := range p.Limits() {
		fmt.Fprintf(h, "%s|%v|%d|%v|%d\n", l.Name, l, l.Burst, l.Initial, l.MaxDebt)
	}
	return h.Sum64() | 1 // never 0
}

// A plan is what follows from a policy, worked out once.
type plan struct {
	policy   *weir.Policy // as callers bring it
	force    *weir.Policy // what decides, as far as this node knows
	history  *policyHistory
	epoch    uint64 // of the family, when it was made
	limits   uint64 // fingerprint
	capacity int64
	leasable bool
	perNano  []float64 // how many units of each limit come back in a nanosecond; 0 for windows
	single   bool      // one limit, GCRA
	async    bool      // keys may have an allowance

	// While the store is away:
	failsClosed bool
	failLocal   []int // places of the limits that go on with this node's share
	share       atomic.Pointer[share]
}

// plans is how many plans are remembered, each policy having one place.
const plans = 1024

// planOf returns the plan of p.
func (t *Limiter) planOf(p *weir.Policy) *plan {
	at := &t.plans[p.Compiled().Serial%plans]
	if pl := at.Load(); pl != nil && pl.policy == p && pl.epoch == pl.history.epoch.Load() {
		return pl
	}
	pl := t.newPlan(p)
	at.Store(pl)
	return pl
}

// historyOf returns the family of that name.
func (t *Limiter) historyOf(name string) *policyHistory {
	if f, ok := t.histories.Load(name); ok {
		return f.(*policyHistory)
	}
	f, _ := t.histories.LoadOrStore(name, &policyHistory{
		name: name, id: int(t.named.Add(1)), salt: rand.Uint64(), policies: map[uint64]version{},
	})
	return f.(*policyHistory)
}

func (t *Limiter) newPlan(p *weir.Policy) *plan {
	f := t.historyOf(p.Name())
	epoch := f.epoch.Load()
	in := f.bring(p)
	pl := &plan{policy: p, force: in, history: f, epoch: epoch, limits: fingerprint(in), capacity: in.Capacity(), leasable: true}
	for i, l := range in.Limits() {
		smooth := l.Algorithm == weir.GCRA || l.Algorithm == weir.TokenBucket
		pl.leasable = pl.leasable && smooth
		perNano := 0.0
		if smooth {
			perNano = float64(l.Rate) / float64(l.Per.Duration())
		}
		pl.perNano = append(pl.perNano, perNano)
		switch cmp.Or(l.OnError, t.config.OnError) {
		case weir.FailClosed:
			pl.failsClosed = true
		case weir.FailLocal:
			pl.failLocal = append(pl.failLocal, i)
		}
	}
	pl.single = pl.leasable && len(pl.perNano) == 1
	pl.async = t.config.Mode == Async && !in.ReserveOnly()
	return pl
}
