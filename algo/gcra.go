package algo

import "math/bits"

// GCRA is the generic cell rate algorithm: a steady rate with a burst on top.
//
// It promises that in any interval Δ at most burst + rate × (Δ + 1 ns) units
// are granted, at any concurrency, with holds, refunds and expiries counted.
// Burst 1 means that no two units are granted closer together than per/rate.
//
// It costs one 64-bit word per key. Bit 63 of the word is never set, so that
// a caller may use it as a mark. Zero means never used.
//
// The word is the theoretical arrival time, TAT: the tick at which the key
// will have paid off what it took. With t = tick(now), U ticks per unit and B
// units of burst, a charge of c units
//
//	is admitted if  max(TAT, t) + c×U ≤ t + B×U
//	and then        TAT = max(TAT, t) + c×U
//	remaining     = ⌊(t + B×U − max(TAT, t)) / U⌋
//	retry at        the first instant with tick ≥ TAT + c×U − B×U
//	reset at        the first instant with tick ≥ TAT
//
// Example: 10 per second with burst 5 has U = 10^8 ticks of one nanosecond.
// Five units at t = 0 move TAT to 0.5 s: nothing remains, and one more unit fits
// at 0.5 s + 0.1 s − 0.5 s = 0.1 s. Charged there, TAT becomes 0.6 s.
//
// Edges. A clock that steps back makes t smaller and the test stricter, never
// looser. Idling for any time leaves TAT in the past, where it counts as t. A
// cost above the burst never fits. Debt beyond what may be owed is not booked. A
// TAT that is further ahead than that was not written by this rule: Heal, and
// every operation of a Ledger, pulls it back, so that a poisoned word heals
// within (burst + debt + cost) × per/rate while real debt is kept. The steps on
// bare words do not heal, because a now that is merely old would look the same.
// Holds raise TAT as Holds describes; their formula is at effective.
//
// Source: ITU-T I.371 (virtual scheduling); redis-cell for the vocabulary.
type GCRA struct {
	ticks
	burst uint64 // B×U
	most  uint64 // (B + debt)×U: how far TAT may be ahead
	units int64  // B
	fill  Fill
}

// NewGCRA returns the rule for rate units per per nanoseconds with the given
// burst. Debt is how many units beyond the burst may be owed (by overruns, debits
// or a lowered limit) before they are forgotten; 0 stands for all that fit.
func NewGCRA(rate, per, burst, debt int64, fill Fill) (*GCRA, error) {
	if err := checkGCRA(rate, per, burst, debt, fill); err != nil {
		return nil, err
	}
	tk, ok := newTicks(rate, per)
	if !ok {
		return nil, badParam("rate", rate, "more than two units per nanosecond; at most %d fit in this period", 2*per)
	}
	most := fillable(rate, per)
	if burst > most {
		return nil, badParam("burst", burst, "would take more than 40 years to refill; at most %d fit at this rate", most)
	}
	if room := min(most-burst, MaxCost); debt == 0 {
		debt = room
	} else if debt > room {
		return nil, badParam("max_debt", debt, "more than can be remembered beside the burst; at most %d fit at this rate", room)
	}
	return &GCRA{
		ticks: tk,
		burst: uint64(burst) * tk.unit,
		most:  uint64(burst+debt) * tk.unit,
		units: burst,
		fill:  fill,
	}, nil
}

func checkGCRA(rate, per, burst, debt int64, fill Fill) error {
	if err := checkCount("rate", rate); err != nil {
		return err
	}
	if err := checkPer(per); err != nil {
		return err
	}
	if err := checkCount("burst", burst); err != nil {
		return err
	}
	if debt < 0 {
		return badParam("max_debt", debt, "must not be negative")
	}
	return checkFill(fill)
}

// fillable returns how many units refill within maxFill.
func fillable(rate, per int64) int64 {
	hi, lo := bits.Mul64(uint64(rate), uint64(maxFill))
	if hi >= uint64(per) {
		return MaxRate
	}
	q, _ := bits.Div64(hi, lo, uint64(per))
	return int64(min(q, uint64(MaxRate)))
}

// Capacity returns the burst, the most units that ever fit at once.
func (g *GCRA) Capacity() int64 { return g.units }

// SameRate says whether units are replenished as fast as those of another limit.
func (g *GCRA) SameRate(o *GCRA) bool { return g.same(&o.ticks) }

// Words returns 1.
func (g *GCRA) Words() int { return 1 }

// Take charges cost units at now if they fit and returns the next word; a
// refusal returns the word as it was. Cost must lie between 0 and MaxCost.
func (g *GCRA) Take(tat uint64, now, cost int64) (next uint64, ok bool) {
	if uint64(cost-1) >= uint64(g.units) { // nothing to take, or too much
		return tat, cost == 0
	}
	if next, ok = g.Step(tat, g.Tick(now), cost); !ok {
		return tat, false
	}
	return next, true
}

