package weir

import (
	"sync/atomic"

	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/compiled"
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
	state  *algo.Word // nil: the state is in the ledger, always
	isGCRA bool
	gcra   algo.GCRA // if isGCRA; a copy, to save a step on the way

	_    [64]byte // the word is written by every grant: keep it off the others' cache line
	word atomic.Uint64
	_    [56]byte
}

const mark = algo.Mark

// newCell returns a marked cell.
func newCell(p *Policy) *cell {
	c := &cell{policy: p, state: p.compiled.Word}
	c.word.Store(mark)
	if c.state != nil && c.state.GCRA() != nil {
		c.isGCRA, c.gcra = true, *c.state.GCRA()
	}
	return c
}

// peek says what a charge would meet at an instant, where the caller's clock says now, or
// false if the word is marked.
func (c *cell) peek(at, now Instant, cost int64) (Decision, bool) {
	word := c.word.Load()
	if word == mark {
		return Decision{}, false
	}
	_, ok := c.state.Take(word, int64(at), cost)
	return newDecision(c.state.Verdict(word, int64(at), cost, ok), now), true
}

// refused returns d as a refusal that can be retried at at.
func (d Decision) refused(at int64, now Instant) Decision {
	d.Allowed, d.Reason = false, Exhausted
	d.RetryAfter = compiled.Until(at, int64(now))
	if at == algo.Never {
		d.Reason = TooCostly
	}
	return d
}
