package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/internal/storeapi"
)

// long says whether the long forms of tests run: make test-all.
var long = os.Getenv("WEIR_TEST") == "all"

// short returns how often or how many, in the short and in the long form.
func short(n, all int) int {
	if long {
		return all
	}
	return n
}

// The scripts decide like algo's ledgers, to the last field, whatever is done in
// whatever order. WEIR_SEED repeats one seed.
func TestLuaLikeGo(t *testing.T) {
	redis := redistest.Start(t)
	for _, seed := range seeds(t, short(3, 30)) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			began := time.Now()
			d := newDuel(t, redis, seed)
			for d.steps < 10_000 {
				d.step()
			}
			d.peekAll()
			t.Logf("seed %d: %d steps in %v, %d commands: %+v",
				seed, d.steps, time.Since(began).Round(time.Millisecond), d.store.Stats().Commands, d.tally)
			if v := d.tally; v.admitted < 1000 || v.refused < 1000 || v.costly == 0 || v.refunded == 0 || v.overrun == 0 || v.late == 0 || v.debited == 0 || v.used == 0 || v.held == 0 || v.lending == 0 || v.paced == 0 {
				t.Errorf("seed %d: it was a dull duel: %+v", seed, d.tally)
			}
		})
	}
}

// The same with hundreds of reservations for a key.
func TestLuaLikeGoWithManyHolds(t *testing.T) {
	redis := redistest.Start(t)
	for _, seed := range seeds(t, short(2, 20)) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			d := newDuel(t, redis, seed)
			d.drawManyHolds()
			most := 0
			for d.steps < 20_000 {
				d.stepWithHolds()
				for _, l := range d.book.rows {
					most = max(most, l.Holds())
				}
			}
			d.peekAll()
			t.Logf("seed %d: at most %d holds: %+v", seed, most, d.tally)
			if v := d.tally; most < 120 || v.held < 50 || v.refunded < 100 || v.late == 0 {
				t.Errorf("seed %d: it was a dull duel: at most %d holds, %+v", seed, most, d.tally)
			}
		})
	}
}

func seeds(t *testing.T, n int) (list []uint64) {
	if text := os.Getenv("WEIR_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return []uint64{seed}
	}
	for range n {
		list = append(list, rand.Uint64())
	}
	return list
}

// A duel is a store and a book that execute the same steps.
type duel struct {
	t     *testing.T
	rnd   *rand.Rand
	seed  uint64
	clock atomic.Int64 // the store's senders read it, too
	store *Store
	book  *book

	base     time.Duration
	policies []*weir.Policy
	free     []*weir.Policy // those that may be taken from, not only reserved
	small    []*weir.Policy // those whose rows small.lua takes from
	held     []reservation
	most     int            // how many charges a reservation has
	edges    []weir.Instant // where answers said that something would change
	steps    int
	tally    tally
	past     []string // the last calls
}

// A tally counts what happened, to see that everything did.
type tally struct {
	admitted, refused, costly, refunded, overrun, late, debited, used, held int

	lending, paced int // refusals by limits of these kinds
	recalled       int // how often nobody may borrow for a while
}

func (v *tally) decision(d weir.Decision) {
	switch {
	case d.Reason == weir.TooCostly:
		v.costly++
	case d.Held:
		v.held++
	case d.Reason == weir.Exhausted:
		v.refused++
	case d.Limit > 0:
		v.admitted++
	}
}

// refusal counts what the limits refuse that know classes.
func (v *tally) refusal(c weir.Charge, d weir.Decision) {
	switch l := c.Policy.Limits()[d.By]; {
	case d.Reason != weir.Exhausted:
	case l.Algorithm == weir.Lending:
		v.lending++
	case l.Pace != "":
		v.paced++
	}
}

func (v *tally) settled(s weir.Settled) {
	switch {
	case s.Late:
		v.late++
	case s.Refunded > 0:
		v.refunded++
	case s.Overrun > 0:
		v.overrun++
	}
}

