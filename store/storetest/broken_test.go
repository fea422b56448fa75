package storetest

import (
	"context"
	"flag"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/storeapi"
)

const random = "Random/like a ledger for each key"

// quietRapid lets rapid find failures without shrinking or keeping them.
func quietRapid(t *testing.T) {
	t.Helper()
	for name, value := range map[string]string{"rapid.shrinktime": "0s", "rapid.nofailfile": "true", "rapid.seed": "1", "rapid.checks": "300"} {
		f := flag.Lookup(name)
		was := f.Value.String()
		if err := f.Value.Set(value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Value.Set(was) })
	}
}

// Every way to be broken is noticed, by the tests that are meant for it.
func TestBrokenStores(t *testing.T) {
	quietRapid(t)
	for _, b := range brokenStores {
		t.Run(b.name, func(t *testing.T) {
			s := Store{Without: unbounded, Resolution: 1}
			s.Open = func(_ testing.TB, o Options) weir.Limiter { return b.open(newModel(&s, o.Clock.Now)) }
			for _, path := range b.caughtBy {
				if rec := record(t, &s, lookUp(t, path)); !rec.Failed() {
					t.Errorf("%s does not notice it", path)
				} else {
					t.Logf("%s: %s", path, rec.logs[0])
				}
			}
		})
	}
}

var brokenStores = []struct {
	name     string
	open     func(*model) weir.Limiter
	caughtBy []string
}{
	{"forgets refunds", forgetsRefunds, []string{random, "Holds/commit keeps what was used", "Holds/cancel gives all back"}},
	{"charges on refusal", chargesOnRefusal, []string{random, "Take/a refusal changes nothing", "Take/a refusal by one limit charges none"}},
	{"takes steps back for time", countsStepsBack, []string{random, "Time/a step back grants nothing", "Time/a step back is no time at all"}},
	{"keeps key strings", keepsKeys, []string{"Apart/key strings are not kept"}},
	{"forgives on Set", forgivesOnSet, []string{random, "Set/units in use are kept", "Set/an excess blocks until it is paid off"}},
	{"converts after Set when called", convertsLate, []string{random, "Set/a raised limit takes effect at once"}},
	{"follows policies by object", followsObjects, []string{random, "Set/who brings the old policy gets the new"}},
	{"takes what it can of all", takesSome, []string{random, "Batch/TakeAll takes all or nothing", "Batch/charges to one key add up"}},
	{"takes when it peeks", takesOnPeek, []string{random, "Take/peek changes nothing", "Batch/PeekEach and ResetEach"}},
	{"validates as it goes", validatesLate, []string{"Input/a bad charge spoils its batch"}},
	{"reads the clock for each charge", validatesLate, []string{"Batch/one clock reading"}},
	{"frees holds on reset", resetFrees, []string{random, "Holds/reset keeps what is held", "Slots/reset and overrun"}},
	{"does not renew", noRenewal, []string{random, "Holds/renew moves the expiry", "Slots/without an expiry"}},
	{"tells times in milliseconds", inMilliseconds, []string{random, "Take/every field of a decision", "Time/retry after is exact", "Vectors/gcra", "Vectors/sliding"}},
	{"tells of the first limit", firstLimit, []string{random, "Take/admitted by several limits, the tightest tells", "Take/refused by several limits, the longest tells"}},
	{"checks, then acts", checksThenActs, []string{"Race/64 goroutines get what one would"}},
	{"keeps overrides apart", overridesApart, []string{random, "Override/overrides share state", "Override/Scale shares state"}},
	{"gives back what is late", lateRefunds, []string{random, "Holds/late settling changes nothing"}},
	{"counts initial from a key's first call", initialFromCall, []string{random, "Time/initial counts from the start of the store"}},
	{"folds the case of keys", foldsCase, []string{"Apart/any bytes are a key"}},
	{"runs names and keys together", joinsNames, []string{"Apart/any bytes are a key"}},
	{"shares all policies", sharesPolicies, []string{random, "Apart/keys and policies do not share"}},
	{"asks nobody for a receipt's owner", anyReceipt, []string{random, "Holds/someone else's receipt"}},
	{"forgets settlements", forgetsSettled, []string{random, "Holds/settling twice", "Race/a reservation is settled once"}},
	{"remembers settlements for ever", remembersSettled, []string{random, "Holds/settling twice"}},
	{"ignores contexts", ignoresContext, []string{"Input/a cancelled context charges nothing"}},
	{"takes slots", takesSlots, []string{random, "Input/slots cannot be taken", "Set/to slots and back"}},
	{"charges for nothing", chargesForNothing, []string{random, "Take/cost 0 is admitted and changes nothing"}},
	{"refuses debits that do not fit", refusesDebits, []string{random, "Debit/what does not fit is owed", "Debit/windows count beyond their limit", "Debit/beside what is held"}},
	{"owes no more than fits", cutsDebits, []string{random, "Debit/what does not fit is owed", "Debit/debts are bounded"}},
	{"does not say that units are held", hidesHolds, []string{random, "Holds/refusals while units are held say so"}},
	{"says always that units are held", alwaysHeld, []string{random, "Holds/refusals while units are held say so"}},
	{"forgets what was used before", forgetsUsed, []string{random, "Batch/what was used is charged first", "Batch/what was used is charged also if all is refused"}},
	{"charges what was used before unless all is refused", usedUnlessRefused, []string{random, "Batch/what was used is charged also if all is refused"}},
	{"charges what was used before with a bad batch", usedOfBad, []string{"Batch/what was used with a bad batch is not charged"}},
	{"knows one class", oneClass, []string{random, "Classes/shares that lend", "Classes/no class is worse off than by itself", "Classes/holds keep to their class"}},
	{"lets classes save up beside what they hold", uncappedClasses, []string{"Classes/holds beyond what classes have", "Classes/no class is worse off than by itself"}},
	{"leaves a batch as it was", dirtyBatch, []string{"Batch/a batch may be used again"}},
}

