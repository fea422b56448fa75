package algo

import (
	"math/big"
	"slices"
)

// The models say what SEMANTICS.md says, slowly and in the plainest way: whole
// numbers of any size, lists and maps, no packed words, no shortcuts. They know
// only two questions, how many units fit at an instant and whether an instant
// is as if unused; when a charge can be retried follows from asking the first
// at every instant that matters.

// far is later than everything that the tests do and everything they wait for.
const far = Horizon

// ruleModel is one rule with its state.
type ruleModel interface {
	capacity() int64
	room(now int64, hs []*holdModel) int64
	unused(now int64, hs []*holdModel) bool
	// used is the number of units in use, rounded up.
	used(now int64, hs []*holdModel) int64
	// charge takes units whether they fit or not, and says where they went.
	charge(now, cost int64, hs []*holdModel) place
	// expire makes hs[0], which is over at now, part of the state.
	expire(now int64, hs []*holdModel)
	// giveBack returns units from where they went.
	giveBack(now, units int64, from place, hs []*holdModel) int64
	// reset keeps only what the holds hold.
	reset(now int64, hs []*holdModel, i int)
	// counts says whether what went to p is still in use.
	counts(now int64, p place) bool
	// become returns the model of spec that keeps the units in use, whether
	// places stay valid in it, and whether that is possible at all.
	become(spec ruleSpec, now int64, hs []*holdModel) (next ruleModel, kept, ok bool)
}

// place is where a hold's units were charged: a window, an entry, or nowhere.
type place struct {
	window  *int64
	entry   *logEntry
	nowhere bool
}

type holdModel struct {
	id, units, expiry int64
	places            []place // rule by rule
}

// ---- the clock of a rate ----

// rateClock counts units as time passes: at an instant, position/unit of them have
// passed since Epoch.
type rateClock struct {
	mul, div, unit *big.Int
}

var span = new(big.Int).Add(big.NewInt(Horizon-Epoch), big.NewInt(maxFill))

// exactClock has no rounding at all.
func exactClock(rate, per int64) *rateClock {
	r := big.NewRat(rate, per)
	return &rateClock{r.Num(), big.NewInt(1), r.Denom()}
}

// gridClock counts 2^k ticks a unit, k being the largest with which 100 years and
// the 40 that a limit may take to fill stay below 2^63.
func gridClock(rate, per int64) *rateClock {
	limit := new(big.Int).Lsh(big.NewInt(1), 63)
	limit.Sub(limit, big.NewInt(1))
	limit.Mul(limit, big.NewInt(per))
	for k := uint(200); ; k-- {
		mul := new(big.Int).Lsh(big.NewInt(rate), k)
		if new(big.Int).Mul(span, mul).Cmp(limit) <= 0 {
			return &rateClock{mul, big.NewInt(per), new(big.Int).Lsh(big.NewInt(1), k)}
		}
		if k == 0 {
			return nil // more than 2^63 ticks
		}
	}
}

// isExact says whether a unit takes a whole number of half nanoseconds.
func isExact(rate, per int64) bool {
	return new(big.Int).Rem(new(big.Int).Mul(big.NewInt(2), big.NewInt(per)), big.NewInt(rate)).Sign() == 0
}

func clockOf(rate, per int64) *rateClock {
	if isExact(rate, per) {
		return exactClock(rate, per)
	}
	return gridClock(rate, per)
}

func (c *rateClock) at(now int64) *big.Int {
	n := new(big.Int).Sub(big.NewInt(now), big.NewInt(Epoch))
	n.Mul(n, c.mul)
	return n.Div(n, c.div) // Euclidean: towards minus infinity as div > 0
}

func (c *rateClock) units(n int64) *big.Int { return new(big.Int).Mul(big.NewInt(n), c.unit) }

// ---- GCRA ----

type gcraModel struct {
	spec  ruleSpec
	clock *rateClock
	most  *big.Int // burst and debt
	tat   *big.Int
}

func newGCRAModel(s ruleSpec) *gcraModel {
	fillable := new(big.Int).Mul(big.NewInt(s.rate), big.NewInt(maxFill))
	fillable.Div(fillable, big.NewInt(s.per))
	debt := s.debt
	if debt == 0 {
		debt = MaxCost
		if room := fillable.Sub(fillable, big.NewInt(s.burst)); room.Cmp(big.NewInt(debt)) < 0 {
			debt = room.Int64()
		}
	}
	c := clockOf(s.rate, s.per)
	return &gcraModel{spec: s, clock: c, most: c.units(s.burst + debt), tat: new(big.Int)}
}

