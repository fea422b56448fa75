package guard

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// subscriptionModel counts the subscriptions of a subject slowly.
type subscriptionModel struct {
	config  Subscriptions
	open    []modelSubscription
	crashed [2][]weir.Instant // when leases of slots and of items expire that nobody renews
	created []time.Time       // within the last minute
	changed []time.Time
}

type modelSubscription struct {
	*Subscription
	items int64
}

// used returns how many subscriptions and items count.
func (m *subscriptionModel) used() (slots, items int64) {
	for i, list := range m.crashed {
		m.crashed[i] = slices.DeleteFunc(list, func(at weir.Instant) bool { return at <= weir.Now() })
	}
	for _, s := range m.open {
		items += s.items
	}
	return int64(len(m.open) + len(m.crashed[0])), items + int64(len(m.crashed[1]))
}

// recent returns the times of the last minute.
func recent(times []time.Time) []time.Time {
	return slices.DeleteFunc(times, func(at time.Time) bool { return time.Since(at) >= time.Minute })
}

// refusers returns which limits refuse items for a subscription that has so many, or for a new one.
// ItemsEach and a number beyond ItemsTotal are checked first.
func (m *subscriptionModel) refusers(isNew bool, has, items int64) (names []string) {
	m.created, m.changed = recent(m.created), recent(m.changed)
	slots, inAll := m.used()
	if has+items > m.config.ItemsEach {
		return []string{"items_each"}
	}
	if inAll+items > m.config.ItemsTotal {
		names = append(names, "items_total")
	}
	if isNew && slots == m.config.PerSubject {
		names = append(names, "subscriptions")
	}
	if isNew && int64(len(m.created)) == m.config.Create.Rate {
		names = append(names, "create")
	}
	if !isNew && int64(len(m.changed)) == m.config.Modify.Rate {
		names = append(names, "modify")
	}
	return names
}

// Random sequences: every decision is the model's, and so are the counts after every step.
func TestSubscriptionModel(t *testing.T) {
	seeds, steps := 60, 150
	if testing.Short() {
		seeds = 5
	}
	for i := range seeds {
		seed := rand.Uint64()
		if i == 0 {
			seed = 1
		}
		if ok := t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runSubscriptionModel(t, rand.New(rand.NewPCG(seed, 0)), steps) })
		}); !ok {
			return
		}
	}
}

func runSubscriptionModel(t *testing.T, random *rand.Rand, steps int) {
	log := func(n int64) weir.Limit {
		return weir.Limit{Rate: n, Per: weir.Every(time.Minute), Algorithm: weir.SlidingLog}
	}
	m := &subscriptionModel{config: Subscriptions{PerSubject: 4, ItemsEach: 10, ItemsTotal: 25, Create: log(8), Modify: log(12)}}
	f := &faultyLimiter{Limiter: newTestTable(t)}
	r, l := newSubscriptions(f), newTestLimits(t, m.config)
	defer r.close()
	for step := range steps {
		what := m.step(t, random, r, l)
		synctest.Wait()
		slots, items := m.used()
		if slots > m.config.PerSubject || items > m.config.ItemsTotal {
			t.Fatalf("step %d, %s: %d subscriptions and %d items", step, what, slots, items)
		}
		got, open, inOpen := left(t, f.Limiter, l), int64(len(m.open)), items-int64(len(m.crashed[1]))
		if got[0] != m.config.PerSubject-slots || got[1] != m.config.ItemsTotal-items {
			t.Fatalf("step %d, %s: %d and %d left, the model has %d subscriptions and %d items", step, what, got[0], got[1], slots, items)
		}
		if s := r.stats(); s.open != open || s.items != inOpen {
			t.Fatalf("step %d, %s: %d with %d items are open, in the model %d with %d", step, what, s.open, s.items, open, inOpen)
		}
	}
	if f.calls(weir.ReserveAll) < steps/10 {
		t.Errorf("only %d reservations", f.calls(weir.ReserveAll))
	}
}

// step does something at random, in the registry and in the model.
func (m *subscriptionModel) step(t *testing.T, random *rand.Rand, r *subscriptions, l *subscriptionLimits) string {
	kind, items := random.IntN(12), random.Int64N(12)
	if kind < 3 {
		refusers := m.refusers(true, 0, items)
		s, d, err := r.open(t.Context(), l, "user:a", items)
		m.check(t, d, err, refusers)
		if d.Allowed {
			m.open, m.created = append(m.open, modelSubscription{s, items}), append(m.created, time.Now())
		}
		return fmt.Sprintf("open %d", items)
	}
	if kind < 6 || len(m.open) == 0 {
		d := time.Duration(random.Int64N(int64(30 * time.Second)))
		time.Sleep(d)
		return fmt.Sprintf("wait %v", d)
	}
	at := random.IntN(len(m.open))
	s := &m.open[at]
	switch {
	case kind < 8:
		items++
		refusers := m.refusers(false, s.items, items)
		d, err := s.Add(t.Context(), items)
		if m.check(t, d, err, refusers); d.Allowed {
			s.items, m.changed = s.items+items, append(m.changed, time.Now())
		}
		return fmt.Sprintf("add %d", items)
	case kind < 10:
		want := min(items, s.items)
		if got := s.Remove(items); got != want {
			t.Fatalf("%d of %d items removed, want %d", got, s.items, want)
		}
		s.items -= want
		return fmt.Sprintf("remove %d", items)
	}
	what := "close"
	if kind == 10 {
		s.Close()
	} else {
		what = "crash"
		for i, lease := range s.crash() {
			of := min(i, 1)
			m.crashed[of] = append(m.crashed[of], lease.receipt.Expiry)
		}
	}
	m.open = slices.Delete(m.open, at, at+1)
	return what
}

// check compares a decision with the limits that refuse in the model.
func (m *subscriptionModel) check(t *testing.T, d SubscriptionDecision, err error, refusers []string) {
	t.Helper()
	switch {
	case err != nil:
		t.Fatal(err)
	case d.Allowed != (len(refusers) == 0) || !d.Allowed && !slices.Contains(refusers, d.Limit):
		t.Fatalf("got %v by %q, the model refuses by %q", d.Decision, d.Limit, refusers)
	}
}
