package weir

import (
	"sync/atomic"

	"github.com/weirlimit/weir/algo"
)

// A cell is a policy and, where the policy's state is a single word, that word.
//
// Protocol. The word is either the state itself or the mark. While it is the
// state, anybody may replace it by compare-and-swap: that is the fast path, and
// the whole decision is that one swap. While it is the mark, the state lives in
// the Single's ledger and only the holder of Single.mu may touch it: so it is
// while reservations are open or somebody waits, and always for policies that
// need more than a word. The holder of mu takes the state with Swap(mark) and
// gives it back with Store(state). A loser of the swap, or anyone who reads the
// mark, goes to the lock.
//
// A cell's policy never changes. Set marks the old cell for good and publishes
// a new one, so a caller that still has the old numbers can never apply them
// to a word that was written under the new ones.
type cell struct {
	policy *Policy
	kind   wordKind
	gcra   algo.GCRA   // if kind is wordGCRA; a copy, to save a step on the way
	fixed  *algo.Fixed // if kind is wordFixed

	_    [64]byte // the word is written by every grant: keep it off the others' cache line
	word atomic.Uint64
	_    [56]byte
}

type wordKind uint8

const (
	wordNone  wordKind = iota // the state is in the ledger, always
	wordGCRA                  // the word is a TAT
	wordFixed                 // the word is a window number and a count
	wordDual                  // the word is a dual window's
)

// mark is a word that no rule produces: GCRA and fixed windows leave bit 63
// clear, dual windows have no second 63.
const mark = 1<<63 | algo.DualMark

// newCell returns a marked cell.
func newCell(p *Policy) *cell {
	c := &cell{policy: p}
	c.word.Store(mark)
	if p.dual != nil {
		c.kind = wordDual
		return c
	}
	if len(p.rules) > 1 {
		return c
	}
	switch r := p.rules[0].(type) {
	case *algo.GCRA:
		c.kind, c.gcra = wordGCRA, *r
	case *algo.Fixed:
		c.kind, c.fixed = wordFixed, r
	}
	return c
}

// step charges cost at now if it fits, and returns the next word.
func (c *cell) step(word uint64, now, cost int64) (next uint64, ok bool) {
	switch c.kind {
	case wordGCRA:
		return c.gcra.Take(word, now, cost)
	case wordFixed:
		return c.fixed.Take(word, now, cost)
	default:
		return c.policy.dual.Take(word, now, cost)
	}
}

// peek says what a charge would meet, or false if the word is marked.
func (c *cell) peek(now Instant, cost int64) (Decision, bool) {
	word := c.word.Load()
	if word == mark {
		return Decision{}, false
	}
	_, ok := c.step(word, int64(now), cost)
	return c.decide(word, now, cost, ok), true
}

// decide tells what the word says after a step, or of one to come.
func (c *cell) decide(word uint64, now Instant, cost int64, ok bool) Decision {
	if c.kind != wordGCRA {
		return c.decideWindows(word, now, cost, ok)
	}
	v := c.gcra.View(word, int64(now), cost)
	d := Decision{Allowed: ok, Limit: c.gcra.Capacity(), Remaining: v.Remaining, ResetAfter: until(v.ResetAt, now)}
	if ok {
		return d
	}
	return d.refused(v.RetryAt, now)
}

// decideWindows looks at a fixed window, or at a dual one as two.
func (c *cell) decideWindows(word uint64, now Instant, cost int64, ok bool) Decision {
	var states [2]algo.State
	states[0].A = word
	if c.kind == wordDual {
		states = c.unpackDual(word)
	}
	var best Decision
	var bestRetry int64
	for i, r := range c.policy.rules {
		f, w := r.(*algo.Fixed), states[i].A
		d := Decision{
			Allowed:    ok,
			By:         uint8(i),
			Limit:      f.Capacity(),
			Remaining:  f.Remaining(w, int64(now)),
			ResetAfter: until(f.ResetAt(w, int64(now)), now),
		}
		retry := f.RetryAt(w, int64(now), cost)
		if i == 0 || d.isTighter(best, ok, retry, bestRetry) {
			best, bestRetry = d, retry
		}
	}
	if ok {
		return best
	}
	return best.refused(bestRetry, now)
}

// isTighter says whether d rather than o tells of a charge: refused, the limit
// to wait for longest does; admitted, the one with the least remaining.
func (d Decision) isTighter(o Decision, ok bool, retry, oRetry int64) bool {
	if !ok {
		return retry > oRetry
	}
	return d.Remaining < o.Remaining || d.Remaining == o.Remaining && d.ResetAfter > o.ResetAfter
}

// refused returns d as a refusal that can be retried at at.
func (d Decision) refused(at int64, now Instant) Decision {
	d.Allowed, d.Reason = false, Exhausted
	d.RetryAfter = until(at, now)
	if at == algo.Never {
		d.Reason = TooCostly
	}
	return d
}

// grantedSince returns the earliest instant at which a grant can have left word.
func (c *cell) grantedSince(word uint64) int64 {
	switch c.kind {
	case wordGCRA:
		return c.gcra.GrantedSince(word)
	case wordFixed:
		return c.fixed.GrantedSince(word)
	default:
		return c.policy.dual.GrantedSince(word)
	}
}

// load puts the state of the word into the ledger.
func (c *cell) load(l *algo.Ledger, word uint64) {
	if c.kind != wordDual {
		l.SetState(0, algo.State{A: word})
		return
	}
	states := c.unpackDual(word)
	for i := range c.policy.rules {
		l.SetState(i, states[i])
	}
}

// save returns the word for the ledger's state.
func (c *cell) save(l *algo.Ledger) uint64 {
	if c.kind != wordDual {
		return l.State(0).A
	}
	var halves [2]algo.State
	for i, lim := range c.policy.limits {
		halves[lim.dualHalf()] = l.State(i)
	}
	second, minute := c.policy.dualRules()
	return c.policy.dual.Pack(halves[0], halves[1], second, minute)
}

// unpackDual returns a dual word as the states of the policy's rules.
func (c *cell) unpackDual(word uint64) (states [2]algo.State) {
	second, minute := c.policy.dualRules()
	var halves [2]algo.State
	halves[0], halves[1] = c.policy.dual.Unpack(word, second, minute)
	for i, lim := range c.policy.limits {
		states[i] = halves[lim.dualHalf()]
	}
	return states
}

// dualRules returns the two halves of a dual window; either may be nil.
func (p *Policy) dualRules() (second, minute *algo.Fixed) {
	var halves [2]*algo.Fixed
	for i, l := range p.limits {
		halves[l.dualHalf()] = p.rules[i].(*algo.Fixed)
	}
	return halves[0], halves[1]
}
