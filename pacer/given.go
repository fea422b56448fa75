package pacer

import (
	"cmp"
	"slices"
)

// Positions that were taken but not used are returned, so that a cancelled wait takes
// nothing from later callers. If no later position was taken, the
// counter is decremented. Otherwise the positions are kept for the next callers, and the times
// of waiting callers do not change.

// giveBack returns positions that were not used.
func (p *Pacer) giveBack(s span) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.at < p.plan.Load().first { // from before a restart
		return
	}
	if p.next.CompareAndSwap(s.at+s.n, s.at) {
		return
	}
	p.keepLocked(s)
	select {
	case p.returned <- struct{}{}:
	default:
	}
}

// older exchanges a position for an earlier one that was returned, if there is one.
// It is called by the holder of the turn: when the mode becomes strict, all waiting callers
// return their positions, and the first to get the turn may not be the first in line.
func (p *Pacer) older(s span) span {
	if p.spare.Load() < s.n {
		return s
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expireLocked()
	if len(p.given) == 0 || p.given[0].at > s.at || p.given[0].n < s.n {
		return s
	}
	got := p.cutLocked(0, s.n)
	p.keepLocked(s)
	return got
}

// cutLocked takes n positions from the beginning of a span.
func (p *Pacer) cutLocked(i int, n int64) span {
	s := &p.given[i]
	got := span{s.at, n}
	if s.at, s.n = s.at+n, s.n-n; s.n == 0 {
		p.given = slices.Delete(p.given, i, i+1)
	}
	p.spare.Add(-n)
	return got
}

// keepLocked keeps positions for the next callers.
func (p *Pacer) keepLocked(s span) {
	i, _ := slices.BinarySearchFunc(p.given, s, func(a, b span) int { return cmp.Compare(a.at, b.at) })
	p.given = slices.Insert(p.given, i, s)
	p.join(i)
	p.spare.Add(s.n)
	p.stepBackLocked()
}

// join makes one span of those around i that touch.
func (p *Pacer) join(i int) {
	if i+1 < len(p.given) && p.given[i].at+p.given[i].n == p.given[i+1].at {
		p.given[i].n += p.given[i+1].n
		p.given = slices.Delete(p.given, i+1, i+2)
	}
	if i > 0 && p.given[i-1].at+p.given[i-1].n == p.given[i].at {
		p.given[i-1].n += p.given[i].n
		p.given = slices.Delete(p.given, i, i+1)
	}
}

// stepBackLocked steps the counter back over spans at its end.
func (p *Pacer) stepBackLocked() {
	for len(p.given) > 0 {
		last := p.given[len(p.given)-1]
		if !p.next.CompareAndSwap(last.at+last.n, last.at) {
			return
		}
		p.given = p.given[:len(p.given)-1]
		p.spare.Add(-last.n)
	}
}

// reuse takes the oldest n positions in a row that were given back, or returns
// false if there are none. Those that are too late to be used are dropped.
func (p *Pacer) reuse(n int64) (span, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expireLocked()
	for i := range p.given {
		if p.given[i].n >= n {
			return p.cutLocked(i, n), true
		}
	}
	return span{}, false
}

// expireLocked drops the positions whose lateness exceeds the maximum.
func (p *Pacer) expireLocked() {
	pl := p.plan.Load()
	now := pl.time()
	for len(p.given) > 0 {
		s := &p.given[0]
		n := int64(0)
		if over := now - pl.maxLate - pl.due(s.at); over > 0 {
			n = max(1, int64(pl.slice.units(over)))
		}
		if over := now - pl.credit - pl.peak(s.at); over > 0 && pl.peaks(s.at) {
			n = max(n, 1, int64(pl.peakSlice.units(over)))
		}
		if n = min(n, s.n); n == 0 {
			return
		}
		p.expired += n
		p.expiredTime += pl.allottedTo(s.at+n) - pl.allottedTo(s.at)
		p.cutLocked(0, n)
	}
}