// A reservation was made; it may be over.
type reservation struct {
	charges  []weir.Charge
	receipts []weir.Receipt
}

// duelStart is aligned to nothing but microseconds.
var duelStart = weir.Instant(time.Date(2026, 3, 4, 5, 6, 7, 123_456_000, time.UTC).UnixNano())

func newDuel(t *testing.T, redis *redistest.Server, seed uint64) *duel {
	d := &duel{t: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 0))}
	d.base, d.most = one(d, bases...), 3
	d.clock.Store(int64(duelStart))
	d.store = open(t, Config{Redis: server(redis.Addr()), Now: d.now})
	d.book = &book{epoch: duelStart, rows: map[rowOf]*algo.Ledger{}, holds: map[[16]byte]holdOf{}, tally: &d.tally}
	d.drawPolicies()
	d.sort()
	return d
}

// drawManyHolds draws policies under which one key may have hundreds of holds.
func (d *duel) drawManyHolds() {
	d.policies, d.free, d.small, d.most = nil, nil, nil, 100
	large := func(a weir.Algorithm, name string) weir.Limit {
		l := weir.Limit{Name: name, Algorithm: a, Rate: one[int64](d, 500, 1000), Per: weir.Every(5 * d.base)}
		if a == weir.Concurrency {
			l.Per = weir.Period{}
		}
		if isGCRA(l) || a == weir.Lending {
			l.Burst = 500 + int64(d.upTo(500))
		}
		if a == weir.Lending {
			l.Classes = d.classes(l.Rate, l.Burst)
		}
		return l
	}
	d.add(large(weir.GCRA, ""))
	d.add(large(weir.Concurrency, ""))
	d.add(large(one(d, weir.FixedWindow, weir.AnchoredWindow, weir.SlidingWindow, weir.SlidingLog), ""))
	d.add(large(weir.Lending, ""))
	d.add(large(weir.GCRA, "main"), large(weir.Concurrency, "slots"), large(weir.FixedWindow, "window"))
	d.add(large(weir.Lending, "main"), large(one(d, weir.GCRA, weir.SlidingWindow, weir.SlidingLog), "second"))
	d.sort()
}

// sort notes which policies are good for what.
func (d *duel) sort() {
	for _, p := range d.policies {
		if !p.ReserveOnly() {
			d.free = append(d.free, p)
		}
		if n, err := d.store.resolve(context.Background(), p); err != nil {
			d.t.Fatal(err)
		} else if n.small != nil {
			d.small = append(d.small, p)
		}
	}
}

func (d *duel) now() weir.Instant { return weir.Instant(d.clock.Load()) }

// upTo returns a number from 0 to n.
func (d *duel) upTo(n int) int { return d.rnd.IntN(n + 1) }

func (d *duel) oneIn(n int) bool { return d.rnd.IntN(n) == 0 }

func one[T any](d *duel, of ...T) T { return of[d.rnd.IntN(len(of))] }

// drawPolicies draws each algorithm alone, GCRA once for take.lua and once for
// do.lua, and a few combinations.
func (d *duel) drawPolicies() {
	alone := []weir.Algorithm{
		weir.GCRA, weir.GCRA, weir.TokenBucket, weir.FixedWindow, weir.FixedWindow,
		weir.AnchoredWindow, weir.SlidingWindow, weir.SlidingLog, weir.DualWindow, weir.Concurrency,
		weir.Lending, weir.Lending,
	}
	for i, a := range alone {
		l := d.limit(a)
		switch i {
		case 0:
			l.Initial = (weir.Fill{})
		case 1:
			l.Name = "other" // than main
		}
		d.add(l)
	}
	for range 2 {
		l := d.limit(weir.GCRA)
		l.Initial = (weir.Fill{})
		d.add(l)
	}
	for range 4 {
		var limits []weir.Limit
		for i := range 2 + d.upTo(2) {
			a := one(d, alone...)
			if a == weir.DualWindow && hasAlgorithm(limits, a) {
				a = weir.FixedWindow
			}
			if a == weir.Lending && hasAlgorithm(limits, a) {
				a = weir.GCRA
			}
			l := d.limit(a)
			l.Name = []string{"main", "b", "c", "d"}[i]
			limits = append(limits, l)
		}
		d.add(limits...)
	}
	d.add(d.named("main", weir.Lending), d.named("b", one(d, weir.GCRA, weir.SlidingWindow, weir.SlidingLog)))
	d.add(d.named("main", weir.Lending), d.paced("b"))
	d.add(d.paced("main"))
}