func (g *gcraModel) capacity() int64 { return g.spec.burst }

// effective is SEMANTICS 4 to the letter: max(TAT, t, maxᵢ(min(t, eᵢ) + Sᵢ × T)),
// over all holds, and section 3's clamp.
func (g *gcraModel) effective(now int64, hs []*holdModel) *big.Int {
	t := g.clock.at(now)
	eff := new(big.Int).Set(g.tat)
	if t.Cmp(eff) > 0 {
		eff.Set(t)
	}
	for i := range hs {
		sum := int64(0)
		for _, h := range hs[i:] {
			sum += h.units
		}
		at := g.clock.at(min(now, hs[i].expiry))
		at.Add(at, g.clock.units(sum))
		if at.Cmp(eff) > 0 {
			eff.Set(at)
		}
	}
	return g.clamp(eff, t)
}

func (g *gcraModel) clamp(eff, t *big.Int) *big.Int {
	if limit := new(big.Int).Add(t, g.most); eff.Cmp(limit) > 0 {
		return limit
	}
	return eff
}

// owed is how far the effective TAT is ahead.
func (g *gcraModel) owed(now int64, hs []*holdModel) *big.Int {
	eff := g.effective(now, hs)
	return eff.Sub(eff, g.clock.at(now))
}

func (g *gcraModel) room(now int64, hs []*holdModel) int64 {
	left := g.clock.units(g.spec.burst)
	left.Sub(left, g.owed(now, hs))
	if left.Sign() < 0 {
		return 0
	}
	return left.Div(left, g.clock.unit).Int64()
}

func (g *gcraModel) unused(now int64, hs []*holdModel) bool { return g.owed(now, hs).Sign() == 0 }

// surelyUnused says whether at is not before max(TAT, last expiry + S × T), with the
// holds that are open at now.
func (g *gcraModel) surelyUnused(at, now int64, hs []*holdModel) bool {
	need, last, sum := g.effective(now, hs), int64(0), int64(0)
	for _, h := range hs {
		if h.expiry > now {
			last, sum = h.expiry, sum+h.units
		}
	}
	if sum > 0 && last == Never {
		return false
	}
	if sum > 0 {
		end := g.clock.at(last)
		if bound := g.clamp(new(big.Int).Add(end, g.clock.units(sum)), end); bound.Cmp(need) > 0 {
			need = bound
		}
	}
	return g.clock.at(at).Cmp(need) >= 0
}

func (g *gcraModel) used(now int64, hs []*holdModel) int64 {
	return ceilDiv(g.owed(now, hs), g.clock.unit).Int64()
}

func (g *gcraModel) charge(now, cost int64, hs []*holdModel) place {
	eff := g.effective(now, hs)
	g.tat = g.clamp(eff.Add(eff, g.clock.units(cost)), g.clock.at(now))
	return place{}
}

func (g *gcraModel) expire(now int64, hs []*holdModel) {
	sum := int64(0)
	for _, h := range hs {
		sum += h.units
	}
	at := g.clock.at(hs[0].expiry)
	at.Add(at, g.clock.units(sum))
	if at.Cmp(g.tat) > 0 {
		g.tat = at
	}
	g.tat = g.clamp(g.tat, g.clock.at(now))
}

func (g *gcraModel) giveBack(now, units int64, _ place, hs []*holdModel) int64 {
	eff := g.effective(now, hs)
	g.tat = eff.Sub(eff, g.clock.units(units))
	return units
}

func (g *gcraModel) reset(int64, []*holdModel, int) { g.tat = new(big.Int) }

func (g *gcraModel) counts(int64, place) bool { return true }

// become keeps the used units as a fraction: TAT' = t + u × T, rounded up.
func (g *gcraModel) become(spec ruleSpec, now int64, hs []*holdModel) (ruleModel, bool, bool) {
	if spec.kind != kindGCRA {
		return bookModel(spec, now, g.used(now, hs))
	}
	next := newGCRAModel(spec)
	owed := g.owed(now, hs)
	owed = ceilDiv(owed.Mul(owed, next.clock.unit), g.clock.unit)
	next.tat = new(big.Int).Add(next.clock.at(now), owed)
	return next, true, owed.Cmp(next.most) <= 0
}