// each carries out a batch's charges one by one.
func each(ctx context.Context, l weir.Limiter, b *weir.Batch) error {
	b.Decisions = make([]weir.Decision, len(b.Charges))
	b.Settled = make([]weir.Settled, len(b.Charges))
	for i := range b.Charges {
		one := weir.Batch{Op: b.Op, Charges: b.Charges[i : i+1], TTL: b.TTL}
		if i < len(b.Receipts) {
			one.Receipts = b.Receipts[i : i+1]
		}
		if err := l.Do(ctx, &one); err != nil {
			return err
		}
		b.Decisions[i], b.Settled[i] = one.Decisions[0], one.Settled[0]
	}
	return nil
}

// oneClass charges everything to the first class.
func oneClass(m *model) weir.Limiter {
	return hooked{Limiter: m, do: func(ctx context.Context, b *weir.Batch) error {
		charges := b.Charges
		defer func() { b.Charges = charges }()
		b.Charges = slices.Clone(charges)
		for i, c := range charges {
			if c.Policy == nil || len(c.Policy.ClassNames()) == 0 {
				continue
			}
			b.Charges[i].Policy, _ = c.Policy.Class(c.Policy.ClassNames()[0])
		}
		return m.Do(ctx, b)
	}}
}

// uncappedClasses lowers the level of no class by what the class holds: its holds are of a class without a share.
func uncappedClasses(m *model) weir.Limiter {
	return hooked{
		Limiter: m,
		do: func(ctx context.Context, b *weir.Batch) error {
			was := b.Charges
			b.Charges = slices.Clone(was)
			defer func() { b.Charges = was }()
			for i := range b.Charges {
				b.Charges[i].Policy = withNobody(b.Charges[i].Policy)
			}
			err := m.Do(ctx, b)
			for _, r := range m.state.rows {
				r.ledger = heldByNobody(r.ledger)
			}
			return err
		},
		set: func(ctx context.Context, old, new *weir.Policy) error {
			return m.Set(ctx, withNobody(old), withNobody(new))
		},
	}
}

