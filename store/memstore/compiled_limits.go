package memstore

import (
	"context"
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
)

// compiledLimits is one set of limits of a policy. A state is meaningless
// without the limits it was written under, so every row has their id, and their
// tag is mixed into the row's: a row under other limits is not found by mistake.
type compiledLimits struct {
	id     uint16
	policy *weir.Policy
	of     *name
	tag    uint64 // random; xor of a key's hash makes a row's tag

	words  int        // of a row's state, at least 1
	logged bool       // a rule has a log, so the state is always spilled
	word   *algo.Word // if the state is one word, else nil
	lends  bool       // one of several rules is shared by classes that lend to each other
	isGCRA bool
	gcra   algo.GCRA // if isGCRA; a copy, to save an indirection

	// inForce is the limits that replaced these, or nil. Only
	// Set writes it, under registry.mu; a caller that has locked a shard and
	// read nil may write rows under these limits, because Set walks the
	// shards afterwards.
	inForce atomic.Pointer[compiledLimits]

	rows    atomic.Int64 // rows under these limits, and limits that forward to these; see collectLocked
	leaving atomic.Bool  // they may be dropped, or were dropped
}

func newCompiledLimits(id uint16, of *name, p *weir.Policy) *compiledLimits {
	n := &compiledLimits{id: id, policy: p, of: of, tag: rand.Uint64(), word: p.Compiled().Word}
	for _, r := range p.Compiled().Rules {
		if _, lends := r.(*algo.Lending); lends && len(p.Compiled().Rules) > 1 {
			n.lends = true
		}
		if r.Words() < 0 {
			n.logged = true
			continue
		}
		n.words += r.Words()
	}
	if n.words = max(1, n.words); n.logged || n.word != nil {
		n.words = 1
	}
	if n.word != nil && n.word.GCRA() != nil {
		n.isGCRA, n.gcra = true, *n.word.GCRA()
	}
	return n
}

// pin increments the number of rows, unpin decrements it.
func (n *compiledLimits) pin()   { n.rows.Add(1) }
func (n *compiledLimits) unpin() { n.rows.Add(-1) }

// current says whether rows may be written under these limits. The caller has
// locked the row's shard.
func (n *compiledLimits) current() bool { return n.inForce.Load() == nil && !n.leaving.Load() }

// A name is the policy history of one name: all its sets of limits.
type name struct {
	text string
	salt uint64 // makes the hashes of a key differ between names

	// Guarded by registry.mu.
	sets     map[uint64][]*compiledLimits // by fingerprint
	count    int                          // of sets
	replaced []*compiledLimits            // those with inForce set, the oldest first

	overflow atomic.Pointer[overflow] // nil until it was needed
}

// maxReplaced bounds the replaced sets of limits that a name remembers. Calls with an
// older set are decided by that set itself.
const maxReplaced = 100

// A binding caches the limits in force for a policy.
type binding struct {
	policy *weir.Policy
	limits *compiledLimits
}

// cached is the number of bindings that are cached; a policy's serial number selects its slot.
const cached = 1024

// lookup returns the limits in force for p if they are cached, else nil.
func (t *Table) lookup(p *weir.Policy) *compiledLimits {
	if b := t.bindings[p.Compiled().Serial%cached].Load(); b != nil && b.policy == p {
		return b.limits
	}
	return nil
}

// resolve returns the limits in force for p. If there is no room for them, it
// sweeps once, unless that was done recently.
func (t *Table) resolve(p *weir.Policy) (*compiledLimits, error) {
	if n := t.lookup(p); n != nil {
		return n, nil
	}
	n, err := t.resolveAs(p, fromCall)
	if errors.Is(err, errTooManySets) && t.sweep(fromCall) {
		n, err = t.resolveAs(p, fromCall)
	}
	return n, err
}

// Current returns the policy that decides calls with p: p itself, or its replacement by Set.
// It is nil if there is no room for the limits of p.
func (t *Table) Current(_ context.Context, p *weir.Policy) *weir.Policy {
	n, err := t.resolve(p)
	if err != nil {
		return nil
	}
	return n.policy
}

// resolveAs is resolve without a sweep, for a requester.
func (t *Table) resolveAs(p *weir.Policy, requester requester) (*compiledLimits, error) {
	t.registry.mu.Lock()
	defer t.registry.mu.Unlock()
	n, err := t.registerLocked(p, requester)
	if err != nil {
		return nil, err
	}
	if other := n.inForce.Load(); other != nil {
		n = other
	}
	t.bindings[p.Compiled().Serial%cached].Store(&binding{p, n})
	return n, nil
}

// registerLocked returns the limits of p itself. It requires registry.mu.
func (t *Table) registerLocked(p *weir.Policy, requester requester) (*compiledLimits, error) {
	print := t.fingerprint(p)
	if nm := t.registry.names[p.Name()]; nm != nil {
		for _, n := range nm.sets[print] {
			if n.policy.Same(p) {
				return n, nil
			}
		}
	}
	id, err := t.newIDLocked(p.Name(), requester) // which may forget the name
	if err != nil {
		return nil, err
	}
	nm := t.nameLocked(p.Name())
	n := newCompiledLimits(id, nm, p)
	nm.sets[print] = append(nm.sets[print], n)
	nm.count++
	t.registry.put(n)
	return n, nil
}

