package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirlimit/weir"
)

// A classLoad is a random load of the classes of a limit: takes, reservations that are settled, renewed
// or expire, and overruns. It knows what was granted, and what each class would have with a limit of
// its own.
type classLoad struct {
	*rig
	rnd     *rand.Rand
	limit   weir.Limit
	classes []*loadedClass
	spells  []spell
}

// loadUnit is how long a unit of a classLoad's limit takes.
const loadUnit = time.Millisecond

// A loadedClass is a class and a limit of its own beside it, which has its guaranteed rate and burst and is
// charged whatever the class is granted.
type loadedClass struct {
	weir.Class
	policy, own *weir.Policy
	holds       []*classHold
}

// A classHold is an open reservation. Own is that of the class's own limit, nil if it did not fit there.
type classHold struct {
	all, own *weir.Reservation
	units    int64
	expiry   weir.Instant
	spell    int
}

// A spell is units that were granted, and when they may have been used.
type spell struct {
	from, until weir.Instant
	units       int64
}

// key is that of the only key under the policies of a load.
const loadKey = "k"

func newClassLoad(r *rig, seed uint64) *classLoad {
	l := &classLoad{rig: r, rnd: rand.New(rand.NewPCG(seed, 19))} //nolint:gosec // the same every time
	rate, burst := 2+l.rnd.Int64N(20), 4+l.rnd.Int64N(40)
	l.limit = weir.Limit{Rate: rate, Per: weir.Every(time.Duration(rate) * loadUnit), Burst: burst}
	if l.rnd.IntN(3) == 0 {
		l.limit.MaxDebt = 1 + l.rnd.Int64N(2*burst)
	}
	names := []string{"a", "b", "c"}[:2+l.rnd.IntN(2)]
	var list []weir.Class
	for i, name := range names {
		c := weir.Class{Name: name, Guaranteed: 1 + l.rnd.Int64N(max(1, rate/2)), Burst: 1 + l.rnd.Int64N(max(1, burst/2))}
		if i == len(names)-1 && l.rnd.IntN(3) > 0 { // nothing is nobody's
			c.Guaranteed, c.Burst = rate, burst
		}
		if c.Guaranteed, c.Burst = min(c.Guaranteed, rate), min(c.Burst, burst); c.Guaranteed < 1 || c.Burst < 1 {
			break
		}
		rate, burst = rate-c.Guaranteed, burst-c.Burst
		list = append(list, c)
	}
	l.limit.Classes = weir.ClassesOf(list...)
	p := r.policy(fmt.Sprint("load-", seed), l.limit)
	for i, view := range r.classes(p, p.ClassNames()...) {
		c := list[i]
		own := weir.Limit{Rate: c.Guaranteed, Per: l.limit.Per, Burst: c.Burst, MaxDebt: l.limit.MaxDebt}
		l.classes = append(l.classes, &loadedClass{Class: c, policy: view, own: r.policy(fmt.Sprint("own-", seed, "-", c.Name), own)})
	}
	return l
}

// step does one thing.
func (l *classLoad) step() {
	l.clock.Pass([]time.Duration{0, 0, l.res(), loadUnit, loadUnit, 3 * loadUnit, 9 * loadUnit}[l.rnd.IntN(7)])
	l.expire()
	c := l.classes[l.rnd.IntN(len(l.classes))]
	cost := 1 + l.rnd.Int64N(max(1, l.limit.Burst/(1+l.rnd.Int64N(6))))
	switch n := l.rnd.IntN(20); {
	case n < 7:
		if l.take(c.policy, loadKey, cost).Allowed {
			l.debit(c.own, cost)
			l.spells = append(l.spells, spell{l.clock.Now(), l.clock.Now(), cost})
		}
	case n < 14:
		l.reserve(c, cost)
	case n < 19:
		l.end(c)
	default:
		l.debit(c.policy, 3*cost)
		l.debit(c.own, 3*cost)
	}
}

func (l *classLoad) debit(p *weir.Policy, n int64) { l.do(weir.DebitEach, charge(p, loadKey, n)) }

func (l *classLoad) tryReserve(p *weir.Policy, ttl time.Duration, cost int64) *weir.Reservation {
	res, err := weir.Reserve(background(), l.limiter, ttl, charge(p, loadKey, cost))
	if err != nil {
		l.t.Fatalf("%s: error %v", callText("reserve", charge(p, loadKey, cost)), err)
	}
	if !res.Decision.Allowed {
		return nil
	}
	return res
}