// withNobody returns a policy with one class more, which has no share. Holds of classes that there are not are of that class.
func withNobody(p *weir.Policy) *weir.Policy {
	limits := p.Limits()
	for i, l := range limits {
		if l.Algorithm == weir.Lending {
			limits[i].Classes = weir.ClassesOf(append(l.Classes.List(), weir.Class{Name: "nobody"})...)
		}
	}
	next := weir.Must(weir.NewPolicy(p.Name(), limits...))
	if class, err := next.Class(p.ClassName()); err == nil {
		return class
	}
	return next
}

// heldByNobody returns a ledger whose holds are of classes that there are not: it changes their names where the
// ledger's encoding begins, if they have any.
func heldByNobody(l *algo.Ledger) *algo.Ledger {
	data := l.AppendBinary(nil)
	const namesFollow = 5 // algo's classFormat
	if data[0] != namesFollow {
		return l
	}
	at := 2
	for range data[1] {
		data[at+1] = '~'
		at += 1 + int(data[at])
	}
	next := &algo.Ledger{}
	if err := next.ReadBinary(l.Rules(), data); err != nil {
		panic(err)
	}
	return next
}

func forgetsRefunds(m *model) weir.Limiter {
	return hooked{Limiter: m, do: func(ctx context.Context, b *weir.Batch) error {
		if b.Op != weir.Settle || len(b.Receipts) != len(b.Charges) {
			return m.Do(ctx, b)
		}
		all := *b
		all.Charges = slices.Clone(b.Charges)
		for i := range all.Charges {
			all.Charges[i].Cost = max(all.Charges[i].Cost, b.Receipts[i].Units)
		}
		err := m.Do(ctx, &all)
		b.Decisions, b.Settled = all.Decisions, all.Settled
		for i, s := range b.Settled {
			if back := b.Receipts[i].Units - b.Charges[i].Cost; back > 0 && !s.Late {
				b.Settled[i].Refunded = back // and says so all the same
			}
		}
		return err
	}}
}

func chargesOnRefusal(m *model) weir.Limiter {
	return hooked{Limiter: m, take: func(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
		d, err := m.Take(ctx, p, key, cost)
		if err == nil && !d.Allowed && d.Remaining > 0 {
			_, _ = m.Take(ctx, p, key, 1)
		}
		return d, err
	}}
}

func countsStepsBack(m *model) weir.Limiter {
	clock := m.clock
	last, shown := clock(), clock()
	m.clock = func() weir.Instant {
		now := clock()
		shown += max(now-last, last-now)
		last = now
		return shown
	}
	return m
}

func keepsKeys(m *model) weir.Limiter {
	owners := map[[16]byte]string{}
	return hooked{Limiter: m, do: func(ctx context.Context, b *weir.Batch) error {
		for i := range b.Receipts {
			if key, ok := owners[b.Receipts[i].ID]; ok && b.Op == weir.Settle && key != b.Charges[i].Key {
				b.Receipts[i] = weir.Receipt{}
			}
		}
		err := m.Do(ctx, b)
		for i := range b.Receipts {
			owners[b.Receipts[i].ID] = b.Charges[i].Key
		}
		return err
	}}
}

func forgivesOnSet(m *model) weir.Limiter {
	return hooked{Limiter: m, set: func(ctx context.Context, old, new *weir.Policy) error {
		err := m.Set(ctx, old, new)
		if err == nil && !old.Same(new) {
			maps.DeleteFunc(m.state.rows, func(k rowKey, _ *row) bool { return k.policy == new.Name() })
		}
		return err
	}}
}

func convertsLate(m *model) weir.Limiter {
	return hooked{Limiter: m, set: func(ctx context.Context, old, new *weir.Policy) error {
		rows := m.state.rows
		m.state.rows = nil // hidden from Set
		err := m.Set(ctx, old, new)
		m.state.rows = rows
		return err
	}}
}

