package memstore

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/internal/storeapi"
)

// The table against the model: random calls on more keys than fit, so that rows
// are evicted, moved, converted and sent to the overflow row all the time. After
// every step each answer, every row and every figure must be the model's, and the
// whole table must be sound.
func TestLikeTheModel(t *testing.T) {
	defer manyChecks()()
	rapid.Check(t, func(t *rapid.T) {
		p := newPlayer(t)
		t.Repeat(map[string]func(*rapid.T){
			"":        p.compareAll,
			"take":    p.take,
			"batch":   p.batch,
			"reserve": p.reserve,
			"settle":  p.settle,
			"renew":   p.renew,
			"set":     p.set,
			"pass":    p.pass,
		})
		p.finish()
	})
}

// manyChecks lets rapid try 10,000 cases in the long form, unless the command line
// says how many, and returns what undoes it.
func manyChecks() (undo func()) {
	const name = "rapid.checks"
	given := !long
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if given {
		return func() {}
	}
	was := flag.Lookup(name).Value.String()
	_ = flag.Set(name, "10000")
	return func() { _ = flag.Set(name, was) }
}

// A player plays a case on the table and on the model.
type player struct {
	t        *rapid.T
	clock    *clock
	table    *Table
	model    *model
	policies []*weir.Policy
	keys     []string
	held     []weir.Batch // reservations that were made
}

func newPlayer(t *rapid.T) *player {
	p := &player{t: t, clock: newClock()}
	table, err := New(Config{
		MaxKeys:  rapid.IntRange(1, 12).Draw(t, "max keys"),
		MaxHolds: rapid.SampledFrom([]int{0, 1, 2, 5}).Draw(t, "max holds"),
		KeepKeys: rapid.Bool().Draw(t, "keep keys"),
		Now:      p.clock.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	table.hash = keyedHasher([16]byte{}) // the same in every run, so that rapid can make a case smaller
	table.makeShards(rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "shards"))
	p.table, p.model = table, newModel(table, t.Fatalf)
	p.drawPolicies()
	for i := range rapid.IntRange(1, 16).Draw(t, "keys") {
		p.keys = append(p.keys, fmt.Sprint("key", i))
	}
	return p
}

// shapes are limits whose rows have every width and kind of state.
var shapes = map[string][]weir.Limit{
	"gcra":        {{Rate: 3, Per: weir.Every(time.Minute)}},
	"other gcra":  {{Rate: 10, Per: weir.Every(time.Minute), Burst: 5}},
	"tight":       {{Rate: 2, Per: weir.Every(time.Hour), Burst: 1, MaxDebt: 1}},
	"fixed":       {{Rate: 4, Per: weir.Every(10 * time.Second), Algorithm: weir.FixedWindow}},
	"second":      {{Rate: 3, Per: weir.Every(time.Second), Algorithm: weir.DualWindow}},
	"dual":        {{Name: "s", Rate: 3, Per: weir.Every(time.Second), Algorithm: weir.DualWindow}, {Rate: 6, Per: weir.Every(time.Minute), Algorithm: weir.DualWindow}},
	"two":         {{Rate: 4, Per: weir.Every(time.Minute)}, {Name: "hour", Rate: 8, Per: weir.Every(time.Hour)}},
	"anchored":    {{Rate: 3, Per: weir.Every(20 * time.Second), Algorithm: weir.AnchoredWindow}},
	"sliding":     {{Rate: 4, Per: weir.Every(10 * time.Second), Algorithm: weir.SlidingWindow}},
	"three words": {{Rate: 4, Per: weir.Every(10 * time.Second), Algorithm: weir.SlidingWindow}, {Name: "hour", Rate: 9, Per: weir.Every(time.Hour)}},
	"log":         {{Rate: 3, Per: weir.Every(10 * time.Second), Algorithm: weir.SlidingLog}},
	"log and two": {{Rate: 3, Per: weir.Every(10 * time.Second), Algorithm: weir.SlidingLog}, {Name: "hour", Rate: 8, Per: weir.Every(time.Hour)}},
	"slots":       {{Rate: 2, Algorithm: weir.Concurrency}},
	"slots and":   {{Name: "held", Rate: 2, Algorithm: weir.Concurrency}, {Rate: 5, Per: weir.Every(time.Minute)}},
}

// drawPolicies draws a few sets of limits for each of one or two names.
func (p *player) drawPolicies() {
	all := slices.Sorted(maps.Keys(shapes))
	for i := range rapid.IntRange(1, 2).Draw(p.t, "names") {
		for _, shape := range rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, 4, rapid.ID).Draw(p.t, "shapes") {
			p.policies = append(p.policies, p.policy(fmt.Sprint("p", i), shapes[shape]))
		}
	}
}

func (p *player) policy(name string, limits []weir.Limit) *weir.Policy {
	made, err := weir.NewPolicy(name, limits...)
	if err != nil {
		p.t.Fatal(err)
	}
	return made
}