func (t *Table) nameLocked(text string) *name {
	nm := t.registry.names[text]
	if nm == nil {
		nm = &name{text: text, salt: t.hash.sum(text), sets: map[uint64][]*compiledLimits{}}
		t.registry.names[text] = nm
	}
	return nm
}

// fingerprint is equal for policies that are the same.
func (t *Table) fingerprint(p *weir.Policy) uint64 {
	var sum uint64
	if p.Compiled().Override {
		sum = 1
	}
	for _, l := range p.Limits() {
		l.OnError = weir.OnError(0) // as for Policy.Same
		sum = sum*31 + maphash.Comparable(t.registry.seed, l)
	}
	return sum
}

// registry is all limits and names.
type registry struct {
	seed maphash.Seed                                             // of fingerprints
	byID [256]atomic.Pointer[[256]atomic.Pointer[compiledLimits]] // by high and low byte of the id; written under mu

	setting sync.Mutex // held by Set all the time, taken before every other lock

	sweeping sync.Mutex // held by sweep; taken before mu
	sweeps   budget     // guarded by sweeping

	mu       sync.Mutex // guards the rest; taken before shards' locks
	names    map[string]*name
	ids      int      // ids in use or free
	free     []uint16 // ids
	lookAt   int      // the number of ids at which unused ones are collected
	collects budget   // of collections because there is no room
	walks    int      // how often all sets or all rows were looked at, for tests
}

func (r *registry) init() {
	r.seed = maphash.MakeSeed()
	r.names = map[string]*name{}
	r.lookAt = 64
}

// at returns the limits with an id that a row has.
func (r *registry) at(id uint16) *compiledLimits { return r.byID[id>>8].Load()[id&255].Load() }

func (r *registry) put(n *compiledLimits) {
	part := &r.byID[n.id>>8]
	if part.Load() == nil {
		part.Store(&[256]atomic.Pointer[compiledLimits]{})
	}
	part.Load()[n.id&255].Store(n)
}

// newIDLocked returns an unused id. Whenever there are twice as many ids as were in use
// after the last collection, or no room, it collects limits without rows.
func (t *Table) newIDLocked(policy string, requester requester) (uint16, error) {
	r := &t.registry
	if len(r.free) == 0 && r.ids >= r.lookAt {
		t.collectLocked()
		r.lookAt = 2*r.inUse() + 64
	}
	err := r.roomLocked(policy, requester)
	if err != nil && (requester == fromSet || r.collects.allows(t.now(), r.ids+len(t.shards))) {
		t.collectLocked()
		err = r.roomLocked(policy, requester)
	}
	if err != nil {
		return 0, err
	}
	if n := len(r.free); n > 0 {
		id := r.free[n-1]
		r.free = r.free[:n-1]
		return id, nil
	}
	r.ids++
	return uint16(r.ids - 1), nil
}

// collectLocked frees the ids of limits without rows. Limits that forward to
// others are kept.
//
// A call may be about to write a row under such limits. So they are marked as leaving
// first, which calls check after they have locked their shard; then every shard is
// locked once, after which every running call has seen the mark; and limits
// that still have no row are dropped.
func (t *Table) collectLocked() {
	t.registry.walks++
	var leaving []*compiledLimits
	for id := range t.registry.ids {
		n := t.registry.at(uint16(id))
		if n.inForce.Load() == nil && n.rows.Load() == 0 && n.leaving.CompareAndSwap(false, true) {
			leaving = append(leaving, n)
		}
	}
	t.forgetBindings()
	for i := range t.shards {
		t.shards[i].mu.Lock()
		//lint:ignore SA2001 it was locked to wait for the current holder
		t.shards[i].mu.Unlock()
	}
	for _, n := range leaving {
		if n.rows.Load() == 0 {
			t.forgetLocked(n)
		} else {
			n.leaving.Store(false)
		}
	}
}

// forgetBindings clears the cache, so that every policy is resolved again.
func (t *Table) forgetBindings() {
	for i := range t.bindings {
		t.bindings[i].Store(nil)
	}
}

// forgetLocked removes limits from their name and frees their id.
func (t *Table) forgetLocked(n *compiledLimits) {
	print := t.fingerprint(n.policy)
	rest := slices.DeleteFunc(n.of.sets[print], func(o *compiledLimits) bool { return o == n })
	if n.of.sets[print] = rest; len(rest) == 0 {
		delete(n.of.sets, print)
	}
	n.of.count--
	t.registry.free = append(t.registry.free, n.id)
	if len(n.of.sets) == 0 && n.of.overflow.Load() == nil {
		delete(t.registry.names, n.of.text)
	}
}