func followsObjects(m *model) weir.Limiter {
	means := map[*weir.Policy]*weir.Policy{}
	follow := func(p *weir.Policy) *weir.Policy {
		for range 10 {
			if next := means[p]; next != nil {
				p = next
			}
		}
		return p
	}
	return hooked{
		Limiter: m,
		do: func(ctx context.Context, b *weir.Batch) error {
			mapped := slices.Clone(b.Charges)
			for i := range mapped {
				mapped[i].Policy = follow(mapped[i].Policy)
			}
			b.Charges, mapped = mapped, b.Charges
			defer func() { b.Charges = mapped }()
			return m.Do(ctx, b)
		},
		set: func(_ context.Context, old, new *weir.Policy) error {
			delete(means, new)
			if old = follow(old); old != new {
				means[old] = new
			}
			return nil
		},
	}
}

func takesSome(m *model) weir.Limiter {
	return hooked{Limiter: m, do: func(ctx context.Context, b *weir.Batch) error {
		if b.Op != weir.TakeAll {
			return m.Do(ctx, b)
		}
		b.Op = weir.TakeEach
		defer func() { b.Op = weir.TakeAll }()
		err := m.Do(ctx, b)
		if all := b.Allowed(); !all {
			for i := range b.Decisions {
				b.Decisions[i].Allowed = false
			}
		}
		return err
	}}
}

func takesOnPeek(m *model) weir.Limiter {
	return hooked{Limiter: m, do: func(ctx context.Context, b *weir.Batch) error {
		if b.Op == weir.PeekEach {
			b.Op = weir.TakeEach
			defer func() { b.Op = weir.PeekEach }()
		}
		return m.Do(ctx, b)
	}}
}

func validatesLate(m *model) weir.Limiter {
	return hooked{Limiter: m, do: func(ctx context.Context, b *weir.Batch) error {
		if b.Op == weir.TakeEach || b.Op == weir.PeekEach {
			return each(ctx, m, b)
		}
		return m.Do(ctx, b)
	}}
}

func resetFrees(m *model) weir.Limiter {
	return hooked{Limiter: m, do: func(ctx context.Context, b *weir.Batch) error {
		err := m.Do(ctx, b)
		if err == nil && b.Op == weir.ResetEach {
			for _, c := range b.Charges {
				delete(m.state.rows, rowKey{c.Policy.Name(), c.Key})
				maps.DeleteFunc(m.state.holds, func(_ [16]byte, h holdKey) bool { return h.row == rowKey{c.Policy.Name(), c.Key} })
			}
		}
		return err
	}}
}

func noRenewal(m *model) weir.Limiter {
	return hooked{Limiter: m, do: func(ctx context.Context, b *weir.Batch) error {
		if b.Op != weir.Renew {
			return m.Do(ctx, b)
		}
		before := maps.Clone(m.state.rows)
		err := m.Do(ctx, b)
		m.state.rows = before
		return err
	}}
}

func inMilliseconds(m *model) weir.Limiter {
	coarse := Store{Resolution: time.Millisecond}
	return hooked{Limiter: m, reported: coarse.asReported}
}

func firstLimit(m *model) weir.Limiter {
	return hooked{Limiter: m, reported: func(d weir.Decision) weir.Decision { d.By = 0; return d }}
}

func checksThenActs(m *model) weir.Limiter {
	return hooked{Limiter: m, take: func(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
		d, err := weir.Peek(ctx, m, p, key, cost)
		if err != nil || !d.Allowed {
			return d, err
		}
		runtime.Gosched()
		res, err := weir.Reserve(ctx, m, 0, weir.Charge{Policy: p, Key: key})
		if err == nil {
			_, err = res.Commit(ctx, cost) // owed, whether it fits or not
		}
		return d, err
	}}
}

// rekeyed changes the keys that the store sees.
func rekeyed(m *model, key func(weir.Charge) weir.Charge) weir.Limiter {
	return hooked{Limiter: m, do: func(ctx context.Context, b *weir.Batch) error {
		was := b.Charges
		b.Charges = slices.Clone(was)
		for i := range b.Charges {
			if b.Charges[i].Policy != nil {
				b.Charges[i] = key(b.Charges[i])
			}
		}
		defer func() { b.Charges = was }()
		return m.Do(ctx, b)
	}}
}