func ceilDiv(a, b *big.Int) *big.Int {
	q, r := new(big.Int).QuoRem(a, b, new(big.Int))
	if r.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}

// ---- fixed windows: clock, calendar, anchored ----

// windowModel counts units in one window after the other.
type windowModel struct {
	spec   ruleSpec
	window int64 // start of the last window that was charged
	opened bool
	count  int64
}

// start returns the start of the window that a charge at now would go to.
func (w *windowModel) start(now int64) int64 {
	var natural int64
	switch {
	case w.spec.cal != nil:
		natural, _ = w.spec.cal.Bounds(w.spec.cal.Number(now))
	case w.spec.kind == kindAnchored:
		if w.opened && now < w.window+w.spec.per {
			return w.window
		}
		return now
	default:
		natural = now - now%w.spec.per
	}
	if w.opened && w.window > natural {
		return w.window // the clock went back
	}
	return natural
}

func (w *windowModel) capacity() int64 { return w.spec.rate }

func (w *windowModel) used(now int64, _ []*holdModel) int64 {
	if w.opened && w.start(now) == w.window {
		return w.count
	}
	return 0
}

func (w *windowModel) room(now int64, _ []*holdModel) int64 {
	return max(0, w.spec.rate-w.used(now, nil))
}

func (w *windowModel) unused(now int64, _ []*holdModel) bool { return w.used(now, nil) == 0 }

func (w *windowModel) charge(now, cost int64, _ []*holdModel) place {
	used, start := w.used(now, nil), w.start(now)
	w.window, w.opened, w.count = start, true, used+cost
	return place{window: &start}
}

func (w *windowModel) expire(int64, []*holdModel) {}

func (w *windowModel) giveBack(now, units int64, p place, _ []*holdModel) int64 {
	if !w.counts(now, p) {
		return 0
	}
	w.count -= units
	w.closeIfEmpty()
	return units
}

// closeIfEmpty lets an anchored window with nothing in it be as if it had never
// been opened. Windows of the clock are so anyway.
func (w *windowModel) closeIfEmpty() {
	if w.spec.kind == kindAnchored && w.count == 0 {
		w.opened = false
	}
}

func (w *windowModel) counts(now int64, p place) bool {
	return p.window != nil && w.opened && *p.window == w.window && w.start(now) == w.window
}

func (w *windowModel) reset(now int64, hs []*holdModel, i int) {
	w.count = 0
	for _, h := range hs {
		if w.counts(now, h.places[i]) {
			w.count += h.units
		}
	}
	w.closeIfEmpty()
}

func (w *windowModel) become(spec ruleSpec, now int64, _ []*holdModel) (ruleModel, bool, bool) {
	same := spec.kind == w.spec.kind && spec.per == w.spec.per && spec.cal == w.spec.cal
	if same {
		next := *w
		next.spec = spec
		return &next, true, true
	}
	return bookModel(spec, now, w.used(now, nil))
}

// ---- the estimated window ----

type slidingModel struct {
	spec   ruleSpec
	units  map[int64]int64 // by start of window
	latest int64           // the last window that was charged
}

func newSlidingModel(s ruleSpec) *slidingModel {
	return &slidingModel{spec: s, units: map[int64]int64{}}
}

// moment returns the window and how far it has passed; a clock that went back
// stands at the start of the last window.
func (s *slidingModel) moment(now int64) (start, elapsed int64) {
	start = now - now%s.spec.per
	if start < s.latest {
		return s.latest, 0
	}
	return start, now - start
}

func (s *slidingModel) estimate(now int64) *big.Rat {
	start, elapsed := s.moment(now)
	covered := big.NewRat(s.spec.per-elapsed, s.spec.per)
	est := new(big.Rat).SetInt64(s.units[start-s.spec.per])
	est.Mul(est, covered)
	return est.Add(est, new(big.Rat).SetInt64(s.units[start]))
}

func (s *slidingModel) capacity() int64 { return s.spec.rate }

func (s *slidingModel) used(now int64, _ []*holdModel) int64 {
	est := s.estimate(now)
	return ceilDiv(est.Num(), est.Denom()).Int64()
}

func (s *slidingModel) room(now int64, _ []*holdModel) int64 {
	return max(0, s.spec.rate-s.used(now, nil))
}

func (s *slidingModel) unused(now int64, _ []*holdModel) bool { return s.estimate(now).Sign() == 0 }

