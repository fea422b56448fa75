package pacer

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Pools counts tokens the way the mode Burst spends time: what nobody took in
// time is not lost, it waits and comes back at a bounded speed. It is a reference model, and
// for programs that refill tokens of their own. A Pacer has no tokens: it computes the same
// from the clock.
//
//	          ┌──────────┐  full  ┌──────────┐  full
//	Refill ──▶│  active  │───────▶│ waiting  │───────▶ forfeited
//	          └──────────┘        └──────────┘
//	               │                    │ (ratio − 1) per token refilled
//	               ▼                    ▼
//	             Take ◀────────── ┌──────────┐
//	                              │ backfill │
//	                              └──────────┘
//
// It promises that a refill may be cut in any way: 500 tokens at once, ten times
// 50 and 500 times one lead to the same state. And tokens are neither made nor
// lost: what was refilled has been granted or forfeited, or is in a pool.
//
// # Formula
//
// A refill is taken as the limit of ever smaller ones. Of n tokens, fill go to the
// active pool, and the other spill = n − fill to the waiting pool. While they come
// in, waiting tokens move to the backfill pool:
//
//	k     = ratio − 1
//	fill  = min(n, size − active)
//	moved = min(k × fill, waiting, room), then
//	moved = min(k × spill, waiting + spill, room)
//	room  = k × size − backfill
//
// In the first phase nothing comes in, and the waiting pool drains at k until it
// or the room is used up. In the second it gains 1 for each k it loses; if k > 1,
// it may run empty, and from then on what comes in goes straight on, so that
// waiting + spill is all that can move. What exceeds the waiting pool's bound in
// the end is forfeited. Both phases are minima of lines through the same state, so
// the two halves of a phase add up to the whole.
//
// Nothing is rounded: all of this is exact in millionths of a token, because k is
// a whole number of millionths and the active pool a whole number of tokens.
//
// # Example
//
// Size 1000, ratio 1.25, 1,750 tokens waiting and nothing else. A refill of 500
// makes 500 active, and 500 × 0.25 = 125 move to the backfill pool, which is half
// of its 250. (The source says 62.5 in one place and 125 in another. It is 125.)
//
// # Edges
//
// The backfill pool has a room of its own, so tokens that wait never take the room
// of those that come in. Tokens move only during a refill, never because of Take.
// Pools are refilled with at most 2^63−1 tokens in their life.
//
// The zero value is not useful, and Pools are not safe for concurrent use.
//
// Source: the design notes of EngineBlock's rate limiter, section Terms.
type Pools struct {
	size    int64  // set by NewPools, like k and reserve
	k       int64  // ratio − 1, in millionths
	reserve Amount // k × size, the size of the backfill pool

	most Amount // that may wait
	now  PoolState
}

// PoolState is where the tokens of Pools are. All that were refilled are in
// exactly one of the other fields.
type PoolState struct {
	Refilled int64 // 3000 since the start

	Active    int64  // 500, of at most size
	Backfill  Amount // 125, of at most size × (ratio − 1)
	Waiting   Amount // 1625
	Granted   int64  // 750 were taken
	Forfeited Amount // 0, the waiting pool was never full
}

// NewPools returns empty pools. The ratio is at least 1 and is rounded to
// millionths; at 1 there is no backfill. The waiting pool is unbounded.
func NewPools(size int64, burstRatio float64) (*Pools, error) {
	if size <= 0 {
		return nil, fmt.Errorf("pacer: pool size %d: want at least 1", size)
	}
	if !(burstRatio >= 1 && burstRatio <= maxRatio) { // nor NaN
		return nil, fmt.Errorf("pacer: burst ratio %v: want 1 to %d", burstRatio, maxRatio)
	}
	k := int64(math.Round(burstRatio*million)) - million
	return &Pools{size: size, k: k, reserve: product(size, k), most: mostAmount}, nil
}

