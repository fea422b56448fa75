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
	"github.com/weirlimit/weir/algo"
)

// farAway is longer than anything is cached.
const farAway = 365 * 24 * time.Hour

// A policyHistory is the set of policies of one name, old and new, that callers pass. They share
// the state of their keys. For each it records which policy is in force.
type policyHistory struct {
	name string // set once, like id and salt
	id   int    // distinguishes its shares in Local
	salt uint64

	// epoch is incremented when limits change. Denials, leases and allowances of earlier
	// epochs are void.
	epoch atomic.Uint64

	mu       sync.Mutex         // guards the field below
	policies map[uint64]version // by the fingerprint of the policy that callers pass
}

// A version is a policy that callers pass, and the one in force for it: nil if it is the same.
type version struct{ passed, force *weir.Policy }

// mostVersions bounds the versions of a policyHistory.
const mostVersions = 256

// replaced records that new is in force wherever old was.
func (h *policyHistory) replaced(old, new *weir.Policy) {
	h.mu.Lock()
	defer h.mu.Unlock()
	from := h.forceLocked(old)
	h.putLocked(old, new)
	h.putLocked(from, new)
	h.putLocked(new, new)
	for _, v := range h.policies {
		if v.force != nil && fingerprint(v.force) == fingerprint(from) {
			h.putLocked(v.passed, new)
		}
	}
	h.epoch.Add(1)
}

// refresh looks up which policies are in force for those that callers pass. It reports
// whether one has changed.
func (h *policyHistory) refresh(current func(p *weir.Policy) *weir.Policy) (changed bool) {
	h.mu.Lock()
	list := slices.Collect(maps.Values(h.policies))
	h.mu.Unlock()
	for _, v := range list {
		in := current(v.passed)
		if in == nil {
			continue
		}
		h.mu.Lock()
		if fingerprint(h.forceLocked(v.passed)) != fingerprint(in) {
			h.putLocked(v.passed, in)
			changed = true
		}
		h.mu.Unlock()
	}
	return changed
}

// use records that callers pass p, and returns the policy in force for it, as far as this node
// knows.
func (h *policyHistory) use(p *weir.Policy) *weir.Policy {
	h.mu.Lock()
	defer h.mu.Unlock()
	in := h.forceLocked(p)
	h.putLocked(p, in)
	return in
}

func (h *policyHistory) forceLocked(p *weir.Policy) *weir.Policy {
	if in := h.policies[fingerprint(p)].force; in != nil {
		return in
	}
	return p
}

// putLocked records that in is in force for callers that pass p. If there are too many versions,
// it drops those that are in force themselves, and then all: callers should not pass policies
// that were replaced long ago.
func (h *policyHistory) putLocked(p, in *weir.Policy) {
	v := version{passed: p, force: in}
	if fingerprint(p) == fingerprint(in) {
		v.force = nil
	}
	if _, known := h.policies[fingerprint(p)]; !known && len(h.policies) >= mostVersions {
		maps.DeleteFunc(h.policies, func(_ uint64, v version) bool { return v.force == nil })
		if len(h.policies) >= mostVersions {
			clear(h.policies)
		}
	}
	h.policies[fingerprint(p)] = v
}

// fingerprint returns a hash of the limits of a policy, equal on all nodes. That of an override
// differs, because Set never replaces it.
func fingerprint(p *weir.Policy) uint64 {
	h := fnv.New64a()
	if p.Compiled().Override {
		fmt.Fprintln(h, "override")
	}
	for _, l := range p.Limits() {
		fmt.Fprintf(h, "%s|%v|%d|%v|%d\n", l.Name, l, l.Burst, l.Initial, l.MaxDebt)
		if l.Pace != "" {
			fmt.Fprintln(h, l.Pace)
		}
	}
	return h.Sum64() | 1 // never 0
}

// A plan is a policy with everything that is computed from it.
type plan struct {
	policy   *weir.Policy // as passed by callers
	force    *weir.Policy // the policy in force, as far as this node knows
	history  *policyHistory
	epoch    uint64 // of the history, when the plan was made
	limits   uint64 // fingerprint of the limits and the class
	capacity int64
	leasable bool
	perNano  []float64 // units of each limit that are replenished per nanosecond; 0 for windows
	single   bool      // one limit, GCRA
	async    bool      // keys may have an allowance

	// For decisions while the store is unavailable:
	failsClosed bool
	failLocal   []int // indexes of the limits that apply to this node's share
	share       atomic.Pointer[share]
}

// plans is the number of cached plans. A policy always uses the same slot.
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

// historyOf returns the policyHistory of a policy name.
func (t *Limiter) historyOf(name string) *policyHistory {
	if h, ok := t.histories.Load(name); ok {
		return h.(*policyHistory)
	}
	h, _ := t.histories.LoadOrStore(name, &policyHistory{
		name: name, id: int(t.named.Add(1)), salt: rand.Uint64(), policies: map[uint64]version{},
	})
	return h.(*policyHistory)
}

func (t *Limiter) newPlan(p *weir.Policy) *plan {
	h := t.historyOf(p.Name())
	epoch := h.epoch.Load()
	in := ofClass(h.use(p), p.ClassName())
	pl := &plan{policy: p, force: in, history: h, epoch: epoch, limits: planPrint(in), capacity: in.Capacity(), leasable: true}
	for i, l := range in.Limits() {
		pl.leasable = pl.leasable && isSmooth(l)
		pl.perNano = append(pl.perNano, perNanoOf(l))
		switch cmp.Or(l.OnError, t.config.OnError) {
		case weir.FailClosed:
			pl.failsClosed = true
		case weir.FailLocal:
			pl.failLocal = append(pl.failLocal, i)
		}
	}
	pl.single = pl.leasable && len(pl.perNano) == 1
	// What was used under an allowance is one number for each key, which has no class.
	pl.async = t.config.Mode == Async && !in.ReserveOnly() && in.ClassName() == ""
	return pl
}

// isSmooth reports whether the units of a limit are replenished at a constant rate.
func isSmooth(l weir.Limit) bool { return l.Algorithm == weir.GCRA || l.Algorithm == weir.TokenBucket }

// perNanoOf returns how many units of a limit are replenished per nanosecond; 0 for a window.
func perNanoOf(l weir.Limit) float64 {
	if !isSmooth(l) {
		return 0
	}
	return float64(l.Rate) / float64(l.Per.Duration())
}

// ofClass returns the policy for charges of a class, if it has that class.
func ofClass(p *weir.Policy, class string) *weir.Policy {
	if class != "" {
		if view, err := p.Class(class); err == nil {
			return view
		}
	}
	return p
}

// withoutClass returns the plan for charges of the policy that name no class. Usage of a key is one number,
// whatever classes it is of; so that urgent work does not owe what others have used, it is charged
// as that of charges that name none.
func (t *Limiter) withoutClass(pl *plan) *plan {
	for _, r := range pl.policy.Compiled().Rules {
		if l, ok := r.(*algo.Lending); ok && l.First() != pl.policy.ClassName() {
			next := t.planOf(ofClass(pl.policy, l.First()))
			t.shareOf(next) // unitsToCharge needs it
			return next
		}
	}
	return pl
}

// planPrint is the fingerprint of a policy's limits and class: a denial of one class says nothing
// about the others.
func planPrint(p *weir.Policy) uint64 {
	if p.ClassName() == "" {
		return fingerprint(p)
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%d|%s", fingerprint(p), p.ClassName())
	return h.Sum64() | 1
}