// Step is the heart of Take, small enough to be inlined: at tick t it returns
// the word that a charge of cost leaves, and whether the charge fits. If it
// does not, the word must stay as it was. Cost must be at least 1 and at most
// Capacity.
func (g *GCRA) Step(tat, t uint64, cost int64) (next uint64, ok bool) {
	next = max(tat, t) + uint64(cost)*g.unit
	return next, next <= t+g.burst
}

// RetryTick returns the tick from which a charge fits that Step refused with
// next.
func (g *GCRA) RetryTick(next uint64) uint64 { return next - g.burst }

// View is the meaning of a word at an instant.
type View struct {
	Remaining int64 // units that fit
	RetryAt   int64 // when the charge fits
	ResetAt   int64 // when the key equals an unused one
}

// View returns the view of a word for a charge of cost.
func (g *GCRA) View(tat uint64, now, cost int64) View {
	t := g.Tick(now)
	v := View{Remaining: g.Room(tat, t), RetryAt: now, ResetAt: now}
	if tat > t {
		v.ResetAt = max(now, g.First(tat))
	}
	switch need := max(tat, t) + uint64(cost)*g.unit; {
	case cost > g.units:
		v.RetryAt = Never
	case need > t+g.burst && cost > 0:
		v.RetryAt = max(now, g.First(need-g.burst))
	}
	return v
}

// Remaining returns how many units fit at now.
func (g *GCRA) Remaining(tat uint64, now int64) int64 {
	return g.Room(tat, g.Tick(now))
}

// Room returns how many units fit at tick t.
func (g *GCRA) Room(tat, t uint64) int64 {
	full := t + g.burst
	return int64(g.perUnit.quo(full - min(max(tat, t), full)))
}

// RetryAt returns the first instant at which cost units fit if nothing else
// happens: now if they fit already, Never if they cannot.
func (g *GCRA) RetryAt(tat uint64, now, cost int64) int64 { return g.View(tat, now, cost).RetryAt }

// ResetAt returns the first instant at which the key is as if unused.
func (g *GCRA) ResetAt(tat uint64, now int64) int64 { return g.View(tat, now, 0).ResetAt }

// Heal returns the word, pulled back to where a TAT can be at most at now. It is
// for words that come from elsewhere, such as a file; now must not be older
// than the word.
func (g *GCRA) Heal(tat uint64, now int64) uint64 { return min(tat, g.Tick(now)+g.most) }

// usage returns the limit status of a word at tick t. It is a faster UsageOf, for
// comparing many words.
func (g *GCRA) usage(tat, t uint64) Usage {
	if tat <= t {
		return Usage{}
	}
	owed := min(tat-t, g.most)
	return Usage{
		Used:  int64(g.perUnit.quo(owed + g.unit - 1)),
		Share: float64(owed) / float64(g.burst),
		Full:  owed+g.unit > g.burst,
	}
}

// GrantedSince returns the earliest instant at which Take can have written the
// word.
func (g *GCRA) GrantedSince(tat uint64) int64 {
	return g.First(tat - min(tat, g.burst))
}

// Fresh returns the word of a key that was never used, for a limiter that was
// started at epoch. It is zero unless the rule starts less than full.
func (g *GCRA) Fresh(epoch int64) State {
	if g.fill == 0 {
		return State{}
	}
	hi, lo := bits.Mul64(g.burst, uint64(g.fill))
	missing, rest := bits.Div64(hi, lo, FillSteps)
	if rest > 0 {
		missing++
	}
	return State{A: g.Tick(epoch) + missing}
}

// effective returns TAT at now with the holds counted, and now's tick.
//
// Let eᵢ be the expiries in ascending order and Sᵢ the units of hold i and all
// that expire after it. A hold keeps its units' room occupied until it ends,
// as if they were taken again at every moment:
//
//	effective = max(TAT, t, maxᵢ(tick(min(now, eᵢ)) + Sᵢ×U))
//
// Among the holds that live on, the first has the largest sum and stands for all, so
// that only those are looked at which are over and not yet part of TAT; Sᵢ of the
// first that lives on is what is left of the sum. The suffix sums matter: neither
// the largest single hold nor the plain sum keeps the bound once holds overlap and
// are settled in another order.
func (g *GCRA) effective(tat uint64, hs *Holds, now int64) (eff, t uint64) {
	t = g.Tick(now)
	eff = min(max(tat, t), t+g.most)
	sum := hs.units
	if hs.anyOver(now) {
		for h := range hs.all() {
			if h.Expiry > now {
				break
			}
			eff = max(eff, g.raised(g.Tick(h.Expiry), sum, t))
			sum -= h.Units
		}
	}
	if sum == 0 {
		return eff, t
	}
	return max(eff, g.raised(t, sum, t)), t
}

// raised returns tick + units×U, at most as far as a TAT may be ahead at t.
func (g *GCRA) raised(tick uint64, units int64, t uint64) uint64 {
	return addCap(tick, mulSat(uint64(units), g.unit), t+g.most)
}

func (g *GCRA) admits(s *State, hs *Holds, now, cost int64) bool {
	eff, t := g.effective(s.A, hs, now)
	return cost <= g.units && eff+uint64(cost)*g.unit <= t+g.burst
}