func (s *slidingModel) charge(now, cost int64, _ []*holdModel) place {
	start, _ := s.moment(now)
	s.units[start] += cost
	s.latest = start
	return place{window: &start}
}

func (s *slidingModel) expire(int64, []*holdModel) {}

func (s *slidingModel) giveBack(now, units int64, p place, _ []*holdModel) int64 {
	if !s.counts(now, p) {
		return 0
	}
	s.units[*p.window] -= units
	return units
}

func (s *slidingModel) counts(now int64, p place) bool {
	start, _ := s.moment(now)
	return p.window != nil && (*p.window == start || *p.window == start-s.spec.per)
}

func (s *slidingModel) reset(_ int64, hs []*holdModel, i int) {
	clear(s.units)
	for _, h := range hs {
		if p := h.places[i]; p.window != nil {
			s.units[*p.window] += h.units
		}
	}
}

func (s *slidingModel) become(spec ruleSpec, now int64, _ []*holdModel) (ruleModel, bool, bool) {
	if spec.kind == kindSliding && spec.per == s.spec.per {
		next := *s
		next.spec = spec
		return &next, true, true
	}
	return bookModel(spec, now, s.used(now, nil))
}

// ---- the log ----

type logEntry struct{ at, units int64 }

type logModel struct {
	spec    ruleSpec
	entries []*logEntry
}

// moment is now or, if the clock went back, the youngest entry's instant.
func (l *logModel) moment(now int64) int64 {
	for _, e := range l.entries {
		now = max(now, e.at)
	}
	return now
}

func (l *logModel) capacity() int64 { return l.spec.rate }

func (l *logModel) used(now int64, _ []*holdModel) int64 {
	sum := int64(0)
	now = l.moment(now)
	for _, e := range l.entries {
		if now < e.at+l.spec.per {
			sum += e.units
		}
	}
	return sum
}

func (l *logModel) room(now int64, _ []*holdModel) int64 {
	return max(0, l.spec.rate-l.used(now, nil))
}

func (l *logModel) unused(now int64, _ []*holdModel) bool { return l.used(now, nil) == 0 }

func (l *logModel) charge(now, cost int64, _ []*holdModel) place {
	now = l.moment(now)
	l.mergeYoungest(now)
	e := &logEntry{now, cost}
	l.entries = append(l.entries, e)
	return place{entry: e}
}

// mergeYoungest moves the youngest entry to now if there are as many as the rate, which
// only an overrun or a lowered rate can bring about.
func (l *logModel) mergeYoungest(now int64) {
	instants := map[int64]bool{}
	youngest := int64(0)
	for _, e := range l.entries {
		if now < e.at+l.spec.per && e.units > 0 {
			instants[e.at] = true
			youngest = max(youngest, e.at)
		}
	}
	if int64(len(instants)) < l.spec.rate {
		return
	}
	for _, e := range l.entries {
		if e.at == youngest {
			e.at = now
		}
	}
}

func (l *logModel) expire(int64, []*holdModel) {}

func (l *logModel) giveBack(now, units int64, p place, _ []*holdModel) int64 {
	if !l.counts(now, p) {
		return 0
	}
	back := min(units, p.entry.units)
	p.entry.units -= back
	return back
}

func (l *logModel) counts(now int64, p place) bool {
	return p.entry != nil && now < p.entry.at+l.spec.per
}

func (l *logModel) reset(_ int64, hs []*holdModel, i int) {
	l.entries = nil
	for _, h := range hs {
		if e := h.places[i].entry; e != nil {
			e.units = 0
		}
	}
	for _, h := range hs { // several holds may share an entry after a Set
		if e := h.places[i].entry; e != nil {
			e.units += h.units
			if !slices.Contains(l.entries, e) {
				l.entries = append(l.entries, e)
			}
		}
	}
}

func (l *logModel) become(spec ruleSpec, now int64, _ []*holdModel) (ruleModel, bool, bool) {
	if spec.kind == kindLog && spec.per == l.spec.per {
		return &logModel{spec: spec, entries: l.entries}, true, true
	}
	return bookModel(spec, now, l.used(now, nil))
}

// ---- slots ----

type slotsModel struct{ spec ruleSpec }

func (s *slotsModel) capacity() int64 { return s.spec.rate }

func (s *slotsModel) room(now int64, hs []*holdModel) int64 {
	held := int64(0)
	for _, h := range hs {
		if now < h.expiry {
			held += h.units
		}
	}
	return max(0, s.spec.rate-held)
}

