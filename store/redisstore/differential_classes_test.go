package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// The same with classes in every policy.
func TestLuaLikeGoWithClasses(t *testing.T) {
	redis := redistest.Start(t)
	for _, seed := range seeds(t, short(2, 40)) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			d := newDuel(t, redis, seed)
			d.drawClasses()
			for d.steps < 5000 {
				if d.oneIn(2) {
					d.stepWithHolds()
				} else {
					d.step()
				}
			}
			d.peekAll()
			t.Logf("seed %d: %+v", seed, d.tally)
			if v := d.tally; v.admitted < 500 || v.lending < 50 || v.paced < 50 || v.held == 0 || v.refunded == 0 {
				t.Errorf("seed %d: it was a dull duel: %+v", seed, d.tally)
			}
		})
	}
}

// drawClasses draws policies with classes, which lend to each other in all of them but one.
func (d *duel) drawClasses() {
	d.policies, d.free, d.small = nil, nil, nil
	lending := func() weir.Limit { return d.named("main", weir.Lending) }
	for range 2 {
		d.add(lending())
	}
	for _, a := range []weir.Algorithm{weir.GCRA, weir.SlidingWindow, weir.SlidingLog, weir.FixedWindow, weir.AnchoredWindow, weir.Concurrency} {
		d.add(lending(), d.named("b", a))
	}
	d.add(d.named("b", weir.SlidingLog), lending(), d.named("c", weir.Concurrency))
	d.add(lending(), d.paced("b"))
	d.add(d.paced("b"), lending(), d.named("c", weir.GCRA))
	d.add(d.paced("main"))
	d.sort()
}

// paced draws a calendar window that paces a class, which gets few units in a window, or about one in every base.
func (d *duel) paced(name string) weir.Limit {
	l := weir.Limit{Name: name, Per: weir.Calendar(one(d, weir.Day, weir.Week, weir.Month), one(d, duelZones...)), Pace: "slow"}
	l.Rate = one(d, 1+int64(d.upTo(30)), 1+int64(24*time.Hour/d.base), 1+int64(7*24*time.Hour/d.base))
	return l
}

var duelClasses = []string{"slow", "fast", "third", "d", "e", "f", "g", "h"} // as many as there can be

// lending draws the rest of a limit with classes. Go and Lua count its levels in parts of which all rates have a
// whole number per µs, so they agree whatever the rates are.
func (d *duel) lending(l weir.Limit) weir.Limit {
	if d.oneIn(3) {
		l.Rate = one[int64](d, 60, 100, 250, 997, 1000, 3600)
	}
	l.Burst = int64(1 + d.upTo(11))
	if d.oneIn(3) {
		l.MaxDebt = int64(1 + d.upTo(7))
	}
	l.Classes = d.classes(l.Rate, l.Burst)
	return l
}

// classes draws what classes have of a rate and a burst, mostly not all of it.
func (d *duel) classes(rate, burst int64) weir.Classes {
	var list []weir.Class
	names := duelClasses[:1+d.upTo(2)]
	if d.oneIn(8) {
		names = duelClasses
	}
	for _, name := range names {
		c := weir.Class{Name: name, Guaranteed: int64(d.upTo(int(rate)))}
		if c.Guaranteed > 0 && burst > 0 {
			c.Burst = 1 + int64(d.upTo(int(burst-1)))
			c.NoBorrow = d.oneIn(4)
		} else {
			c.Guaranteed = 0
		}
		rate, burst = rate-c.Guaranteed, burst-c.Burst
		list = append(list, c)
	}
	d.rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return weir.ClassesOf(list...)
}

// ofClass returns a policy for charges of one of its classes, or of none.
func (d *duel) ofClass(p *weir.Policy) *weir.Policy {
	names := p.ClassNames()
	if len(names) == 0 || d.oneIn(8) {
		return p
	}
	return weir.Must(p.Class(one(d, names...)))
}

// recall lets nobody borrow, where that helps, after a charge to a row that is there was refused.
func (b *book) recall(c weir.Charge, now weir.Instant, hold bool) {
	at, l := b.row(c)
	if b.rows[at] != nil && l.Recall(int64(now), c.Cost, hold) {
		b.rows[at] = l
		b.tally.recalled++
	}
}

// recallAll is recall for a batch that was refused: of several charges of a row, it considers the first.
func (b *book) recallAll(batch *weir.Batch, decisions []weir.Decision, now weir.Instant) {
	seen := map[rowOf]bool{}
	for i, c := range batch.Charges {
		at := rowOf{c.Policy.Name(), c.Key}
		if !seen[at] && !decisions[i].Allowed {
			b.recall(c, now, batch.Op == weir.ReserveAll)
		}
		seen[at] = true
	}
}
