package storetest

import (
	"os"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// Store says how to make the store under test, and what it can do.
type Store struct {
	// Open returns a store that has never been used and takes its time from
	// o.Clock; what it starts is stopped with t.Cleanup. It is called hundreds of
	// times, so it should be cheap: a new prefix, not a new server.
	Open func(t testing.TB, o Options) weir.Limiter

	// Resolution is the smallest step of the store's time. The suite moves the
	// clock in multiples of it and expects RetryAfter and ResetAfter rounded up
	// to it. The default is a nanosecond.
	Resolution time.Duration

	// Without names the demands that the store does not meet, each with the
	// reason. Tests of them are skipped with that reason, and the random test
	// avoids them.
	Without map[Demand]string
}

// Options is what a test needs of the store that it opens.
type Options struct {
	// Clock is the store's time. It never moves by itself.
	Clock *Clock

	// MaxKeys bounds the pairs of policy and key that are remembered. 0 means
	// the store's default, which must not be less than 1,000.
	MaxKeys int

	// MaxHolds bounds the open reservations. 0 means the store's default, which
	// must not be less than 1,000.
	MaxHolds int
}

// Demand is a requirement of the suite that a store may, for a
// reason, not meet. Everything without a Demand is required of every store.
type Demand string

// The demands that Store.Without may name.
const (
	// BoundedHolds: beyond Options.MaxHolds open reservations, Reserve is
	// refused as QueueFull until one ends, and Take is not.
	BoundedHolds Demand = "bounded holds"

	// BoundedKeys: Options.MaxKeys is kept, and no number of new keys frees one
	// that is refused.
	BoundedKeys Demand = "bounded keys"

	// TimeStandsStill: while the clock is behind the greatest instant that the
	// store has seen, with any key, it decides as at that instant. Without it a
	// store may be stricter, never looser, until the clock has caught up.
	TimeStandsStill Demand = "time stands still"

	// CheckedSet: Set fails, and changes nothing, if some key's units in use
	// cannot be represented under the new limits.
	CheckedSet Demand = "checked Set"

	// RefusalsKeepNumbers: a call under other limits that is refused, or
	// costs nothing, leaves the key under the limits it had. Without it the
	// units in use are converted, and stay so, whatever the outcome.
	RefusalsKeepNumbers Demand = "refusals keep numbers"

	// WholeErrors: a TakeEach or DebitEach one of whose charges cannot be decided because of
	// what an earlier charge of the same batch left behind is an error and
	// charges nothing.
	WholeErrors Demand = "whole errors"

	// ChargesUsed: Batch.Used is charged before the batch. A limiter in front of a
	// store may refuse it.
	ChargesUsed Demand = "charges Used"
)

var demands = []Demand{BoundedHolds, BoundedKeys, TimeStandsStill, CheckedSet, RefusalsKeepNumbers, WholeErrors, ChargesUsed}

// A test is one demand, or a few that belong together, as a subtest.
type test struct {
	name string
	run  func(*rig)
	opts Options // of the store that the test gets; Run fills in the clock
	need Demand  // "" if every store must pass
}

var groups = []struct {
	name  string
	tests []test
}{
	{"Apart", apartTests},
	{"Vectors", vectorTests},
	{"Input", inputTests},
	{"Take", takeTests},
	{"Batch", batchTests},
	{"Debit", debitTests},
	{"Holds", holdTests},
	{"Slots", slotTests},
	{"Classes", classTests},
	{"Set", setTests},
	{"Override", overrideTests},
	{"Time", timeTests},
	{"Bounds", boundTests},
	{"Race", raceTests},
	{"Random", randomTests},
}

// Run runs the suite. With WEIR_TEST=all it is a hundred times as thorough where
// it is random.
func Run(t *testing.T, s Store) {
	s.check(t)
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			for _, test := range g.tests {
				t.Run(test.name, func(t *testing.T) { s.run(t, test) })
			}
		})
	}
}

// check refuses a Store that is not filled in as its fields say.
func (s *Store) check(t *testing.T) {
	t.Helper()
	if s.Open == nil || s.Resolution < 0 {
		t.Fatalf("storetest: a Store needs Open, and a Resolution that is not negative: %+v", s)
	}
	s.Resolution = max(s.Resolution, 1)
	if time.Microsecond%s.Resolution != 0 {
		t.Fatalf("storetest: resolution %v: a microsecond must be a multiple of it; the vectors need that", s.Resolution)
	}
	known := map[Demand]bool{}
	for _, d := range demands {
		known[d] = true
	}
	for d, reason := range s.Without {
		if !known[d] || reason == "" {
			t.Fatalf("storetest: without %q, because %q: name one of %q and say why", d, reason, demands)
		}
	}
}

func (s *Store) run(t *testing.T, test test) {
	if reason, without := s.Without[test.need]; without {
		t.Skipf("without %s: %s", test.need, reason)
	}
	test.run(s.open(t, test.opts))
}

// meets says whether the store meets a demand.
func (s *Store) meets(d Demand) bool { return s.Without[d] == "" }

// long says whether the long forms run: make test-all.
func long() bool { return os.Getenv("WEIR_TEST") == "all" }

// times returns how often a deterministic loop runs.
func times(short int) int {
	if long() {
		return 10 * short
	}
	return short
}
