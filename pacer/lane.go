package pacer

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// lanes hold positions that are due already, taken several at a time, so that cores
// which are all late do not fight for the counter's cache line with every start.
// Nobody waits for such a position, so nobody is overtaken.
//
// A lane is filled only while starts come so fast that nobody looks at the clock
// each time, and with a small part of what is due: what one goroutine has in its
// lane and does not start is late for all. Once starts come slowly again, the first
// who looks at the clock gives what is in all lanes back.
type lanes struct {
	lane  []lane // set by newLanes; a power of two
	shift uint8  // leaves the bits of a lane's number

	batch  atomic.Int64 // how many to take besides one's own
	filled atomic.Bool  // there may be something in a lane
}

// A lane is some positions in a row.
//
//	word: the first position (56) | how many (8)
//
// Adding 1<<8 − 1 takes one. An empty word may have any first position.
type lane struct {
	word atomic.Uint64
	_    [120]byte // others' lanes are on other cache lines, also on those fetched along
}

const (
	laneBits = 8
	laneMask = 1<<laneBits - 1
	maxBatch = 64
	batchOf  = 16 // the part of what is due that may lie in one lane
)

func newLanes() lanes {
	n := bits.Len(uint(min(4*runtime.GOMAXPROCS(0), 128)) - 1)
	return lanes{lane: make([]lane, 1<<n), shift: uint8(64 - n)}
}

// mine returns the lane of the calling goroutine. Those that run at once have
// different stacks, so the address of one tells them apart well enough; which lane
// it is matters to speed only.
func (ls *lanes) mine() *lane {
	var here byte
	h := uint64(uintptr(unsafe.Pointer(&here))>>11) * 0x9E37_79B9_7F4A_7C15
	return &ls.lane[h>>(ls.shift&63)]
}

// take takes a position from the lane, or returns false if it is empty.
func (l *lane) take() (at int64, ok bool) {
	for {
		w := l.word.Load()
		if w&laneMask == 0 {
			return 0, false
		}
		if l.word.CompareAndSwap(w, w+1<<laneBits-1) {
			return int64(w >> laneBits), true
		}
	}
}

// put puts positions into the lane, or returns false if it is not empty.
func (l *lane) put(s span) bool {
	w := l.word.Load()
	return w&laneMask == 0 && l.word.CompareAndSwap(w, uint64(s.at)<<laneBits|uint64(s.n))
}

// empty takes everything out of the lane.
func (l *lane) empty() span {
	w := l.word.Swap(0)
	return span{int64(w >> laneBits), int64(w & laneMask)}
}

// units returns how many positions are in all lanes.
func (ls *lanes) units() (n int64) {
	if !ls.filled.Load() {
		return 0
	}
	for i := range ls.lane {
		n += int64(ls.lane[i].word.Load() & laneMask)
	}
	return n
}

// claimSome takes the next position, and a batch for the lane.
func (p *Pacer) claimSome(l *lane) int64 {
	n := p.lanes.batch.Load()
	at := p.next.Add(1+n) - 1 - n
	if n == 0 {
		return at
	}
	p.lanes.filled.Store(true)
	if rest := (span{at + 1, n}); !l.put(rest) {
		p.giveBack(rest)
		return at
	}
	// Somebody may have emptied the lanes just before.
	p.lanes.filled.Store(true)
	if p.lanes.batch.Load() == 0 {
		if rest := l.empty(); rest.n > 0 {
			p.giveBack(rest)
		}
	}
	return at
}

// setBatch decides how many positions to take at once: some of those that are due
// at now, if starts come fast.
func (p *Pacer) setBatch(pl *plan, next, now int64, fast bool) {
	n := int64(0)
	if late := now - pl.due(next); fast && pl.quick && late > 0 && late <= pl.maxLate+lead && next < 1<<(64-laneBits-1) {
		n = min(maxBatch, int64(pl.slice.units(late))/batchOf)
	}
	if n != p.lanes.batch.Load() {
		p.lanes.batch.Store(n)
	}
	if !fast && p.lanes.filled.Load() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.emptyLanesLocked()
	}
}

// emptyLanesLocked gives back what is in the lanes.
func (p *Pacer) emptyLanesLocked() {
	p.lanes.batch.Store(0)
	p.lanes.filled.Store(false)
	for i := range p.lanes.lane {
		if s := p.lanes.lane[i].empty(); s.n > 0 {
			p.keepLocked(s)
		}
	}
}