func overridesApart(m *model) weir.Limiter {
	return rekeyed(m, func(c weir.Charge) weir.Charge {
		c.Key += describe(c.Policy)
		return c
	})
}

func foldsCase(m *model) weir.Limiter {
	return rekeyed(m, func(c weir.Charge) weir.Charge {
		c.Key = strings.ToLower(c.Key)
		return c
	})
}

func joinsNames(m *model) weir.Limiter {
	return rekeyed(m, func(c weir.Charge) weir.Charge {
		p, err := weir.NewPolicy("all", c.Policy.Limits()...)
		if err != nil {
			panic(err)
		}
		return weir.Charge{Policy: p, Key: c.Policy.Name() + ":" + c.Key[:min(len(c.Key), 200)], Cost: c.Cost}
	})
}

func sharesPolicies(m *model) weir.Limiter {
	return rekeyed(m, func(c weir.Charge) weir.Charge {
		c.Policy, _ = weir.NewPolicy("all", c.Policy.Limits()...)
		return c
	})
}

func lateRefunds(m *model) weir.Limiter {
	return hooked{Limiter: m, do: func(ctx context.Context, b *weir.Batch) error {
		err := m.Do(ctx, b)
		for i, s := range b.Settled {
			if c := b.Charges[i]; s.Late && err == nil && b.Op == weir.Settle {
				_ = weir.Reset(ctx, m, c.Policy, c.Key)
			}
		}
		return err
	}}
}

func initialFromCall(m *model) weir.Limiter {
	return hooked{Limiter: m, do: func(ctx context.Context, b *weir.Batch) error {
		m.epoch = m.clock()
		return m.Do(ctx, b)
	}}
}

func anyReceipt(m *model) weir.Limiter {
	return hooked{Limiter: m, do: func(ctx context.Context, b *weir.Batch) error {
		was := b.Charges
		b.Charges = slices.Clone(was)
		for i := range b.Charges {
			if i < len(b.Receipts) && (b.Op == weir.Settle || b.Op == weir.Renew) {
				if h, ok := m.state.holds[b.Receipts[i].ID]; ok {
					p, err := weir.NewPolicy(h.row.policy, m.state.rows[h.row].policy.Limits()...)
					if err != nil {
						panic(err)
					}
					b.Charges[i].Policy, b.Charges[i].Key = p, h.row.key
				}
			}
		}
		defer func() { b.Charges = was }()
		return m.Do(ctx, b)
	}}
}