// take charges cost units if they fit, and returns false if they do not. It does what
// admits, charge, remaining and resetAt do, and looks at the state once.
func (g *GCRA) take(s *State, hs *Holds, now, cost int64) (Verdict, bool) {
	eff, t := g.effective(s.A, hs, now)
	next := eff + uint64(cost)*g.unit
	if cost > g.units || next > t+g.burst {
		return Verdict{}, false
	}
	s.A = next
	return Verdict{OK: true, Limit: g.units, Remaining: g.Room(next, t), RetryAt: now, ResetAt: g.resetFrom(next, t, hs, now)}, true
}

func (g *GCRA) charge(s *State, hs *Holds, now, cost int64) {
	eff, t := g.effective(s.A, hs, now)
	s.A = g.raised(eff, cost, t)
}

// fold makes the holds that are over at now part of TAT. Holds that live on may
// be counted too: they raise every later TAT at least as much.
func (g *GCRA) fold(s *State, hs *Holds, now int64) {
	eff, t := g.effective(s.A, hs, now)
	if eff > t {
		s.A = eff
	}
}

func (g *GCRA) refund(s *State, hs *Holds, _, now, units int64) int64 {
	eff, _ := g.effective(s.A, hs, now)
	s.A = eff - min(eff, mulSat(uint64(units), g.unit)) // holds may exceed the cap after a Set
	return units
}

func (g *GCRA) reset(s *State, _ *Holds, _ int, _ int64) { s.A = 0 }

func (g *GCRA) remaining(s *State, hs *Holds, now int64) int64 {
	return g.Room(g.effective(s.A, hs, now))
}

// retryAt assumes that holds run to their expiry. Hold i lets the charge
// pass if Sᵢ×U leaves room for it, and otherwise only when it has expired and
// the excess has been paid off. As Sᵢ falls from hold to hold, the holds are looked
// at only until it leaves room.
func (g *GCRA) retryAt(s *State, hs *Holds, now, cost int64) int64 {
	if cost > g.units {
		return Never
	}
	t := g.Tick(now)
	room := g.burst - uint64(cost)*g.unit
	need := min(max(s.A, t), t+g.most)
	sum := hs.units
	for h := range hs.all() {
		held := mulSat(uint64(sum), g.unit)
		if held <= room && h.Expiry > now {
			break
		}
		if h.Expiry == Never {
			return Never
		}
		end := g.Tick(h.Expiry)
		need = max(need, addCap(end, held, end+g.most))
		sum -= h.Units
	}
	if need <= t+room {
		return now
	}
	return max(now, g.First(need-room))
}

// resetAt is an upper bound while holds are open, so that it looks at the last of
// them only: all may be held until then. It is exact with one hold, or none.
func (g *GCRA) resetAt(s *State, hs *Holds, now int64) int64 {
	eff, t := g.effective(s.A, hs, now)
	return g.resetFrom(eff, t, hs, now)
}

// resetFrom is resetAt where the effective TAT and now's tick are known.
func (g *GCRA) resetFrom(need, t uint64, hs *Holds, now int64) int64 {
	if held := hs.openUnits(now); held > 0 {
		last := hs.last().Expiry
		if last == Never {
			return Never
		}
		end := g.Tick(last)
		need = max(need, addCap(end, mulSat(uint64(held), g.unit), end+g.most))
	}
	if need <= t {
		return now
	}
	return max(now, g.First(need))
}

func (g *GCRA) used(s *State, hs *Holds, now int64) int64 {
	eff, t := g.effective(s.A, hs, now)
	return int64(g.perUnit.quo(eff - t + g.unit - 1))
}

func (g *GCRA) countsSince(*State, int64) int64 { return countsAll }

func (g *GCRA) book(now, used int64) (State, error) {
	owed := mulSat(uint64(used), g.unit)
	if owed > g.most {
		return State{}, g.overfull(used)
	}
	return State{A: g.Tick(now) + owed}, nil
}

func (g *GCRA) overfull(used int64) error {
	return badParam("used", used, "units in use exceed what the new limit can remember; at most %d fit", g.perUnit.quo(g.most))
}

// adopt converts the state of another GCRA: what was owed in units is owed
// in units, to the tick and rounded up.
func (g *GCRA) adopt(old Rule, s *State, hs *Holds, now int64) (State, bool, error) {
	o, ok := old.(*GCRA)
	if !ok {
		return State{}, false, nil
	}
	eff, t := o.effective(s.A, hs, now)
	if eff == t {
		return State{}, true, nil
	}
	if o.ticks.same(&g.ticks) {
		if eff-t > g.most {
			return State{}, true, g.overfull(o.used(s, hs, now))
		}
		return State{A: eff}, true, nil
	}
	hi, lo := bits.Mul64(eff-t, g.unit)
	lo, carry := bits.Add64(lo, o.unit-1, 0)
	if hi += carry; hi >= o.unit {
		return State{}, true, g.overfull(o.used(s, hs, now))
	}
	owed, _ := bits.Div64(hi, lo, o.unit)
	if owed > g.most {
		return State{}, true, g.overfull(o.used(s, hs, now))
	}
	return State{A: g.Tick(now) + owed}, true, nil
}
