package prepaid

import (
	"fmt"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/mono"
	"github.com/weirlimit/weir/internal/storeapi"
)

// Limiter is a limiter for many cores that share one limit. It takes units from
// the limit in blocks, ahead of need, and spends them without a clock or a shared
// cache line: an Allow costs a third of a weir.Single's
// with one goroutine, and less with many.
//
// The bound is the same. Prepaid units are held, as a reservation's are: they
// occupy room until they are spent, so spending them late grants nothing extra.
// Credit is not stranded either: a call that finds the limit used up first reclaims
// the unspent credit of all stripes and is refused only if that is not enough.
//
// Two things differ from weir.Single. Calls are served from the credit of their stripe, not
// strictly in the order of their arrival. And the spent part of a block counts as of when
// the block is settled, because the time at which a unit is spent is not recorded: after an
// idle time the burst is short by the spent part of the open blocks, at most half of it
// and 256 units for each of four blocks per processor.
//
// Use it where a profile shows that Allow on one limiter contends. It has only
// Allow, Take and Set, takes one limit of GCRA or TokenBucket, and gains nothing
// if the burst is below a few hundred units. Make one with New.
type Limiter struct {
	stripes []stripe // set by New; a power of two
	shift   uint8    // set by New; leaves the bits of a stripe number

	// refusedUntil is the first instant at which a unit may fit again, written
	// under mu when a refusal has found no credit anywhere. Until then time is
	// all that can change the answer, so readers need no lock. Set clears it.
	refusedUntil atomic.Int64

	mu     sync.Mutex // guards everything below, and the blocks of the stripes
	policy *weir.Policy
	ledger *algo.Ledger // its holds are the stripes' blocks
}

// A stripe is the prepaid credit of a part of the goroutines.
//
// Protocol. Any goroutine subtracts from credit; a negative result means that there
// was none, and negative values have no other meaning. The holder of mu replaces
// credit with Swap, which returns exactly the unspent units of the block:
// they were not spent, and no longer can be.
type stripe struct {
	credit atomic.Int64
	hold   uint64 // the ledger's hold for the block
	block  int64  // units of the block when it was taken; 0 = none
	_      [104]byte
}

// maxBlock is the most units that are prepaid at once for one stripe.
const maxBlock = 256

// New returns a limiter with prepaid credit. Its error has a *LimitError.
func New(limit weir.Limit) (*Limiter, error) {
	policy, err := prepaidPolicy(limit)
	if err != nil {
		return nil, err
	}
	n := bits.Len(uint(min(4*runtime.GOMAXPROCS(0), 128)) - 1)
	return &Limiter{
		stripes: make([]stripe, 1<<n),
		shift:   uint8(64 - n),
		policy:  policy,
		ledger:  algo.NewLedger(policy.Compiled().Rules, mono.Now()),
	}, nil
}

func prepaidPolicy(limit weir.Limit) (*weir.Policy, error) {
	policy, err := weir.NewPolicy("prepaid", limit)
	if err != nil {
		return nil, err
	}
	if l := policy.Limits()[0]; l.Algorithm != weir.GCRA && l.Algorithm != weir.TokenBucket {
		return nil, &weir.LimitError{Policy: policy.Name(), Limit: l.Name, Field: "algorithm", Value: l.Algorithm, Problem: "prepaid units need GCRA or TokenBucket"}
	}
	return policy, nil
}

// Allow takes one unit and says whether it could.
func (p *Limiter) Allow() bool {
	s := p.stripe()
	if s.credit.Add(-1) >= 0 {
		return true
	}
	now := mono.Now()
	if now < p.refusedUntil.Load() {
		return false
	}
	return p.takeAt(s, weir.Instant(now), 1).Allowed
}

// Take charges cost units if they fit, and none otherwise. Remaining and
// ResetAfter do not count what is prepaid.
func (p *Limiter) Take(cost int64) weir.Decision {
	if storeapi.CheckCost(cost) != nil {
		return weir.Decision{Reason: weir.Invalid, RetryAfter: weir.Never}
	}
	return p.takeAt(p.stripe(), weir.Now(), cost)
}

// stripe returns the stripe of the calling goroutine. Go does not expose on which
// processor a goroutine runs, but goroutines that run at once have different
// stacks, so the stack's address distinguishes them well enough; the choice of the
// stripe affects speed only.
func (p *Limiter) stripe() *stripe {
	var here byte
	h := uint64(uintptr(unsafe.Pointer(&here))>>11) * 0x9E37_79B9_7F4A_7C15
	return &p.stripes[h>>(p.shift&63)]
}

// takeAt takes cost units from the limit and, if there is plenty, prepays.
func (p *Limiter) takeAt(s *stripe, now weir.Instant, cost int64) weir.Decision {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cost == 1 && s.block > 0 && s.credit.Add(-1) >= 0 { // refilled meanwhile
		return p.decision(p.ledger.Peek(int64(now), 0), now)
	}
	p.reclaim(s, now)
	v := p.ledger.Take(int64(now), cost)
	if !v.OK && !v.TooCostly {
		for i := range p.stripes {
			p.reclaim(&p.stripes[i], now)
		}
		v = p.ledger.Take(int64(now), cost)
	}
	if !v.OK && cost == 1 {
		p.refusedUntil.Store(v.RetryAt)
	}
	if v.OK {
		p.prepay(s, now, v.Remaining)
	}
	return p.decision(v, now)
}

// decision is storeapi.Decision, except that ResetAt does not include the blocks, which
// have no expiry.
func (p *Limiter) decision(v algo.Verdict, now weir.Instant) weir.Decision {
	gcra := p.policy.Compiled().Rules[0].(*algo.GCRA)
	v.ResetAt = gcra.ResetAt(p.ledger.State(0).A, int64(now))
	return storeapi.Decision(v, now)
}

// reclaim settles a stripe's block: what was spent is charged as of now, the rest
// is given back. It requires mu.
func (p *Limiter) reclaim(s *stripe, now weir.Instant) {
	if s.block == 0 {
		return
	}
	unspent := max(0, s.credit.Swap(0))
	p.ledger.Settle(int64(now), s.hold, s.block-unspent)
	s.block = 0
}

// prepay takes a block for a stripe: a fraction of what remains, so that near the
// limit every unit is taken by itself. It requires mu.
func (p *Limiter) prepay(s *stripe, now weir.Instant, remaining int64) {
	block := min(maxBlock, remaining/int64(2*len(p.stripes)))
	if block == 0 {
		return
	}
	id, v := p.ledger.Reserve(int64(now), block, algo.Never)
	if v.OK {
		s.hold, s.block = id, block
		s.credit.Store(block)
	}
}

// Set changes the limit and keeps what was used, as Single.Set does.
func (p *Limiter) Set(limit weir.Limit) error {
	policy, err := prepaidPolicy(limit)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if policy.Same(p.policy) {
		return nil
	}
	now := weir.Now()
	for i := range p.stripes {
		p.reclaim(&p.stripes[i], now)
	}
	if err := p.ledger.Set(int64(now), policy.Compiled().Rules, []int{0}); err != nil {
		return fmt.Errorf("prepaid: set: %w", err)
	}
	p.policy = policy
	p.refusedUntil.Store(0)
	return nil
}

// Limit returns the limit in force, with defaults filled in.
func (p *Limiter) Limit() weir.Limit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.policy.Limits()[0]
}