func (l *classLoad) reserve(c *loadedClass, cost int64) {
	ttl := loadUnit * []time.Duration{1, 15, 60, 200}[l.rnd.IntN(4)]
	h := &classHold{all: l.tryReserve(c.policy, ttl, cost), units: cost, expiry: l.clock.Now().Add(ttl), spell: len(l.spells)}
	if h.all == nil {
		return
	}
	if h.own = l.tryReserve(c.own, ttl, cost); h.own == nil {
		l.debit(c.own, cost)
	}
	c.holds = append(c.holds, h)
	l.spells = append(l.spells, spell{l.clock.Now(), h.expiry, cost})
}

// end settles or renews a reservation of a class.
func (l *classLoad) end(c *loadedClass) {
	if len(c.holds) == 0 {
		return
	}
	i := l.rnd.IntN(len(c.holds))
	h, s := c.holds[i], &l.spells[c.holds[i].spell]
	if l.rnd.IntN(4) == 0 {
		ttl := loadUnit * time.Duration(1+l.rnd.IntN(100))
		l.wantRenewed(h.all, ttl, true)
		if h.own != nil {
			l.wantRenewed(h.own, ttl, true)
		}
		h.expiry = l.clock.Now().Add(ttl)
		s.until = h.expiry
		return
	}
	used := l.rnd.Int64N(h.units + 1)
	if l.rnd.IntN(8) == 0 {
		used *= 3
	}
	want := weir.Settled{Refunded: max(0, h.units-used), Overrun: max(0, used-h.units)}
	l.wantSettled(h.all, want, used)
	if h.own != nil {
		l.wantSettled(h.own, want, used)
	} else {
		l.debit(c.own, max(used, h.units)) // what was held could not be saved up meanwhile
	}
	s.until, s.units = l.clock.Now(), min(used, h.units)
	c.holds = slices.Delete(c.holds, i, i+1)
}

// expire forgets reservations that are over.
func (l *classLoad) expire() {
	for _, c := range l.classes {
		c.holds = slices.DeleteFunc(c.holds, func(h *classHold) bool {
			over := h.expiry <= l.clock.Now()
			if over && h.own == nil {
				l.debit(c.own, h.units)
			}
			return over
		})
	}
}

// free returns how much of its burst a class does not hold, or 0 if its own limit does not hold the
// same.
func (c *loadedClass) free() int64 {
	free := c.Burst
	for _, h := range c.holds {
		if h.own == nil {
			return 0
		}
		free -= h.units
	}
	return free
}

// wantGuaranteed checks that no class is worse off than its own limit.
func (l *classLoad) wantGuaranteed() {
	l.t.Helper()
	b := weir.Batch{Op: weir.PeekEach}
	for _, c := range l.classes {
		for _, cost := range []int64{1, c.free()} {
			if c.free() >= cost && cost > 0 {
				b.Charges = append(b.Charges, charge(c.policy, loadKey, cost), charge(c.own, loadKey, cost))
			}
		}
	}
	if len(b.Charges) == 0 {
		return
	}
	l.run(&b)
	for i := 0; i < len(b.Charges); i += 2 {
		if got, own := b.Decisions[i], b.Decisions[i+1]; got.RetryAfter > own.RetryAfter+l.res() {
			l.t.Fatalf("%s:\n      got %s\nby itself %s", callText("peek", b.Charges[i]), show(got), show(own))
		}
	}
}

// wantBound checks that in no interval more was granted than the limit allows.
func (l *classLoad) wantBound() {
	l.t.Helper()
	for _, begin := range l.spells {
		for _, end := range l.spells {
			if end.from < begin.until {
				continue
			}
			var granted int64
			for _, s := range l.spells {
				if s.until >= begin.until && s.from <= end.from {
					granted += s.units
				}
			}
			if length := end.from.Sub(begin.until); granted > l.limit.Burst+int64(length/loadUnit) {
				l.t.Fatalf("%v: %d units were granted within %v", l.limit, granted, length)
			}
		}
	}
}

// No class is ever worse off than with a limit of its own, whatever the others take, hold, settle and
// owe; and all together never get more than the burst and what came back.
func classGuarantee(r *rig) {
	for seed := range uint64(times(30)) {
		l := newClassLoad(r, seed)
		for range 40 {
			l.step()
			l.wantGuaranteed()
		}
		l.wantBound()
	}
}
