package algo

import (
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// withinBound says whether sum ≤ burst + rate × (Δ + 1 ns)/per.
func withinBound(s ruleSpec, sum, delta int64) bool {
	left := big.NewInt(sum - s.burst)
	left.Mul(left, big.NewInt(s.per))
	right := big.NewInt(delta + 1)
	right.Mul(right, big.NewInt(s.rate))
	return left.Cmp(right) <= 0
}

// pair drives a ledger and its model side by side.
type pair struct {
	t       rapid.TB
	real    *Ledger
	model   *ledgerModel
	specs   []ruleSpec
	now     int64 // as given; may go back
	open    []openHold
	settled []int64 // ids
	grants  []grant
	history []string
	tainted bool // there was an overrun, a debit, a reset or a change: no bound
}

type openHold struct {
	id            int64
	since, expiry int64
	units         int64
}

func newPair(t rapid.TB, specs []ruleSpec) *pair {
	p := &pair{t: t, model: newLedgerModel(specs), specs: specs, now: start}
	p.real = NewLedger(p.build(specs), start)
	return p
}

func (p *pair) build(specs []ruleSpec) []Rule {
	rules := make([]Rule, len(specs))
	for i, s := range specs {
		r, err := s.build()
		if err != nil {
			p.t.Fatalf("%+v: %v", s, err)
		}
		rules[i] = r
	}
	return rules
}

func (p *pair) fail(format string, args ...any) {
	p.t.Helper()
	for _, h := range p.history {
		p.t.Log(h)
	}
	p.t.Fatalf("rules %+v\nat %d (last %d): %s", p.specs, p.now, p.model.last, fmt.Sprintf(format, args...))
}

func (p *pair) note(format string, args ...any) {
	p.history = append(p.history, fmt.Sprintf("+%d: ", p.now-start)+fmt.Sprintf(format, args...))
}

// check compares a verdict with the model, as it is after the charge.
func (p *pair) check(now int64, v Verdict, cost int64, allowed bool) {
	p.t.Helper()
	r := p.model.rules[v.By]
	if v.OK != allowed {
		p.fail("cost %d: OK = %v: %+v", cost, v.OK, v)
	}
	if v.Limit != r.capacity() {
		p.fail("limit %d, want %d", v.Limit, r.capacity())
	}
	if want := r.room(now, p.model.holds); v.Remaining != want {
		p.fail("cost %d: remaining %d, want %d: %+v", cost, v.Remaining, want, v)
	}
	p.checkReset(now, v)
	if want := !v.OK && !v.TooCostly && p.model.held(now); v.Held != want {
		p.fail("cost %d: Held %v, want %v: %+v", cost, v.Held, want, v)
	}
	if allowed {
		p.checkTightest(now, v)
		return
	}
	p.checkRetry(now, v, cost)
}

// checkReset asks whether ResetAt is the first instant that is as if unused or, with
// holds open, the bound that SEMANTICS gives.
func (p *pair) checkReset(now int64, v Verdict) {
	p.t.Helper()
	r := p.model.rules[v.By]
	unused := func(at int64) bool { return r.unused(at, p.model.holds) }
	if g, ok := r.(*gcraModel); ok && v.ResetAt != Never && !unused(v.ResetAt) {
		p.fail("reset at %d (+%d), when something is in use: %+v", v.ResetAt, v.ResetAt-now, v)
	} else if ok {
		unused = func(at int64) bool { return g.surelyUnused(at, now, p.model.holds) }
	}
	if !isFirst(v.ResetAt, now, unused) {
		p.fail("reset at %d (+%d), want %d: %+v", v.ResetAt, v.ResetAt-now, firstInstant(now, unused), v)
	}
}

// isFirst says whether at is the first instant from now on at which ok holds.
func isFirst(at, now int64, ok func(int64) bool) bool {
	if at == Never {
		return !ok(far)
	}
	return at >= now && ok(at) && (at == now || !ok(at-1))
}

// checkTightest: the least remaining, of several the longest reset.
func (p *pair) checkTightest(now int64, v Verdict) {
	p.t.Helper()
	if v.RetryAt != now || v.TooCostly {
		p.fail("admitted with %+v", v)
	}
	for i, r := range p.model.rules {
		room := r.room(now, p.model.holds)
		if room < v.Remaining {
			p.fail("rule %d has %d remaining: %+v", i, room, v)
		}
		if room > v.Remaining || i == int(v.By) {
			continue
		}
		at := firstInstant(now, func(at int64) bool { return r.unused(at, p.model.holds) })
		if at > v.ResetAt || at == v.ResetAt && i < int(v.By) {
			p.fail("rule %d resets at %d: %+v", i, at, v)
		}
	}
}

// checkRetry: the first instant at which all admit; By is the one that refuses
// until then.
func (p *pair) checkRetry(now int64, v Verdict, cost int64) {
	p.t.Helper()
	hs := p.model.holds
	all := func(at int64) bool { return p.model.admits(at, cost) }
	if v.RetryAt <= now || !isFirst(v.RetryAt, now, all) {
		p.fail("cost %d: retry at %d (+%d), want %d: %+v", cost, v.RetryAt, v.RetryAt-now, firstInstant(now, all), v)
	}
	before := v.RetryAt - 1
	if v.RetryAt == Never {
		before = far
	}
	by := slices.IndexFunc(p.model.rules, func(r ruleModel) bool { return cost > r.capacity() })
	tooCostly := by >= 0 // goes before a hold that never expires
	if !tooCostly {
		by = slices.IndexFunc(p.model.rules, func(r ruleModel) bool { return !admits(r, before, cost, hs) })
	}
	if int(v.By) != by || v.TooCostly != tooCostly {
		p.fail("cost %d: %+v, want by %d, too costly %v", cost, v, by, tooCostly)
	}
}

// peekAll checks what a ledger answers without changing it.
func (p *pair) peekAll() {
	p.t.Helper()
	now := max(p.now, p.model.last)
	for _, cost := range []int64{0, 1, 2, 5} {
		p.check(now, p.real.Peek(now, cost), cost, p.model.admits(now, cost))
	}
}

func (p *pair) take(cost int64) {
	p.t.Helper()
	p.note("take %d", cost)
	before := p.real.Clone()
	v := p.real.Take(p.now, cost)
	ok := p.model.take(p.now, cost)
	p.check(p.model.last, v, cost, ok)
	if !ok || cost == 0 {
		p.unchanged(before)
		return
	}
	p.grants = append(p.grants, grant{p.model.last, p.model.last, cost})
}

// debit is take without a refusal: what is granted so is no part of a bound.
func (p *pair) debit(cost int64) {
	p.t.Helper()
	p.note("debit %d", cost)
	before := p.real.Clone()
	v := p.real.Debit(p.now, cost)
	p.model.debit(p.now, cost)
	p.check(p.model.last, v, cost, true)
	if cost == 0 {
		p.unchanged(before)
		return
	}
	p.tainted = true
}

// unchanged compares all that can be observed of two ledgers, now and later.
func (p *pair) unchanged(before *Ledger) {
	p.t.Helper()
	for _, at := range []int64{p.model.last, p.model.last + p.specs[0].length()} {
		for _, cost := range []int64{1, 3} {
			if a, b := before.Peek(at, cost), p.real.Peek(at, cost); a != b {
				p.fail("cost %d at %d: was %+v, is %+v", cost, at, a, b)
			}
		}
	}
}

func (p *pair) reserve(cost, expiry int64) {
	p.t.Helper()
	p.note("reserve %d until +%d", cost, expiry-start)
	before := p.real.Clone()
	id, v := p.real.Reserve(p.now, cost, expiry)
	want, ok := p.model.reserve(p.now, cost, expiry)
	p.check(p.model.last, v, cost, ok)
	if int64(id) != want {
		p.fail("reserve %d: id %d, want %d", cost, id, want)
	}
	if !ok {
		p.unchanged(before)
		return
	}
	p.open = append(p.open, openHold{want, p.model.last, expiry, cost})
}

func (p *pair) settle(i int, used int64) {
	p.t.Helper()
	h := p.open[i]
	p.note("settle %d with %d of %d", h.id, used, h.units)
	got, want := p.real.Settle(p.now, uint64(h.id), used), p.model.settle(p.now, h.id, used)
	if got != want {
		p.fail("settle %d of %+v: %+v, want %+v", used, h, got, want)
	}
	if want.Overrun > 0 {
		p.tainted = true
	}
	if want.Late {
		used = h.units
	}
	p.close(i, used)
	p.settled = append(p.settled, h.id)
	p.settleAgain()
}

// settleAgain settles what was settled before, as after a lost reply: the outcome is the
// same, whatever was used, and nothing changes.
func (p *pair) settleAgain() {
	p.t.Helper()
	for i, id := range p.settled[max(0, len(p.settled)-4):] {
		got, want := p.real.Settle(p.now, uint64(id), int64(i)), p.model.settle(p.now, id, int64(i))
		if got != want {
			p.fail("settle %d again: %+v, want %+v", id, got, want)
		}
		if p.real.Renew(p.now, uint64(id), p.now+hour) {
			p.fail("renewed %d after it was settled", id)
		}
	}
	p.peekAll()
}

// close books what a hold granted: its used units, at any instant of its life.
func (p *pair) close(i int, used int64) {
	h := p.open[i]
	p.grants = append(p.grants, grant{h.since, max(h.since, min(p.model.last, h.expiry)), used})
	p.open = append(p.open[:i:i], p.open[i+1:]...)
}

func (p *pair) renew(i int, expiry int64) {
	p.t.Helper()
	h := &p.open[i]
	p.note("renew %d until +%d", h.id, expiry-start)
	got, want := p.real.Renew(p.now, uint64(h.id), expiry), p.model.renew(p.now, h.id, expiry)
	if got != want {
		p.fail("renew %+v: %v, want %v", *h, got, want)
	}
	if want {
		h.expiry = max(expiry, p.model.last)
	}
}

func (p *pair) reset() {
	p.t.Helper()
	p.note("reset")
	p.real.Reset(p.now)
	p.model.reset(p.now)
	p.tainted = true
}

func (p *pair) set(specs []ruleSpec) {
	p.t.Helper()
	from := make([]int, len(specs))
	for i := range from {
		from[i] = i
	}
	p.note("set %+v", specs)
	before := p.real.Clone()
	err := p.real.Set(p.now, p.build(specs), from)
	ok := p.model.set(p.now, specs)
	if ok != (err == nil) {
		p.fail("set %+v: %v, want ok = %v", specs, err, ok)
	}
	if !ok {
		var bad *ParamError
		if !errors.As(err, &bad) || bad.Field != "used" {
			p.fail("set %+v: error %#v", specs, err)
		}
		p.unchanged(before)
		return
	}
	p.specs = specs
	p.tainted = true
}

// held returns the units in open holds.
func (p *pair) held() int64 {
	sum := int64(0)
	for _, h := range p.model.holds {
		sum += h.units
	}
	return sum
}

// finish settles nothing more and checks the bounds of what was granted.
func (p *pair) finish() {
	p.t.Helper()
	for len(p.open) > 0 {
		p.close(0, p.open[0].units)
	}
	if p.tainted {
		return
	}
	for _, s := range p.specs {
		if s.kind == kindGCRA {
			checkBound(p.t, s, p.grants)
		}
	}
}

// drive makes random steps.
func drive(t rapid.TB, src source, changes bool) {
	specs := make([]ruleSpec, between(src, 1, 3))
	for i := range specs {
		specs[i] = drawSpec(src, kindGCRA, kindGCRA, kindFixed, kindAnchored, kindSliding, kindLog, kindSlots)
	}
	p := newPair(t, specs)
	for src.more() {
		p.step(src, changes)
	}
	p.finish()
}

func (p *pair) step(src source, changes bool) {
	length := pick(src, p.specs...).length()
	if oneIn(src, 4) {
		p.now += length
		p.peekAll() // with holds that are over and that nothing has folded yet
	}
	p.now += drawStep(src, length)
	p.now = min(max(p.now, start-year), start+30*year)
	capacity := pick(src, p.specs...).model().capacity()
	switch op := src.upTo(15); {
	case op < 5:
		p.take(drawCost(src, capacity))
	case op < 8:
		expiry := p.now + pick(src, 0, 1, length, 3*length, src.upTo(10*length))
		if oneIn(src, 10) {
			expiry = Never
		}
		p.reserve(drawCost(src, capacity), expiry)
	case op < 11 && len(p.open) > 0:
		i := int(src.upTo(int64(len(p.open) - 1)))
		used := src.upTo(p.open[i].units)
		if changes && oneIn(src, 6) {
			used += src.upTo(5)
		}
		p.settle(i, used)
	case op == 11 && len(p.open) > 0:
		p.renew(int(src.upTo(int64(len(p.open)-1))), p.now+src.upTo(4*length)-length)
	case op == 12 && changes && oneIn(src, 3):
		p.reset()
	case op == 13 && changes:
		p.change(src)
	case op == 14 && changes:
		p.debit(drawCost(src, capacity) * pick[int64](src, 1, 1, 3))
	default: // to the edge of something
		p.toEdge(src)
	}
	p.peekAll()
}

// toEdge goes to the instant at which a refused charge is admitted, or to a
// hold's expiry, or to a nanosecond before.
func (p *pair) toEdge(src source) {
	at := p.real.Peek(p.now, drawCost(src, 8)).RetryAt
	if len(p.open) > 0 && oneIn(src, 2) {
		at = p.open[0].expiry
	}
	if at < start+30*year && at > p.now {
		p.now = at - src.upTo(1)
		p.take(1)
	}
}

// change puts similar or quite other rules in force.
func (p *pair) change(src source) {
	specs := make([]ruleSpec, len(p.specs))
	copy(specs, p.specs)
	i := src.upTo(int64(len(specs) - 1))
	s := &specs[i]
	switch src.upTo(4) {
	case 0:
		// the same
	case 1:
		s.burst = between(src, 1, 12)
		if s.kind != kindGCRA {
			s.rate = between(src, 1, 12)
		}
	case 2:
		if s.kind == kindGCRA {
			s.rate, s.per = between(src, 1, 40), between(src, 20, 5_000)
		}
	default:
		*s = drawSpec(src, kindGCRA, kindGCRA, kindFixed, kindAnchored, kindSliding, kindLog, kindSlots)
	}
	if s.burst == 0 {
		s.burst = 1
	}
	if p.avoid(*s) {
		return
	}
	p.set(specs)
}

// avoid names the change that the model does not define: to a GCRA that cannot
// represent what is held, see TestSetHeldBeyondDebt.
func (p *pair) avoid(next ruleSpec) bool {
	p.real.advance(p.now)
	p.model.advance(p.now)
	g, ok := next.model().(*gcraModel)
	return ok && g.clock.units(p.held()).Cmp(g.most) > 0
}

func TestLedgerModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { drive(t, fromRapid(t, 60), true) })
}