// LimitWaiting bounds the waiting pool, and forfeits what is above. Less than 0
// is as 0: only what moves on at once is not lost.
func (p *Pools) LimitWaiting(most int64) {
	p.most = Amount{Tokens: max(0, most)}
	p.forfeit()
}

// Refill brings n tokens. It does nothing if n is less than 1.
func (p *Pools) Refill(n int64) {
	s := &p.now
	n = min(n, math.MaxInt64-s.Refilled)
	if n <= 0 {
		return
	}
	s.Refilled += n

	fill := min(n, p.size-s.Active)
	s.Active += fill
	p.move(fill)

	spill := n - fill
	s.Waiting = s.Waiting.plus(Amount{Tokens: spill})
	p.move(spill)
	p.forfeit()
}

// move lets tokens that wait into the backfill pool, as many as belong to n tokens
// that have come in.
func (p *Pools) move(n int64) {
	s := &p.now
	moved := product(n, p.k).atMost(s.Waiting).atMost(p.reserve.minus(s.Backfill))
	s.Waiting = s.Waiting.minus(moved)
	s.Backfill = s.Backfill.plus(moved)
}

// forfeit gives up what is too much to wait.
func (p *Pools) forfeit() {
	s := &p.now
	kept := s.Waiting.atMost(p.most)
	s.Forfeited = s.Forfeited.plus(s.Waiting.minus(kept))
	s.Waiting = kept
}

// Take takes n tokens, from the active pool first, or none. It returns false if
// there are not that many, or if n is negative.
func (p *Pools) Take(n int64) bool {
	s := &p.now
	active := min(n, s.Active)
	rest := Amount{Tokens: n - active}
	if n < 0 || s.Backfill.less(rest) {
		return false
	}
	s.Active -= active
	s.Backfill = s.Backfill.minus(rest)
	s.Granted += n
	return true
}

// State returns where the tokens are.
func (p *Pools) State() PoolState { return p.now }

// Amount is an exact number of tokens, Tokens + Millionths/1,000,000. It is never
// negative, and == compares two of them.
type Amount struct {
	Tokens     int64
	Millionths int64 // 0 to 999,999
}

const million = 1_000_000

var mostAmount = Amount{math.MaxInt64, million - 1}

// String returns the amount in decimals, such as "125" or "62.5".
func (a Amount) String() string {
	whole := strconv.FormatInt(a.Tokens, 10)
	if a.Millionths == 0 {
		return whole
	}
	digits := strconv.FormatInt(million+a.Millionths, 10)[1:] // with leading zeros
	return whole + "." + strings.TrimRight(digits, "0")
}

// product returns n × millionths/1,000,000 for numbers that are not negative, or
// mostAmount if that is less: no pool can have more, so it does as well.
func product(n, millionths int64) Amount {
	hi, lo := bits.Mul64(uint64(n), uint64(millionths))
	if hi >= million {
		return mostAmount
	}
	tokens, rest := bits.Div64(hi, lo, million)
	if tokens > math.MaxInt64 {
		return mostAmount
	}
	return Amount{int64(tokens), int64(rest)}
}

// plus returns a + b, which must not exceed mostAmount.
func (a Amount) plus(b Amount) Amount {
	sum := Amount{a.Tokens + b.Tokens, a.Millionths + b.Millionths}
	if sum.Millionths >= million {
		sum.Tokens++
		sum.Millionths -= million
	}
	return sum
}

// minus returns a − b, for b at most a.
func (a Amount) minus(b Amount) Amount {
	rest := Amount{a.Tokens - b.Tokens, a.Millionths - b.Millionths}
	if rest.Millionths < 0 {
		rest.Tokens--
		rest.Millionths += million
	}
	return rest
}

func (a Amount) less(b Amount) bool {
	return a.Tokens < b.Tokens || a.Tokens == b.Tokens && a.Millionths < b.Millionths
}

// atMost returns the smaller of a and b.
func (a Amount) atMost(b Amount) Amount {
	if b.less(a) {
		return b
	}
	return a
}