func (s *slotsModel) unused(now int64, hs []*holdModel) bool {
	return !slices.ContainsFunc(hs, func(h *holdModel) bool { return now < h.expiry })
}

func (s *slotsModel) used(int64, []*holdModel) int64                     { return 0 }
func (s *slotsModel) charge(int64, int64, []*holdModel) place            { return place{} }
func (s *slotsModel) expire(int64, []*holdModel)                         {}
func (s *slotsModel) giveBack(_, _ int64, _ place, _ []*holdModel) int64 { return 0 }
func (s *slotsModel) reset(int64, []*holdModel, int)                     {}
func (s *slotsModel) counts(int64, place) bool                           { return false }

func (s *slotsModel) become(spec ruleSpec, now int64, _ []*holdModel) (ruleModel, bool, bool) {
	return bookModel(spec, now, 0)
}

// ---- all of them ----

type ruleKind int

const (
	kindGCRA ruleKind = iota
	kindFixed
	kindAnchored
	kindSliding
	kindLog
	kindSlots
	kindCount
)

var kindNames = [...]string{"gcra", "fixed", "anchored", "sliding", "log", "slots"}

func (k ruleKind) String() string { return kindNames[k] }

// ruleSpec describes a rule, so that it can be built twice: for real and as a
// model.
type ruleSpec struct {
	kind      ruleKind
	rate, per int64
	burst     int64 // GCRA only
	debt      int64 // GCRA only; 0 = all that fit
	cal       *Calendar
}

func (s ruleSpec) build() (Rule, error) {
	switch s.kind {
	case kindGCRA:
		return NewGCRA(s.rate, s.per, s.burst, s.debt, 0)
	case kindFixed:
		if s.cal != nil {
			return NewCalendarFixed(s.rate, s.cal, 0)
		}
		return NewFixed(s.rate, s.per, 0)
	case kindAnchored:
		return NewAnchored(s.rate, s.per, 0)
	case kindSliding:
		return NewSliding(s.rate, s.per, 0)
	case kindLog:
		return NewSlidingLog(s.rate, s.per, 0)
	default:
		return NewSlots(s.rate)
	}
}

func (s ruleSpec) model() ruleModel {
	switch s.kind {
	case kindGCRA:
		return newGCRAModel(s)
	case kindFixed, kindAnchored:
		return &windowModel{spec: s}
	case kindSliding:
		return newSlidingModel(s)
	case kindLog:
		return &logModel{spec: s}
	default:
		return &slotsModel{spec: s}
	}
}

// bookModel returns the model of spec with so many units taken at now.
func bookModel(spec ruleSpec, now, used int64) (next ruleModel, kept, ok bool) {
	m := spec.model()
	if g, isGCRA := m.(*gcraModel); isGCRA && g.clock.units(used).Cmp(g.most) > 0 {
		return m, false, false
	}
	if used > 0 {
		m.charge(now, used, nil)
	}
	return m, spec.kind == kindSlots, true
}

// admits says whether a charge fits.
func admits(m ruleModel, now, cost int64, hs []*holdModel) bool {
	return cost == 0 || m.room(now, hs) >= cost
}