func hasAlgorithm(limits []weir.Limit, a weir.Algorithm) bool {
	return slices.ContainsFunc(limits, func(l weir.Limit) bool { return l.Algorithm == a })
}

// named draws a limit with a name.
func (d *duel) named(name string, a weir.Algorithm) weir.Limit {
	l := d.limit(a)
	l.Name = name
	return l
}

func (d *duel) add(limits ...weir.Limit) {
	d.t.Helper()
	d.policies = append(d.policies, newPolicy(d.t, fmt.Sprint("p", len(d.policies)), limits...))
}

func newPolicy(t testing.TB, name string, limits ...weir.Limit) *weir.Policy {
	t.Helper()
	p, err := weir.NewPolicy(name, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// bases are the lengths that a duel's periods and steps of time are near to.
var bases = []time.Duration{7 * time.Millisecond, time.Second, time.Second, time.Minute, 90 * time.Second, 12 * time.Minute}

// limit draws a limit. The rate of GCRA, in units per µs and lowest terms, has a
// numerator of 1,000 at most: then Go's ticks and Lua's fractions agree on every
// microsecond, since what a unit lacks is never less than a tick.
func (d *duel) limit(a weir.Algorithm) weir.Limit {
	l := weir.Limit{Algorithm: a, Rate: int64(1 + d.upTo(11))}
	switch {
	case a == weir.Concurrency:
		return l
	case a == weir.DualWindow:
		l.Per = weir.Every(one(d, time.Second, time.Minute))
	case a == weir.FixedWindow && d.oneIn(3):
		l.Per = weir.Calendar(one(d, weir.Day, weir.Week, weir.Month), one(d, duelZones...))
	default:
		l.Per = weir.Every(one(d, d.base/7, d.base, d.base, d.base*3, d.base*10).Truncate(time.Microsecond))
	}
	if d.oneIn(4) {
		l.Initial = one(d, weir.Filled(0), weir.Filled(0.5))
	}
	if a == weir.Lending {
		return d.lending(l)
	}
	if !isGCRA(l) {
		return l
	}
	if odd := l; d.oneIn(3) {
		odd.Rate = one[int64](d, 60, 100, 250, 997, 1000, 3600)
		if num, _, err := rateTerms(odd); err == nil && num <= 1000 {
			l = odd
		}
	}
	l.Burst = int64(1 + d.upTo(11))
	if d.oneIn(3) {
		l.MaxDebt = int64(1 + d.upTo(7))
	}
	return l
}

var duelZones = []*time.Location{time.UTC, time.FixedZone("east", 3*3600+1800)}

// step does one thing to both, and lets some time pass.
func (d *duel) step() {
	d.t.Helper()
	switch n := d.upTo(99); {
	case n < 15:
		d.do(weir.Batch{Op: weir.TakeEach, Charges: d.charges(80, d.free)})
	case n < 24:
		d.take()
	case n < 32:
		d.takeSmall()
	case n < 42:
		d.takeTogether()
	case n < 45:
		d.do(weir.Batch{Op: weir.PeekEach, Charges: d.charges(40, d.policies)})
	case n < 48:
		d.do(weir.Batch{Op: weir.TakeAll, Charges: d.charges(3, d.free)})
	case n < 52:
		d.debit()
	case n < 68:
		d.reserve()
	case n < 86:
		d.settle()
	case n < 90:
		d.renew()
	default:
		d.do(weir.Batch{Op: weir.ResetEach, Charges: d.charges(6, d.policies)})
	}
	d.pass()
}

// stepWithHolds does mostly what is about holds.
func (d *duel) stepWithHolds() {
	d.t.Helper()
	switch n := d.upTo(99); {
	case n < 45:
		d.reserve()
	case n < 60:
		d.settle()
	case n < 70:
		d.renew()
	case n < 90:
		d.take()
	default:
		d.step()
	}
	d.pass()
}

var duelKeys = []string{"a", "b", ""}

func (d *duel) charges(most int, of []*weir.Policy) (list []weir.Charge) {
	for range 1 + d.upTo(most-1) {
		list = append(list, d.charge(of))
	}
	return list
}

func (d *duel) charge(of []*weir.Policy) weir.Charge {
	p := d.ofClass(one(d, of...))
	return weir.Charge{Policy: p, Key: one(d, duelKeys...), Cost: d.cost(p.Capacity())}
}

func (d *duel) cost(capacity int64) int64 {
	switch d.upTo(9) {
	case 0:
		return 0
	case 1:
		return capacity + 1
	case 2:
		return capacity
	case 3, 4:
		return int64(d.upTo(int(capacity)))
	}
	return 1
}

// take goes the way of single Takes.
func (d *duel) take() {
	d.t.Helper()
	c := d.charge(d.free)
	d.note("take", c)
	got, err := d.store.Take(context.Background(), c.Policy, c.Key, c.Cost)
	if err != nil {
		d.fail("got error %v", err)
	}
	d.same(c, 0, got, d.book.take(c, d.now()))
}

// takeSmall charges several small rows, some of them more than once.
func (d *duel) takeSmall() {
	d.t.Helper()
	b := weir.Batch{Op: one(d, weir.TakeEach, weir.TakeAll, weir.TakeAll)}
	for _, p := range d.small {
		for _, key := range duelKeys {
			for d.oneIn(3) {
				b.Charges = append(b.Charges, weir.Charge{Policy: p, Key: key, Cost: int64(d.upTo(int(p.Capacity())))})
			}
		}
	}
	d.do(b)
}

// takeTogether lets Takes meet in one sender, which combines those for one key.
func (d *duel) takeTogether() {
	d.t.Helper()
	charges := d.charges(32, d.free) // as many as go into one call of do.lua, which may be sent again, and then later than others
	if hot := charges[0]; d.oneIn(2) {
		for i := range charges {
			charges[i].Policy, charges[i].Key = d.ofClass(hot.Policy), hot.Key
		}
	}
	d.note("take together", charges...)
	for i, r := range together(d.t, d.store, charges...) {
		if r.err != nil {
			d.fail("charge %d: got error %v", i, r.err)
		}
		d.same(charges[i], i, r.decision, d.book.take(charges[i], d.now()))
	}
}

// together queues Takes such that one sender gets all of them, in order, and returns
// them when they are answered.
func together(t testing.TB, s *Store, charges ...weir.Charge) []*request {
	t.Helper()
	requests := make([]*request, len(charges))
	for i, c := range charges {
		n, err := s.resolve(context.Background(), c.Policy)
		if err != nil {
			t.Fatal(err)
		}
		requests[i] = newRequest()
		requests[i].n, requests[i].key, requests[i].cost = n, rowKey(n.rows, c.Key), c.Cost
		requests[i].begin(weir.Now().Add(time.Minute))
	}
	q := s.queues[0]
	s.under.Add(int64(len(requests)))
	q.mu.Lock()
	q.waiting = append(q.waiting, requests...)
	q.wake.Signal()
	q.mu.Unlock()
	for _, r := range requests {
		<-r.done
	}
	return requests
}

// do carries out a batch on both.
func (d *duel) do(b weir.Batch) *weir.Batch {
	d.t.Helper()
	if b.Used = d.used(&b); b.Used != nil {
		d.tally.used++
	}
	d.note(fmt.Sprint(ops[b.Op], " ttl ", b.TTL, " used ", b.Used), b.Charges...)
	if err := d.store.Do(context.Background(), &b); err != nil {
		d.fail("got error %v", err)
	}
	decisions, settled := d.book.do(&b, d.now())
	for i := range b.Charges {
		d.same(b.Charges[i], i, b.Decisions[i], decisions[i])
		if b.Settled[i] != settled[i] {
			d.fail("charge %d:\n got %+v\nwant %+v", i, b.Settled[i], settled[i])
		}
		d.tally.settled(settled[i])
	}
	return &b
}

// used draws what some nodes had granted on their own before a batch.
func (d *duel) used(b *weir.Batch) []int64 {
	if b.Op > weir.ReserveAll || !d.oneIn(4) {
		return nil
	}
	used := make([]int64, len(b.Charges))
	for i, c := range b.Charges {
		if !c.Policy.ReserveOnly() && d.oneIn(2) {
			used[i] = int64(d.upTo(int(c.Policy.Capacity())))
		}
	}
	return used
}

// debit draws costs that fit, that are beyond what fits, and now and then such as
// bring counts and debts to their ends.
func (d *duel) debit() {
	d.t.Helper()
	charges := d.charges(10, d.free)
	for i := range charges {
		if charges[i].Cost *= int64(1 + d.upTo(3)); d.oneIn(40) {
			charges[i].Cost = weir.MaxCost
		}
	}
	d.do(weir.Batch{Op: weir.DebitEach, Charges: charges})
	d.tally.debited += len(charges)
}

func (d *duel) reserve() {
	d.t.Helper()
	b := weir.Batch{Op: weir.ReserveAll, TTL: d.ttl(), Charges: d.charges(1+d.upTo(d.most-1), d.policies)}
	if d.most > 3 { // so many do not fit together but if they are of one key, and small
		for i := range b.Charges {
			b.Charges[i] = weir.Charge{Policy: d.ofClass(b.Charges[0].Policy), Key: b.Charges[0].Key, Cost: int64(1 + d.upTo(9)/9)}
		}
	}
	d.reserved(d.do(b))
}

func (d *duel) reserved(b *weir.Batch) {
	if !b.Allowed() {
		return
	}
	d.held = append(d.held, reservation{b.Charges, b.Receipts})
	d.edges = append(d.edges, b.Receipts[0].Expiry)
	if len(d.held) > 7*d.most {
		d.held = d.held[1:]
	}
}

func (d *duel) settle() {
	d.t.Helper()
	if len(d.held) == 0 {
		return
	}
	i := len(d.held) - 1 - d.rnd.IntN(len(d.held))*d.upTo(1) // mostly the last, which is still open
	h := d.held[i]
	charges := slices.Clone(h.charges)
	for j := range charges {
		charges[j].Policy = d.ofClass(charges[j].Policy) // the class is that of the hold
		charges[j].Cost = one(d, 0, charges[j].Cost, charges[j].Cost/2, charges[j].Cost+3)
	}
	d.do(weir.Batch{Op: weir.Settle, Charges: charges, Receipts: h.receipts})
	if !d.oneIn(4) { // else it is settled again some day
		d.held = slices.Delete(d.held, i, i+1)
	}
}

func (d *duel) renew() {
	d.t.Helper()
	if len(d.held) == 0 {
		return
	}
	h := &d.held[d.rnd.IntN(len(d.held))]
	b := d.do(weir.Batch{Op: weir.Renew, TTL: d.ttl(), Charges: h.charges, Receipts: slices.Clone(h.receipts)})
	h.receipts = b.Receipts
}

func (d *duel) ttl() time.Duration {
	if d.most > 3 { // long enough for many to gather
		return min(compiled.MaxTTL, time.Duration(1+d.rnd.Int64N(int64(50*d.base))).Truncate(time.Microsecond)+d.moment())
	}
	return min(compiled.MaxTTL, d.moment()*time.Duration(1+d.upTo(20)))
}

// peekAll looks at everything once more, for what no answer has shown yet.
func (d *duel) peekAll() {
	d.t.Helper()
	b := weir.Batch{Op: weir.PeekEach}
	for _, p := range d.policies {
		views := []*weir.Policy{p}
		for _, name := range p.ClassNames() {
			views = append(views, weir.Must(p.Class(name)))
		}
		for _, view := range views {
			for _, key := range duelKeys {
				for _, cost := range []int64{0, 1, view.Capacity()} {
					b.Charges = append(b.Charges, weir.Charge{Policy: view, Key: key, Cost: cost})
				}
			}
		}
	}
	d.do(b)
}

// moment draws about the length of a unit or a window, in µs.
func (d *duel) moment() time.Duration {
	l := one(d, one(d, d.policies...).Limits()...)
	unit := d.base
	switch per := l.Per.Duration(); {
	case isGCRA(l) || l.Algorithm == weir.Lending:
		unit = (per / time.Duration(l.Rate)).Truncate(time.Microsecond)
	case per > 0 && per <= 10*d.base:
		unit = per
	}
	return max(time.Microsecond, one(d, unit-time.Microsecond, unit, unit+time.Microsecond, unit/7).Truncate(time.Microsecond))
}

// pass lets time pass: mostly not at all or a little, sometimes up to an edge or just
// before it, and rarely so far that everything is forgotten.
func (d *duel) pass() {
	by := time.Duration(0)
	switch n := d.upTo(99); {
	case n < 40:
	case n < 70:
		by = time.Duration(d.rnd.Int64N(int64(d.base / 20))).Truncate(time.Microsecond)
	case n < 85:
		by = d.moment()
	case n < 99:
		by = d.toEdge(d.base)
	default:
		by = d.toEdge(1000 * time.Hour)
	}
	d.clock.Add(int64(max(0, by)))
	d.edges = slices.DeleteFunc(d.edges, func(at weir.Instant) bool { return at <= d.now() })
	d.edges = d.edges[max(0, len(d.edges)-16):]
}

// toEdge returns how far an edge is, if that is not further than most.
func (d *duel) toEdge(most time.Duration) time.Duration {
	if len(d.edges) == 0 {
		return 0
	}
	by := one(d, d.edges...).Sub(d.now()) - time.Duration(d.upTo(1))*time.Microsecond
	if by > most {
		return 0
	}
	return by
}

// same compares a decision with the exact one, whose durations are rounded up. With open holds
// ResetAfter may be an upper bound; so of two limits with as much left the other may be reported.
func (d *duel) same(c weir.Charge, i int, got, want weir.Decision) {
	d.t.Helper()
	if d.book.held(c) && got.Allowed == want.Allowed && got.Remaining == want.Remaining && (got.ResetAfter > want.ResetAfter || got.ResetAfter == weir.Never) {
		want.ResetAfter = got.ResetAfter
		if got.Allowed || got.RetryAfter == upToMicros(want.RetryAfter) {
			want.By, want.Limit = got.By, got.Limit
		}
	}
	want.RetryAfter, want.ResetAfter = upToMicros(want.RetryAfter), upToMicros(want.ResetAfter)
	want.Held = want.Held && want.Reason != weir.TooCostly // no end of a hold makes that fit
	if got != want && !isTie(got, want) {
		d.fail("charge %d:\n got %s\nwant %s", i, show(got), show(want))
	}
	d.tally.decision(want)
	d.tally.refusal(c, want)
	for _, after := range []time.Duration{want.RetryAfter, want.ResetAfter} {
		if after > 0 && after != weir.Never && d.oneIn(8) {
			d.edges = append(d.edges, d.now().Add(after))
		}
	}
}

// isTie says whether two decisions differ only in which of two limits they are of, whose times to retry or to reset
// are in the same microsecond: the store takes the first, and the book the later one.
func isTie(got, want weir.Decision) bool {
	tie := want
	tie.By, tie.Limit = got.By, got.Limit
	if want.Reason == weir.Exhausted && want.RetryAfter != weir.Never {
		tie.Remaining, tie.ResetAfter = got.Remaining, got.ResetAfter
	}
	return got == tie && got.By < want.By
}

func upToMicros(d time.Duration) time.Duration {
	if d == weir.Never {
		return d
	}
	return (d + time.Microsecond - 1).Truncate(time.Microsecond)
}

// show tells every field of a decision.
func show(d weir.Decision) string {
	type fields weir.Decision
	return fmt.Sprintf("%+v", fields(d))
}

func (d *duel) note(what string, charges ...weir.Charge) {
	d.steps += len(charges)
	var b strings.Builder
	fmt.Fprintf(&b, "%v after the start, %s:", d.now().Sub(duelStart), what)
	for _, c := range charges {
		fmt.Fprintf(&b, " %s/%q %s %d;", c.Policy.Name(), c.Key, c.Policy.ClassName(), c.Cost)
	}
	d.past = append(d.past, b.String())
	d.past = d.past[max(0, len(d.past)-8):]
}

// fail ends the test and tells what led to it.
func (d *duel) fail(format string, args ...any) {
	d.t.Helper()
	var b strings.Builder
	for _, p := range d.policies {
		fmt.Fprintf(&b, "  %s %+v\n", p.Name(), p.Limits())
	}
	d.t.Fatalf("seed %d, step %d: %s\nthe last calls:\n  %s\nthe policies:\n%s",
		d.seed, d.steps, fmt.Sprintf(format, args...), strings.Join(d.past, "\n  "), b.String())
}

// A book is the slow, obvious store: an exact ledger for every pair of policy and
// key that was ever charged.
type book struct {
	epoch weir.Instant
	rows  map[rowOf]*algo.Ledger
	holds map[[16]byte]holdOf
	tally *tally
}

// held says whether a key has holds.
func (b *book) held(c weir.Charge) bool {
	l := b.rows[rowOf{c.Policy.Name(), c.Key}]
	return l != nil && l.Holds() > 0
}

type rowOf struct{ policy, key string }

// A holdOf says in which row a hold is, and which it is there.
type holdOf struct {
	row rowOf
	id  uint64

	settled *weir.Settled // the outcome, which is remembered until the expiry
	expiry  weir.Instant
}

// row returns a copy of a row, for a charge of its class.
func (b *book) row(c weir.Charge) (rowOf, *algo.Ledger) {
	at := rowOf{c.Policy.Name(), c.Key}
	l := algo.NewLedger(c.Policy.Compiled().Rules, int64(b.epoch))
	if was := b.rows[at]; was != nil {
		l = was.Clone()
	}
	l.SetClass(c.Policy.ClassName())
	return at, l
}

// take is a call of its own, and takeOne a charge of a batch of them.
func (b *book) take(c weir.Charge, now weir.Instant) weir.Decision {
	d := b.takeOne(c, now)
	if !d.Allowed {
		b.recall(c, now, false)
	}
	return d
}

func (b *book) takeOne(c weir.Charge, now weir.Instant) weir.Decision {
	at, l := b.row(c)
	v := l.Take(int64(now), c.Cost)
	if v.OK && c.Cost > 0 {
		b.rows[at] = l
	}
	return b.decision(c, v, now, (*algo.Ledger).Take)
}

// decision makes a Decision of a verdict. What a class can take beside holds may fall again before the next whole
// microsecond, and the store finds the first of these at which a charge is admitted; again judges it.
func (b *book) decision(c weir.Charge, v algo.Verdict, now weir.Instant, again func(l *algo.Ledger, now, cost int64) algo.Verdict) weir.Decision {
	for !v.OK && !v.Crowded && v.RetryAt != algo.Never && v.RetryAt%1000 != 0 {
		_, l := b.row(c)
		at := v.RetryAt + 1000 - v.RetryAt%1000
		if then := again(l, at, c.Cost); then.OK {
			v.RetryAt = at
		} else {
			v.RetryAt = then.RetryAt
		}
	}
	return storeapi.Decision(v, now)
}

// do carries out a batch whose receipts the store has written already.
func (b *book) do(batch *weir.Batch, now weir.Instant) ([]weir.Decision, []weir.Settled) {
	decisions, settled := make([]weir.Decision, len(batch.Charges)), make([]weir.Settled, len(batch.Charges))
	for i, units := range batch.Used {
		if at, l := b.row(batch.Charges[i]); units > 0 {
			l.Debit(int64(now), units)
			b.rows[at] = l
		}
	}
	before := make(map[rowOf]*algo.Ledger, len(batch.Charges))
	allowed := true
	for i, c := range batch.Charges {
		at, l := b.row(c)
		if _, seen := before[at]; !seen {
			before[at] = b.rows[at]
		}
		switch batch.Op {
		case weir.TakeEach:
			decisions[i] = b.take(c, now)
		case weir.TakeAll:
			decisions[i] = b.takeOne(c, now)
		case weir.DebitEach:
			decisions[i] = storeapi.Decision(l.Debit(int64(now), c.Cost), now)
			if c.Cost > 0 {
				b.rows[at] = l
			}
		case weir.PeekEach:
			decisions[i] = b.decision(c, l.Peek(int64(now), c.Cost), now, (*algo.Ledger).Peek)
		case weir.ReserveAll:
			decisions[i] = b.reserve(c, batch.Receipts[i].ID, now, batch.TTL)
		case weir.Settle:
			settled[i] = b.settle(at, batch.Receipts[i].ID, now, c.Cost)
		case weir.Renew:
			decisions[i] = b.renew(c, batch.Receipts[i].ID, now, batch.TTL)
		case weir.ResetEach:
			if b.rows[at] != nil {
				l.Reset(int64(now))
				b.rows[at] = l
			}
		}
		allowed = allowed && decisions[i].Allowed
	}
	if (batch.Op == weir.TakeAll || batch.Op == weir.ReserveAll) && !allowed {
		b.undo(before)
		b.recallAll(batch, decisions, now)
		for i := range decisions {
			if d := &decisions[i]; d.Allowed {
				d.Allowed, d.Reason = false, weir.NotCharged
			}
		}
	}
	return decisions, settled
}

func (b *book) undo(before map[rowOf]*algo.Ledger) {
	for at, l := range before {
		if b.rows[at] = l; l == nil {
			delete(b.rows, at)
		}
	}
}

func (b *book) reserve(c weir.Charge, name [16]byte, now weir.Instant, ttl time.Duration) weir.Decision {
	at, l := b.row(c)
	id, v := l.Reserve(int64(now), c.Cost, int64(now.Add(ttl)))
	if v.OK {
		b.rows[at], b.holds[name] = l, holdOf{row: at, id: id, expiry: now.Add(ttl)}
	}
	return b.decision(c, v, now, func(l *algo.Ledger, now, cost int64) algo.Verdict {
		_, v := l.Reserve(now, cost, now)
		return v
	})
}

func (b *book) settle(at rowOf, name [16]byte, now weir.Instant, used int64) weir.Settled {
	h, known := b.holds[name]
	if !known || h.row != at {
		return weir.Settled{Late: true}
	}
	if h.settled != nil && now < h.expiry {
		return *h.settled
	}
	out := weir.Settled(b.rows[at].Settle(int64(now), h.id, used))
	h.settled = &out
	b.holds[name] = h
	return out
}

func (b *book) renew(c weir.Charge, name [16]byte, now weir.Instant, ttl time.Duration) weir.Decision {
	at, _ := b.row(c)
	h, known := b.holds[name]
	if known && h.row == at && b.rows[at].Renew(int64(now), h.id, int64(now.Add(ttl))) {
		h.expiry = now.Add(ttl)
		b.holds[name] = h
		return weir.Decision{Allowed: true, Reason: weir.Admitted}
	}
	return weir.Decision{Reason: weir.TooLate, RetryAfter: weir.Never}
}