// TestLedgerBound leaves out overruns, debits, resets and changes, so that the bound of
// every GCRA holds wherever in its life a hold's units were used.
func TestLedgerBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { drive(t, fromRapid(t, 60), false) })
}

// TestLedgerSeeds drives the same traces every time, so that what they once
// caught stays caught.
func TestLedgerSeeds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		drive(t, &randSource{rand.New(rand.NewPCG(seed, 1)), 60}, seed%2 == 0) //nolint:gosec // the same every time
	}
}

// TestLedgerHolds spells SEMANTICS 4 out: 1 per second with a burst of 10.
func TestLedgerHolds(t *testing.T) {
	const s = second
	type op struct {
		at     int64 // seconds after start
		what   string
		hold   int   // which reservation
		n      int64 // cost, or used
		expiry int64
	}
	for name, c := range map[string]struct {
		ops  []op
		at   int64
		want int64 // remaining at at
	}{
		"held units occupy room, whatever time passes": {
			[]op{{0, "reserve", 0, 4, 100}, {0, "reserve", 1, 4, 200}}, 50, 2,
		},
		"all of them, until the first expires": {
			[]op{{0, "reserve", 0, 4, 100}, {0, "reserve", 1, 4, 200}}, 100, 2,
		},
		"from then on it is paid off": {
			[]op{{0, "reserve", 0, 4, 100}, {0, "reserve", 1, 4, 200}}, 102, 4,
		},
		"down to what is still held": {
			[]op{{0, "reserve", 0, 4, 100}, {0, "reserve", 1, 4, 200}}, 150, 6,
		},
		"taken beside a hold": {
			[]op{{0, "reserve", 0, 4, 100}, {50, "take", 0, 6, 0}}, 50, 0,
		},
		"cancelled late": {
			[]op{{0, "reserve", 0, 4, 100}, {50, "settle", 0, 0, 0}}, 50, 10,
		},
		"used whole, settled late": {
			[]op{{0, "reserve", 0, 4, 100}, {50, "settle", 0, 4, 0}}, 50, 6,
		},
		"used in part, beside another": {
			[]op{{0, "reserve", 0, 4, 100}, {0, "reserve", 1, 4, 200}, {50, "settle", 0, 1, 0}}, 50, 5,
		},
		"the later one settled first": {
			[]op{{0, "reserve", 0, 4, 100}, {0, "reserve", 1, 4, 200}, {50, "settle", 1, 0, 0}}, 50, 6,
		},
		"overrun": {
			[]op{{0, "reserve", 0, 4, 100}, {50, "settle", 0, 9, 0}}, 50, 1,
		},
		"reset keeps holds": {
			[]op{{0, "reserve", 0, 4, 100}, {0, "take", 0, 6, 0}, {0, "reset", 0, 0, 0}}, 0, 6,
		},
		"renewed": {
			[]op{{0, "reserve", 0, 4, 20}, {10, "renew", 0, 0, 100}}, 50, 6,
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLedger([]Rule{must(t, gcraSpec(1, second, 10))}, start)
			var ids []uint64
			for _, o := range c.ops {
				now := start + o.at*s
				switch o.what {
				case "reserve":
					id, v := l.Reserve(now, o.n, start+o.expiry*s)
					if !v.OK {
						t.Fatalf("%+v: %+v", o, v)
					}
					ids = append(ids, id)
				case "take":
					if v := l.Take(now, o.n); !v.OK {
						t.Fatalf("%+v: %+v", o, v)
					}
				case "settle":
					l.Settle(now, ids[o.hold], o.n)
				case "renew":
					l.Renew(now, ids[o.hold], start+o.expiry*s)
				case "reset":
					l.Reset(now)
				}
			}
			if v := l.Peek(start+c.at*s, 1); v.Remaining != c.want {
				t.Errorf("%d remaining, want %d: %+v", v.Remaining, c.want, v)
			}
		})
	}
}
