package storetest

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/compiled"
)

var randomTests = []test{
	{name: "like a ledger for each key", run: likeLedgers},
}

// likeLedgers plays random cases on the store and on the model, and compares
// every field of every answer.
func likeLedgers(r *rig) {
	defer setChecks()()
	rapid.Check(r.t, func(t *rapid.T) {
		w := rapid.Custom(func(t *rapid.T) world { return drawer{r.store, t}.world() }).Draw(t, "world")
		p := newPlayer(r, t, w)
		steps := rapid.Custom(func(t *rapid.T) step { return drawer{r.store, t}.step(&w) })
		t.Repeat(map[string]func(*rapid.T){"step": func(t *rapid.T) { p.play(steps.Draw(t, "step")) }})
		p.compareAll()
	})
}

// setChecks lets rapid try 10,000 cases in the long form, unless the command line
// says how many, and returns what undoes it.
func setChecks() (undo func()) {
	const name = "rapid.checks"
	given := !long()
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if given {
		return func() {}
	}
	value := flag.Lookup(name).Value // not by flag.Set, after which it counts as given
	was := value.String()
	_ = value.Set("10000")
	return func() { _ = value.Set(was) }
}

// oneCase is the testing.TB of a store that lives as long as a random case.
type oneCase struct {
	testing.TB
	t *rapid.T
}

func (c oneCase) Cleanup(f func()) { c.t.Cleanup(f) }

// A player plays a case.
type player struct {
	*rig
	world world
	model *model
	held  []held

	inForce [][]int        // by history: the versions that ever were, in order
	edges   []weir.Instant // by edge.of; 0 while there was none
}

// held is a reservation that was made, open or not.
type held struct {
	charges      []weir.Charge
	store, model []weir.Receipt
}

// start is an instant that is aligned to nothing but microseconds.
var start = weir.Instant(time.Date(2026, 3, 4, 5, 6, 7, 123_456_000, time.UTC).UnixNano())

func newPlayer(r *rig, t *rapid.T, w world) *player {
	o := Options{Clock: newClock(r.store.Resolution)}
	o.Clock.Set(start)
	one := &rig{t: t, tb: r.tb, store: r.store, clock: o.Clock, limiter: r.store.Open(oneCase{r.tb, t}, o)}
	p := &player{rig: one, world: w, model: newModel(r.store, o.Clock.Now), edges: make([]weir.Instant, len(edgeNames))}
	for range w.histories {
		p.inForce = append(p.inForce, []int{0})
	}
	return p
}

func (p *player) play(s step) {
	p.t.Helper()
	switch s.do {
	case take:
		p.take(s.batch)
	case ask:
		p.both(s.batch, nil, nil)
	case reserve:
		p.reserve(s.batch)
	case settle:
		p.settle(s)
	case renew:
		p.renew(s)
	case set:
		p.set(s)
	case pass:
		p.clock.Pass(s.pass)
	case reach:
		p.reach(s.edge)
	}
}

func (p *player) take(b weir.Batch) {
	p.t.Helper()
	c := b.Charges[0]
	what := fmt.Sprintf("%v, %s", p.elapsed(), callText("take", c))
	got, err := p.limiter.Take(background(), c.Policy, c.Key, c.Cost)
	want, wantErr := p.model.Take(background(), c.Policy, c.Key, c.Cost)
	if p.sameError(what, err, wantErr); err == nil {
		p.sameDecision(what, got, want)
	}
}

// both carries out a batch on the store and on the model. It returns both, or
// false if it was an error.
func (p *player) both(b weir.Batch, store, model []weir.Receipt) (got, want *weir.Batch, ok bool) {
	p.t.Helper()
	got, want = &weir.Batch{}, &weir.Batch{}
	*got, *want = b, b
	got.Receipts, want.Receipts = slices.Clone(store), slices.Clone(model)
	err, wantErr := p.limiter.Do(background(), got), p.model.Do(background(), want)
	what := fmt.Sprintf("%v, %s", p.elapsed(), batchText(&b))
	if p.sameError(what, err, wantErr); err != nil {
		return nil, nil, false
	}
	for i := range b.Charges {
		p.compare(fmt.Sprintf("%s:\ncharge %d", what, i), got, want, i)
	}
	return got, want, true
}

func (p *player) elapsed() string { return fmt.Sprintf("%v after the start", p.clock.Now().Sub(start)) }

// sameError does not ask for the same error: of several that a batch deserves,
// any may come first.
func (p *player) sameError(what string, got, want error) {
	p.t.Helper()
	if (got == nil) != (want == nil) {
		p.t.Fatalf("%s: got error %v, want %v", what, got, want)
	}
}