// drawPolicy draws one of the policies, or one that equals it.
func (p *player) drawPolicy(t *rapid.T) *weir.Policy {
	made := p.policies[rapid.IntRange(0, len(p.policies)-1).Draw(t, "policy")]
	if rapid.IntRange(0, 9).Draw(t, "made again") == 9 {
		return p.policy(made.Name(), made.Limits())
	}
	return made
}

func (p *player) drawCharge(t *rapid.T) weir.Charge {
	return weir.Charge{
		Policy: p.drawPolicy(t),
		Key:    rapid.SampledFrom(p.keys).Draw(t, "key"),
		Cost:   rapid.SampledFrom([]int64{1, 1, 2, 3, 0, 9}).Draw(t, "cost"),
	}
}

func (p *player) take(t *rapid.T) {
	c := p.drawCharge(t)
	p.step()
	got, err := p.table.Take(background(), c.Policy, c.Key, c.Cost)
	p.observe()
	want, wantErr := p.model.Take(c)
	p.same(fmt.Sprintf("take %d of %s/%s", c.Cost, c.Policy.Name(), c.Key), got, want, err, wantErr)
}

func (p *player) batch(t *rapid.T) {
	b := weir.Batch{Op: rapid.SampledFrom([]weir.Op{weir.TakeEach, weir.TakeAll, weir.PeekEach, weir.ResetEach, weir.DebitEach}).Draw(t, "op")}
	for range rapid.IntRange(1, 6).Draw(t, "charges") {
		b.Charges = append(b.Charges, p.drawCharge(t))
	}
	p.both(b)
}

func (p *player) reserve(t *rapid.T) {
	b := weir.Batch{Op: weir.ReserveAll, TTL: rapid.SampledFrom([]time.Duration{0, time.Second, 10 * time.Minute, weir.NoExpiry}).Draw(t, "ttl")}
	for range rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "charges") {
		b.Charges = append(b.Charges, p.drawCharge(t))
	}
	if got, ok := p.both(b); ok && got.Allowed() {
		p.held = append(p.held, *got)
	}
}

// past draws a reservation that was made, with its charges as another batch has them.
func (p *player) past(t *rapid.T) (b weir.Batch) {
	if len(p.held) == 0 {
		t.Skip("nothing is held")
	}
	h := p.held[len(p.held)-1-rapid.IntRange(0, min(5, len(p.held)-1)).Draw(t, "which")]
	return weir.Batch{Charges: slices.Clone(h.Charges), Receipts: slices.Clone(h.Receipts)}
}

func (p *player) settle(t *rapid.T) {
	b := p.past(t)
	b.Op = weir.Settle
	for i := range b.Charges {
		b.Charges[i].Cost = rapid.SampledFrom([]int64{0, 1, 2, 5}).Draw(t, "used")
	}
	p.both(b)
}

func (p *player) renew(t *rapid.T) {
	b := p.past(t)
	b.Op, b.TTL = weir.Renew, rapid.SampledFrom([]time.Duration{0, time.Second, compiled.MaxTTL, weir.NoExpiry}).Draw(t, "ttl")
	p.both(b)
}

func (p *player) set(t *rapid.T) {
	old := p.drawPolicy(t)
	limits := p.drawPolicy(t).Limits()
	new := p.policy(old.Name(), limits)
	p.step()
	err := p.table.Set(background(), old, new)
	p.observe()
	p.same("set", weir.Decision{}, weir.Decision{}, err, p.model.Set(old, new))
}

func (p *player) pass(t *rapid.T) {
	p.clock.pass(rapid.SampledFrom([]time.Duration{
		time.Millisecond, 700 * time.Millisecond, 3 * time.Second, 11 * time.Second, time.Minute, 2 * time.Hour, -time.Minute,
	}).Draw(t, "time"))
}

// step comes before the table reads the clock: the model does, too. And limits that no row has are looked for whenever
// new ones come.
func (p *player) step() {
	p.model.now = max(p.model.now, int64(p.clock.Now()))
	p.table.registry.lookAt = 0
}

// observe comes after every call of the table: it tells the model what has gone.
func (p *player) observe() {
	p.model.gone = map[pair]bool{}
	for at := range p.model.rows {
		if _, ok := p.look(at); !ok {
			p.model.gone[at] = true
		}
	}
}

// look finds the row of a key in the table.
func (p *player) look(at pair) (place, bool) {
	nm := p.table.registry.names[at.policy]
	if nm == nil {
		return place{}, false
	}
	h := p.table.hash.sum(at.key) ^ nm.salt
	return p.table.lookLocked(&p.table.shards[h>>p.table.shift], nm, h, at.key)
}