func remembersSettled(m *model) weir.Limiter {
	var mu sync.Mutex
	settled := map[[16]byte]weir.Settled{}
	return hooked{Limiter: m, do: func(ctx context.Context, b *weir.Batch) error {
		err := m.Do(ctx, b)
		if err != nil || b.Op != weir.Settle {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for i, s := range b.Settled {
			id := b.Receipts[i].ID
			if was, ok := settled[id]; ok {
				b.Settled[i] = was
			} else if !s.Late {
				settled[id] = s
			}
		}
		return nil
	}}
}

func ignoresContext(m *model) weir.Limiter {
	return hooked{Limiter: m, do: func(_ context.Context, b *weir.Batch) error { return m.Do(background(), b) }}
}

func takesSlots(m *model) weir.Limiter {
	return hooked{Limiter: m, do: func(ctx context.Context, b *weir.Batch) error {
		err := m.Do(ctx, b)
		if b.Op == weir.TakeEach && err != nil && strings.Contains(err.Error(), "concurrency") {
			b.Decisions = make([]weir.Decision, len(b.Charges))
			return nil
		}
		return err
	}}
}

func chargesForNothing(m *model) weir.Limiter {
	return hooked{Limiter: m, take: func(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
		return m.Take(ctx, p, key, max(cost, min(1, 1+cost)))
	}}
}

func refusesDebits(m *model) weir.Limiter {
	return hooked{Limiter: m, do: func(ctx context.Context, b *weir.Batch) error {
		if b.Op == weir.DebitEach {
			b.Op = weir.TakeEach
			defer func() { b.Op = weir.DebitEach }()
		}
		return m.Do(ctx, b)
	}}
}

func cutsDebits(m *model) weir.Limiter {
	return hooked{Limiter: m, do: func(ctx context.Context, b *weir.Batch) error {
		if b.Op != weir.DebitEach || storeapi.CheckBatch(b) != nil {
			return m.Do(ctx, b)
		}
		was := b.Charges
		b.Charges = slices.Clone(was)
		defer func() { b.Charges = was }()
		for i, c := range was {
			if d, err := weir.Peek(ctx, m, c.Policy, c.Key, 0); err == nil {
				b.Charges[i].Cost = min(c.Cost, d.Remaining)
			}
		}
		return m.Do(ctx, b)
	}}
}

func dirtyBatch(m *model) weir.Limiter {
	return hooked{Limiter: m, do: func(ctx context.Context, b *weir.Batch) error {
		before := slices.Clone(b.Decisions)
		err := m.Do(ctx, b)
		if b.Op == weir.Settle {
			copy(b.Decisions, before)
		}
		return err
	}}
}

func hidesHolds(m *model) weir.Limiter {
	return hooked{Limiter: m, reported: func(d weir.Decision) weir.Decision { d.Held = false; return d }}
}

func alwaysHeld(m *model) weir.Limiter {
	return hooked{Limiter: m, reported: func(d weir.Decision) weir.Decision {
		d.Held = !d.Allowed && d.Reason != weir.Admitted
		return d
	}}
}

// withoutUsed carries out a batch as if nothing had been used before it.
func withoutUsed(ctx context.Context, m *model, b *weir.Batch) error {
	used := b.Used
	b.Used = nil
	defer func() { b.Used = used }()
	return m.Do(ctx, b)
}

// debitUsed charges what was used before a batch, as a batch of its own.
func debitUsed(ctx context.Context, m *model, b *weir.Batch) error {
	debit := weir.Batch{Op: weir.DebitEach}
	for i, units := range b.Used[:min(len(b.Used), len(b.Charges))] {
		debit.Charges = append(debit.Charges, charge(b.Charges[i].Policy, b.Charges[i].Key, units))
	}
	return m.Do(ctx, &debit)
}

func forgetsUsed(m *model) weir.Limiter {
	return hooked{Limiter: m, do: func(ctx context.Context, b *weir.Batch) error { return withoutUsed(ctx, m, b) }}
}

func usedUnlessRefused(m *model) weir.Limiter {
	return hooked{Limiter: m, do: func(ctx context.Context, b *weir.Batch) error {
		before := state{maps.Clone(m.state.rows), maps.Clone(m.state.holds)}
		err := m.Do(ctx, b)
		if (b.Op == weir.TakeAll || b.Op == weir.ReserveAll) && err == nil && !b.Allowed() {
			m.state = before
		}
		return err
	}}
}

func usedOfBad(m *model) weir.Limiter {
	return hooked{Limiter: m, do: func(ctx context.Context, b *weir.Batch) error {
		if b.Used == nil {
			return m.Do(ctx, b)
		}
		if err := debitUsed(ctx, m, b); err != nil {
			return err
		}
		return withoutUsed(ctx, m, b)
	}}
}

func forgetsSettled(m *model) weir.Limiter {
	var mu sync.Mutex
	settled := map[[16]byte]bool{}
	return hooked{Limiter: m, do: func(ctx context.Context, b *weir.Batch) error {
		mu.Lock()
		defer mu.Unlock()
		err := m.Do(ctx, b)
		for i, s := range b.Settled {
			if err != nil || b.Op != weir.Settle || s.Late {
				continue
			}
			if id := b.Receipts[i].ID; settled[id] {
				b.Settled[i] = weir.Settled{Late: true}
			} else {
				settled[id] = true
			}
		}
		return err
	}}
}
