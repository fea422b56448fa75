package pacer

import (
	"cmp"
	"slices"

	"github.com/weirlimit/weir/internal/mono"
)

// Positions that were taken but not used go back, so that a cancelled wait takes
// nothing from those who come after. If nobody has taken a later position, the
// counter steps back. Otherwise they are kept for the next callers: nobody who
// waits already has to wait longer, and nobody's time changes.

// giveBack returns positions that were not used.
func (p *Pacer) giveBack(s span) {
	if p.next.CompareAndSwap(s.at+s.n, s.at) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keepLocked(s)
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
	p.expireLocked(mono.Now())
	for i := range p.given {
		if s := &p.given[i]; s.n >= n {
			got := span{s.at, n}
			s.at, s.n = s.at+n, s.n-n
			if s.n == 0 {
				p.given = slices.Delete(p.given, i, i+1)
			}
			p.spare.Add(-n)
			return got, true
		}
	}
	return span{}, false
}

// expireLocked drops the positions that were due before anybody may be late.
func (p *Pacer) expireLocked(now int64) {
	pl := p.plan.Load()
	for len(p.given) > 0 {
		s := &p.given[0]
		over := now - pl.maxLate - pl.due(s.at)
		if over <= 0 {
			return
		}
		n := min(s.n, max(1, int64(pl.slice.units(over))))
		p.expired += n
		p.expiredTime += pl.slice.times(n)
		p.spare.Add(-n)
		if s.at, s.n = s.at+n, s.n-n; s.n == 0 {
			p.given = slices.Delete(p.given, 0, 1)
		}
	}
}