// both carries out a batch on the table and on the model and compares. It returns
// what the table did, or false if that was an error.
func (p *player) both(b weir.Batch) (*weir.Batch, bool) {
	got, want := b, b
	got.Receipts, want.Receipts = slices.Clone(b.Receipts), slices.Clone(b.Receipts)
	if err := storeapi.CheckBatch(&want); err != nil {
		p.t.Fatal(err)
	}
	p.step()
	err := p.table.Do(background(), &got)
	p.observe()
	wantErr := p.model.Do(&want, &got)
	what := fmt.Sprintf("op %d", b.Op)
	for i, c := range b.Charges {
		what += fmt.Sprintf(", %d of %s/%s", c.Cost, c.Policy.Name(), c.Key)
		if err == nil && wantErr == nil {
			p.same(fmt.Sprintf("%s: charge %d", what, i), got.Decisions[i], want.Decisions[i], nil, nil)
			p.equal(what+": settled", got.Settled[i], want.Settled[i])
		}
	}
	p.same(what, weir.Decision{}, weir.Decision{}, err, wantErr)
	if err == nil && (b.Op != weir.ReserveAll || got.Allowed()) {
		p.equal(what+": receipts", fmt.Sprint(got.Receipts), fmt.Sprint(want.Receipts))
	}
	return &got, err == nil
}

func (p *player) same(what string, got, want weir.Decision, err, wantErr error) {
	if (err == nil) != (wantErr == nil) {
		p.t.Fatalf("%s: got error %v, want %v\n%v", what, err, wantErr, p.model)
	}
	if err == nil {
		p.equal(what, fmt.Sprintf("%v by %d %+v", got, got.By, show(got)), fmt.Sprintf("%v by %d %+v", want, want.By, show(want)))
	}
	if len(p.model.gone) > 0 {
		p.t.Fatalf("%s: these were evicted, and should not have been: %v\n%v", what, p.model.gone, p.model)
	}
}

// show is every field of a decision.
func show(d weir.Decision) any {
	type fields weir.Decision
	return fields(d)
}

func (p *player) equal(what string, got, want any) {
	if got != want {
		p.t.Fatalf("%s:\n got %v\nwant %v\n%v", what, got, want, p.model)
	}
}

// compareAll comes after every step.
func (p *player) compareAll(t *rapid.T) {
	p.step()
	check(t, p.table)
	s := p.table.Stats()
	want := p.model.stats
	want.Keys, want.Holds, want.Bytes, want.MostMoved = len(p.model.rows), s.Holds, s.Bytes, s.MostMoved
	p.equal("figures", fmt.Sprintf("%+v", s), fmt.Sprintf("%+v", want))
	if open := p.model.openHolds(); s.Holds < open {
		t.Fatalf("%d reservations are counted, %d are open", s.Holds, open)
	}
	if s.MostMoved > int(p.table.maxKeys) {
		t.Fatalf("%d rows were moved, and there are at most %d", s.MostMoved, p.table.maxKeys)
	}
	for at, r := range p.model.rows {
		p.compareRow(at, r)
	}
	for name, nm := range p.table.registry.names {
		var got, want *algo.Ledger
		if o := nm.overflow.Load(); o != nil {
			got = o.ledger
		}
		if o := p.model.over[name]; o != nil {
			want = o.ledger
		}
		if p.inUse(got) != p.inUse(want) {
			t.Fatalf("whether the overflow row of %q is in use: %v, want %v", name, p.inUse(got), p.inUse(want))
		}
	}
}

// inUse says whether a ledger, if there is one, has anything in use.
func (p *player) inUse(l *algo.Ledger) bool { return l != nil && !l.Unused(p.model.now) }

// finish lets everything expire that can: nothing may be held by mistake.
func (p *player) finish() {
	p.clock.pass(2 * time.Hour)
	p.compareAll(p.t)
	p.table.sweepHolds(p.model.now)
	if noted, open := p.table.Stats().Holds, p.model.openHolds(); noted != open {
		p.t.Fatalf("%d reservations are noted when all that can have expired, %d are open", noted, open)
	}
}

// compareRow compares a row's decision under its own limits.
func (p *player) compareRow(at pair, r *modelRow) {
	where, ok := p.look(at)
	if !ok {
		p.t.Fatalf("%v has no row", at)
	}
	n := p.table.registry.at(where.block.idAt(where.slot))
	if !n.policy.Same(r.policy) {
		p.t.Fatalf("%v is under %v, want %v", at, n.policy.Limits(), r.policy.Limits())
	}
	l := &algo.Ledger{}
	if x := where.block.spilledAt(where.slot); x != nil {
		l = x.ledger
	} else {
		n.load(l, where, where.block.word(where.slot, 0).Load())
	}
	for _, cost := range []int64{0, 1, r.policy.Capacity()} {
		p.equal(fmt.Sprintf("%v: peek %d", at, cost), l.Peek(p.model.now, cost), r.ledger.Peek(p.model.now, cost))
	}
}