// firstInstant returns the first instant from now on at which ok holds, given that
// it goes on holding, or Never.
func firstInstant(now int64, ok func(int64) bool) int64 {
	if ok(now) {
		return now
	}
	if !ok(far) {
		return Never
	}
	lo, hi := now, far // not ok(lo), ok(hi)
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; ok(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi
}

// ---- the ledger ----

type ledgerModel struct {
	rules  []ruleModel
	holds  []*holdModel // by expiry
	past   []pastModel  // the latest settled
	last   int64
	nextID int64
}

type pastModel struct {
	id, until int64
	out       Settlement
}

func newLedgerModel(specs []ruleSpec) *ledgerModel {
	m := &ledgerModel{}
	for _, s := range specs {
		m.rules = append(m.rules, s.model())
	}
	return m
}

// advance moves to now and folds the holds that are over, in order.
func (m *ledgerModel) advance(now int64) int64 {
	m.last = max(m.last, now)
	for len(m.holds) > 0 && m.holds[0].expiry <= m.last {
		for _, r := range m.rules {
			r.expire(m.last, m.holds)
		}
		m.holds = m.holds[1:]
	}
	return m.last
}

func (m *ledgerModel) admits(now, cost int64) bool {
	for _, r := range m.rules {
		if !admits(r, now, cost, m.holds) {
			return false
		}
	}
	return true
}

// held says whether an unexpired hold is open at now.
func (m *ledgerModel) held(now int64) bool {
	return slices.ContainsFunc(m.holds, func(h *holdModel) bool { return h.expiry > now })
}

func (m *ledgerModel) take(now, cost int64) bool {
	now = m.advance(now)
	if !m.admits(now, cost) {
		return false
	}
	m.charge(now, cost)
	return true
}

func (m *ledgerModel) debit(now, cost int64) { m.charge(m.advance(now), cost) }

func (m *ledgerModel) charge(now, cost int64) []place {
	places := make([]place, len(m.rules))
	for i, r := range m.rules {
		if cost > 0 {
			places[i] = r.charge(now, cost, m.holds)
		}
	}
	return places
}

func (m *ledgerModel) reserve(now, cost, expiry int64) (id int64, ok bool) {
	now = m.advance(now)
	if !m.admits(now, cost) {
		return 0, false
	}
	m.nextID++
	m.add(&holdModel{m.nextID, cost, expiry, m.charge(now, cost)})
	return m.nextID, true
}

func (m *ledgerModel) add(h *holdModel) {
	m.holds = append(m.holds, h)
	slices.SortStableFunc(m.holds, func(a, b *holdModel) int {
		switch {
		case a.expiry < b.expiry:
			return -1
		case a.expiry > b.expiry:
			return 1
		}
		return 0
	})
}

func (m *ledgerModel) find(id int64) int {
	return slices.IndexFunc(m.holds, func(h *holdModel) bool { return h.id == id })
}

func (m *ledgerModel) settle(now, id, used int64) Settlement {
	now = m.advance(now)
	j := m.find(id)
	if j < 0 {
		for _, p := range m.past {
			if p.id == id && p.until > now {
				return p.out
			}
		}
		return Settlement{Late: true}
	}
	h := m.holds[j]
	var out Settlement
	for i, r := range m.rules {
		if _, slots := r.(*slotsModel); !slots {
			out.Overrun = max(0, used-h.units)
		}
		if used <= h.units {
			out.Refunded = max(out.Refunded, r.giveBack(now, h.units-used, h.places[i], m.holds))
		} else {
			r.charge(now, used-h.units, m.holds)
		}
	}
	m.holds = slices.Delete(m.holds, j, j+1)
	until := h.expiry
	if until == Never {
		until = now + hour
	}
	m.past = append(m.past, pastModel{id, until, out})
	return out
}

// renew moves an expiry; a hold that was open until now was not over before.
func (m *ledgerModel) renew(now, id, expiry int64) bool {
	now = m.advance(now)
	j := m.find(id)
	if j < 0 {
		return false
	}
	h := m.holds[j]
	m.holds = slices.Delete(m.holds, j, j+1)
	h.expiry = max(expiry, now)
	m.add(h)
	return true
}

func (m *ledgerModel) reset(now int64) {
	now = m.advance(now)
	for i, r := range m.rules {
		r.reset(now, m.holds, i)
	}
}

// set continues rule i as specs[i].
func (m *ledgerModel) set(now int64, specs []ruleSpec) bool {
	now = m.advance(now)
	next := make([]ruleModel, len(specs))
	kept := make([]bool, len(specs))
	for i, s := range specs {
		var ok bool
		if next[i], kept[i], ok = m.rules[i].become(s, now, m.holds); !ok {
			return false
		}
	}
	for _, h := range m.holds {
		for i := range next {
			if !kept[i] {
				h.places[i] = rebooked(m.rules[i], next[i], now, h.places[i])
			}
		}
	}
	m.rules = next
	return true
}

// rebooked is where a hold's units are after all used ones were charged anew.
func rebooked(old, next ruleModel, now int64, p place) place {
	if s, ok := old.(*slidingModel); ok { // what counts in part is forfeited
		if start, _ := s.moment(now); p.window == nil || *p.window != start {
			return place{nowhere: true}
		}
	}
	if !old.counts(now, p) {
		return place{nowhere: true}
	}
	switch n := next.(type) {
	case *windowModel:
		start := n.window
		return place{window: &start}
	case *slidingModel:
		start := n.latest
		return place{window: &start}
	case *logModel:
		if len(n.entries) > 0 {
			return place{entry: n.entries[0]}
		}
	}
	return place{}
}