func (p *player) sameDecision(what string, got, want weir.Decision) {
	p.t.Helper()
	if reported := p.store.asReported(want); got != reported && !p.store.isTie(got, reported) {
		p.t.Fatalf("%s:\n got %s\nwant %s", what, show(got), show(reported))
	}
	if want.RetryAfter > 0 && want.RetryAfter != weir.Never {
		p.edges[0] = p.model.now.Add(want.RetryAfter)
	}
	if want.ResetAfter > 0 && want.ResetAfter != weir.Never {
		p.edges[1] = p.model.now.Add(want.ResetAfter)
	}
}

// compare compares what a batch says of charge i.
func (p *player) compare(what string, got, want *weir.Batch, i int) {
	p.t.Helper()
	p.sameDecision(what, got.Decisions[i], want.Decisions[i])
	if got.Settled[i] != want.Settled[i] {
		p.t.Fatalf("%s:\n got %+v\nwant %+v", what, got.Settled[i], want.Settled[i])
	}
	if i < len(want.Receipts) {
		g, w := got.Receipts[i], want.Receipts[i]
		if g.Units != w.Units || g.Expiry != w.Expiry {
			p.t.Fatalf("%s: got a receipt of %d units until %v, want %d until %v", what, g.Units, g.Expiry, w.Units, w.Expiry)
		}
	}
}

// maxHeld is how many reservations a player remembers.
const maxHeld = 6

func (p *player) reserve(b weir.Batch) {
	p.t.Helper()
	got, want, ok := p.both(b, nil, nil)
	if !ok || !want.Allowed() {
		return
	}
	p.held = append(p.held, held{b.Charges, got.Receipts, want.Receipts})
	p.held = p.held[max(0, len(p.held)-maxHeld):]
	p.expires(want.Receipts[0])
}

// past returns the place of a reservation that was made, if there is one, and
// its charges for another batch.
func (p *player) past(s step) (i int, charges []weir.Charge) {
	if len(p.held) == 0 {
		return 0, nil
	}
	i = len(p.held) - 1 - s.which%len(p.held)
	charges = slices.Clone(p.held[i].charges)
	if s.foreign {
		charges[0].Key += "'"
	}
	return i, charges
}

func (p *player) settle(s step) {
	p.t.Helper()
	i, charges := p.past(s)
	if charges == nil {
		return
	}
	for j := range charges {
		charges[j].Cost = use(s.uses[j%len(s.uses)], charges[j].Cost)
	}
	p.both(weir.Batch{Op: weir.Settle, Charges: charges}, p.held[i].store, p.held[i].model)
	if !s.keep && !s.foreign {
		p.held = slices.Delete(p.held, i, i+1)
	}
}

func (p *player) renew(s step) {
	p.t.Helper()
	i, charges := p.past(s)
	if charges == nil {
		return
	}
	h := &p.held[i]
	got, want, ok := p.both(weir.Batch{Op: weir.Renew, TTL: s.batch.TTL, Charges: charges}, h.store, h.model)
	if ok {
		h.store, h.model = got.Receipts, want.Receipts
		p.expires(want.Receipts[0])
	}
}

// expires notes an expiry as the last, if it ever comes.
func (p *player) expires(r weir.Receipt) {
	if r.Expiry.Sub(p.model.now) <= compiled.MaxTTL {
		p.edges[2] = r.Expiry
	}
}

// set goes from a version that was in force once, and so means the one that is.
func (p *player) set(s step) {
	p.t.Helper()
	versions, were := p.world.histories[s.history].versions, p.inForce[s.history]
	to := s.to % len(versions)
	old, new := versions[were[s.from%len(were)]], versions[to]
	if s.again {
		old, new = p.again(old), p.again(new)
	}
	err, wantErr := p.limiter.Set(background(), old, new), p.model.Set(background(), old, new)
	what := fmt.Sprintf("%v, set %s to %s", p.elapsed(), describe(old), describe(new))
	if p.sameError(what, err, wantErr); err == nil {
		p.inForce[s.history] = append(were, to)
	}
}

// reach goes to an edge that lies ahead, or just before it.
func (p *player) reach(e edge) {
	to := p.edges[e.of]
	if to == 0 {
		return
	}
	d := roundUp(to.Sub(p.clock.Now()), p.world.grain)
	if e.before {
		d -= p.world.grain
	}
	if d > 0 {
		p.clock.Pass(d)
	}
}

// compareAll looks at everything once more, for what no answer has shown yet.
func (p *player) compareAll() {
	p.t.Helper()
	b := weir.Batch{Op: weir.PeekEach}
	for _, f := range p.world.histories {
		for _, policy := range append(f.versions[:len(f.versions):len(f.versions)], f.overrides...) {
			for _, key := range keys {
				b.Charges = append(b.Charges, charge(policy, key, 0), charge(policy, key, 1))
			}
		}
	}
	for i := range b.Charges { // one by one: a peek may be an error
		p.both(weir.Batch{Op: b.Op, Charges: b.Charges[i : i+1]}, nil, nil)
	}
}
