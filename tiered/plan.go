package tiered

import (
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
type family struct {
	name string // set once, like the next two
	id   int    // names its rows in Local
	salt uint64

	// epoch changes when a limit is set: denials, leases and allowances of before
	// are void.
	epoch atomic.Uint64

	mu      sync.Mutex              // guards the fields below
	set     map[uint64]*weir.Policy // what is in force, by the fingerprint of the limits that callers bring
	brought map[uint64]*weir.Policy // what callers bring, by fingerprint
}

// mostSets bounds the limits that callers may still bring after they were replaced.
const mostSets = 256

// replaced puts new in force wherever old was.
func (f *family) replaced(old, new *weir.Policy) {
	f.mu.Lock()
	defer f.mu.Unlock()
	from := fingerprint(f.inForceLocked(old))
	for limits, p := range f.set {
		if fingerprint(p) == from {
			f.set[limits] = new
		}
	}
	if f.set == nil || len(f.set) >= mostSets {
		f.set = map[uint64]*weir.Policy{} // those of long ago are forgotten: nobody should still bring them
	}
	f.set[fingerprint(old)], f.set[from] = new, new
	delete(f.set, fingerprint(new))
	f.epoch.Add(1)
}

// follow looks up what is in force for the policies that callers bring. It says whether
// that has changed.
func (f *family) follow(current func(p *weir.Policy) *weir.Policy) (changed bool) {
	f.mu.Lock()
	brought := slices.Collect(maps.Values(f.brought))
	f.mu.Unlock()
	for _, p := range brought {
		in := current(p)
		if in == nil {
			continue
		}
		f.mu.Lock()
		if fingerprint(f.inForceLocked(p)) != fingerprint(in) {
			f.putLocked(p, in)
			changed = true
		}
		f.mu.Unlock()
	}
	return changed
}

// putLocked puts in in force for those who bring p.
func (f *family) putLocked(p, in *weir.Policy) {
	if f.set == nil || len(f.set) >= mostSets {
		f.set = map[uint64]*weir.Policy{} // those of long ago are forgotten: nobody should still bring them
	}
	if f.set[fingerprint(p)] = in; fingerprint(p) == fingerprint(in) {
		delete(f.set, fingerprint(p))
	}
}

// bring notes that callers bring p.
func (f *family) bring(p *weir.Policy) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.brought == nil || len(f.brought) >= mostSets {
		f.brought = map[uint64]*weir.Policy{}
	}
	f.brought[fingerprint(p)] = p
}

// inForce returns what decides for those who bring p, as far as this node knows.
func (f *family) inForce(p *weir.Policy) *weir.Policy {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.inForceLocked(p)
}

func (f *family) inForceLocked(p *weir.Policy) *weir.Policy {
	if in := f.set[fingerprint(p)]; in != nil {
		return in
	}
	return p
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
	family   *family
	epoch    uint64 // of the family, when it was made
	limits   uint64 // fingerprint
	capacity int64
	leasable bool
	perNano  []float64 // how many units of each limit come back in a nanosecond; 0 for windows
	single   bool      // one limit, GCRA
	async    bool      // keys may have an allowance
	fail     failure
}

// A failure is what a policy does while the store is away.
type failure struct {
	closed bool
	local  []int // places of the limits that go on with this node's share

	share atomic.Pointer[share]
}

// plans is how many plans are remembered, each policy having one place.
const plans = 1024

// planOf returns the plan of p.
func (t *Limiter) planOf(p *weir.Policy) *plan {
	at := &t.plans[p.Compiled().Serial%plans]
	if pl := at.Load(); pl != nil && pl.policy == p && pl.epoch == pl.family.epoch.Load() {
		return pl
	}
	pl := t.newPlan(p)
	at.Store(pl)
	return pl
}

// familyOf returns the family of that name.
func (t *Limiter) familyOf(name string) *family {
	if f, ok := t.families.Load(name); ok {
		return f.(*family)
	}
	f, _ := t.families.LoadOrStore(name, &family{name: name, id: int(t.named.Add(1)), salt: rand.Uint64()})
	return f.(*family)
}

func (t *Limiter) newPlan(p *weir.Policy) *plan {
	f := t.familyOf(p.Name())
	epoch := f.epoch.Load()
	f.bring(p)
	in := f.inForce(p)
	pl := &plan{policy: p, force: in, family: f, epoch: epoch, limits: fingerprint(in), capacity: in.Capacity(), leasable: true}
	for i, l := range in.Limits() {
		smooth := l.Algorithm == weir.GCRA || l.Algorithm == weir.TokenBucket
		pl.leasable = pl.leasable && smooth
		perNano := 0.0
		if smooth {
			perNano = float64(l.Rate) / float64(l.Per.Duration())
		}
		pl.perNano = append(pl.perNano, perNano)
		pl.fail.add(i, l, t.config.OnError)
	}
	pl.single = pl.leasable && len(pl.perNano) == 1
	pl.async = t.config.Mode == Async && !in.ReserveOnly()
	return pl
}

// add says what limit i does while the store is away.
func (f *failure) add(i int, l weir.Limit, otherwise weir.OnError) {
	on := l.OnError
	if on == weir.OnErrorDefault {
		on = otherwise
	}
	switch on {
	case weir.FailClosed:
		f.closed = true
	case weir.FailLocal:
		f.local = append(f.local, i)
	}
}
