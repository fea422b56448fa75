package pacer

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// stripes hold positions that are due already, taken several at a time, so that cores
// which are all late do not contend for the counter's cache line with every start.
// No caller waits for such a position, so none is overtaken.
//
// A stripe is filled only while starts are so fast that the clock is not read
// each time, and with a small part of the due positions: a position that stays in a
// stripe is late for all callers. Once starts are slow again, the first
// call that reads the clock returns the positions of all stripes.
type stripes struct {
	stripe []stripe // set by newStripes; a power of two
	shift  uint8    // leaves the bits of a stripe's number

	batch  atomic.Int64 // how many to take besides one's own
	filled atomic.Bool  // there may be something in a stripe
}

// A stripe is some positions in a row.
//
//	word: the first position (56) | how many (8)
//
// Adding 1<<8 − 1 takes one. An empty word may have any first position.
type stripe struct {
	word atomic.Uint64
	_    [120]byte // padding: no two stripes share a cache line or an adjacent, prefetched one
}

const (
	stripeBits = 8
	stripeMask = 1<<stripeBits - 1
	maxBatch   = 64
	batchOf    = 16 // the part of what is due that may lie in one stripe
)

func newStripes() stripes {
	n := bits.Len(uint(min(4*runtime.GOMAXPROCS(0), 128)) - 1)
	return stripes{stripe: make([]stripe, 1<<n), shift: uint8(64 - n)}
}

// mine returns the stripe of the calling goroutine. Goroutines that run at once have
// different stacks, so the stack's address distinguishes them well enough; the choice of the
// stripe affects speed only.
func (ls *stripes) mine() *stripe {
	var here byte
	h := uint64(uintptr(unsafe.Pointer(&here))>>11) * 0x9E37_79B9_7F4A_7C15
	return &ls.stripe[h>>(ls.shift&63)]
}

// take takes a position from the stripe, or returns false if it is empty.
func (st *stripe) take() (at int64, ok bool) {
	for {
		w := st.word.Load()
		if w&stripeMask == 0 {
			return 0, false
		}
		if st.word.CompareAndSwap(w, w+1<<stripeBits-1) {
			return int64(w >> stripeBits), true
		}
	}
}

// put puts positions into the stripe, or returns false if it is not empty.
func (st *stripe) put(s span) bool {
	w := st.word.Load()
	return w&stripeMask == 0 && st.word.CompareAndSwap(w, uint64(s.at)<<stripeBits|uint64(s.n))
}

// empty takes everything out of the stripe.
func (st *stripe) empty() span {
	w := st.word.Swap(0)
	return span{int64(w >> stripeBits), int64(w & stripeMask)}
}

// units returns how many positions are in all stripes.
func (ls *stripes) units() (n int64) {
	if !ls.filled.Load() {
		return 0
	}
	for i := range ls.stripe {
		n += int64(ls.stripe[i].word.Load() & stripeMask)
	}
	return n
}

// claimSome takes the next position, and a batch for the stripe.
func (p *Pacer) claimSome(st *stripe) int64 {
	n := p.stripes.batch.Load()
	at := p.next.Add(1+n) - 1 - n
	if n == 0 {
		return at
	}
	p.stripes.filled.Store(true)
	if rest := (span{at + 1, n}); !st.put(rest) {
		p.giveBack(rest)
		return at
	}
	// Another goroutine may have emptied the stripes just before.
	p.stripes.filled.Store(true)
	if p.stripes.batch.Load() == 0 {
		if rest := st.empty(); rest.n > 0 {
			p.giveBack(rest)
		}
	}
	return at
}

// setBatch decides how many positions to take at once: some of those that are due
// at now, if starts come fast.
func (p *Pacer) setBatch(pl *plan, next, now int64, fast bool) {
	n := int64(0)
	if late := now - pl.due(next); fast && pl.quick && late > 0 && late <= pl.maxLate+lead && next < 1<<(64-stripeBits-1) {
		n = min(maxBatch, int64(pl.slice.units(late))/batchOf)
	}
	if n != p.stripes.batch.Load() {
		p.stripes.batch.Store(n)
	}
	if !fast && p.stripes.filled.Load() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.emptyStripesLocked()
	}
}

// emptyStripesLocked gives back what is in the stripes.
func (p *Pacer) emptyStripesLocked() {
	p.stripes.batch.Store(0)
	p.stripes.filled.Store(false)
	for i := range p.stripes.stripe {
		if s := p.stripes.stripe[i].empty(); s.n > 0 {
			p.keepLocked(s)
		}
	}
}
