package storetest

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
)

// A world is what a random case plays in: a few policies, each in several
// versions and with overrides, and the length of the steps of its clock.
type world struct {
	grain     time.Duration // the clock moves in multiples of it
	histories []policyHistory
	changes   bool // policies are set, and overrides brought
	initial   bool // some limits do not start full
}

// A policyHistory is the policies of one name.
type policyHistory struct {
	versions  []*weir.Policy // Set goes between them; the first is in force
	overrides []*weir.Policy
}

func (w world) GoString() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the clock moves in steps of %v", w.grain)
	for i, f := range w.histories {
		for j, p := range f.versions {
			fmt.Fprintf(&b, "\n  history %d version %d: %s", i, j, describe(p))
		}
		for j, p := range f.overrides {
			fmt.Fprintf(&b, "\n  history %d override %d: %s", i, j, describe(p))
		}
	}
	return b.String()
}

// drawer draws what the store under test can do.
type drawer struct {
	store *Store
	*rapid.T
}

func (d drawer) upTo(n int, label string) int { return rapid.IntRange(0, n).Draw(d.T, label) }

// oneIn is true once in n times, and false where a case is smallest.
func (d drawer) oneIn(n int, label string) bool { return d.upTo(n-1, label) == n-1 }

func sample[T any](d drawer, label string, from ...T) T {
	return rapid.SampledFrom(from).Draw(d.T, label)
}

// coarseGrain is the step of the clock in cases of a coarse store that convert
// units. See rateAndBurst.
const coarseGrain = 1024 * time.Microsecond

func (d drawer) world() world {
	w := world{grain: d.store.Resolution, changes: !d.oneIn(3, "no changes")}
	if w.changes && d.store.Resolution > 1 {
		w.grain = coarseGrain
	}
	w.initial = !w.changes && d.oneIn(3, "initial")
	for i := range 1 + d.upTo(1, "histories") {
		w.histories = append(w.histories, d.history(&w, fmt.Sprint("p", i)))
	}
	return w
}

func (d drawer) history(w *world, name string) policyHistory {
	names := []string{"main", "b", "c", "d"}[:1+min(d.upTo(3, "limits"), d.upTo(3, "limits"))]
	f := policyHistory{versions: []*weir.Policy{d.policy(w, name, names, nil)}}
	if !w.changes {
		return f
	}
	base := f.versions[0].Limits()
	for range 1 + d.upTo(1, "versions") {
		others := names
		if d.oneIn(4, "other names") {
			others = []string{"main", "e"}
		}
		f.versions = append(f.versions, d.policy(w, name, others, base))
	}
	for range d.upTo(2, "overrides") {
		f.overrides = append(f.overrides, d.policy(w, name, names, base))
	}
	return f
}

// policy draws a policy whose limits are mostly like those of base.
func (d drawer) policy(w *world, name string, names []string, base []weir.Limit) *weir.Policy {
	var limits []weir.Limit
	dual := map[weir.Period]bool{}
	lends := false
	for i, n := range names {
		l := d.limit(w)
		if i < len(base) && !d.oneIn(3, "another algorithm") {
			l.Algorithm, l.Per, l.Burst, l.MaxDebt, l.Classes = base[i].Algorithm, base[i].Per, 0, 0, weir.Classes{}
			l = d.rateAndBurst(w, l)
		}
		if l.Algorithm == weir.Lending && lends {
			l.Algorithm, l.Classes = weir.GCRA, weir.Classes{}
		}
		if _, zone := l.Per.Calendar(); zone != nil && lends && d.oneIn(2, "pace") {
			l.Pace = "slow"
		}
		lends = lends || l.Algorithm == weir.Lending
		if l.Algorithm == weir.DualWindow && dual[l.Per] {
			l.Algorithm = weir.FixedWindow
		}
		dual[l.Per] = dual[l.Per] || l.Algorithm == weir.DualWindow
		limits = append(limits, named(n, l))
	}
	p, err := weir.NewPolicy(name, limits...)
	if err != nil {
		d.Fatalf("storetest: drew a policy that is none: %v", err)
	}
	return p
}

var algorithms = []weir.Algorithm{
	weir.GCRA, weir.GCRA, weir.TokenBucket, weir.FixedWindow, weir.FixedWindow, weir.AnchoredWindow,
	weir.SlidingWindow, weir.SlidingLog, weir.DualWindow, weir.GCRA, weir.Concurrency, weir.Lending, weir.Lending,
}

var zones = []*time.Location{time.UTC, time.FixedZone("east", 3*3600+1800)}

// limit draws a limit of any algorithm; small capacities are the interesting
// ones.
func (d drawer) limit(w *world) weir.Limit {
	l := weir.Limit{Algorithm: sample(d, "algorithm", algorithms...)}
	switch {
	case l.Algorithm == weir.Concurrency:
	case l.Algorithm == weir.DualWindow:
		l.Per = weir.Every(sample(d, "per", time.Second, time.Minute))
	case l.Algorithm == weir.FixedWindow && d.oneIn(4, "calendar"):
		l.Per = weir.Calendar(sample(d, "unit", weir.Day, weir.Month), sample(d, "zone", zones...))
	default:
		l.Per = weir.Every(sample(d, "per", time.Second, time.Minute, 7*time.Millisecond, 90*time.Second, time.Hour, 24*time.Hour, time.Millisecond))
	}
	l = d.rateAndBurst(w, l)
	if w.initial && l.Algorithm != weir.Concurrency {
		l.Initial = sample(d, "initial", (weir.Fill{}), weir.Filled(0), weir.Filled(0.5))
	}
	return l
}

// rateAndBurst draws a rate and a burst.
//
// A coarse store keeps GCRA's state in whole parts of its own, and Go in ticks.
// Where every instant is a whole microsecond and the rate, in lowest terms, is at
// most 1,000, the two decide alike: what is missing for a unit is then never
// less than a tick. That ends when units are converted from one rate to another
// and rounded. So in cases that convert, a unit takes 2^k µs and time goes in
// steps of 2^10: then nothing is ever rounded.
func (d drawer) rateAndBurst(w *world, l weir.Limit) weir.Limit {
	l.Rate = 1 + int64(d.upTo(11, "rate"))
	if l.Algorithm == weir.Lending {
		return d.lending(w, l)
	}
	if l.Algorithm == weir.SlidingLog && d.oneIn(4, "log in steps") {
		l.Rate = algo.ExactLogRate + 1
	}
	if l.Algorithm != weir.GCRA && l.Algorithm != weir.TokenBucket {
		return l
	}
	switch {
	case w.grain == coarseGrain:
		l.Per = weir.Every(time.Duration(l.Rate) * time.Microsecond << (10 + d.upTo(10, "2^k µs")))
	case w.grain == 1 && d.oneIn(4, "odd rate"):
		l.Rate = sample[int64](d, "odd rate", 999_983, 997, 1_000_000, 60)
	}
	l.Burst = 1 + int64(d.upTo(11, "burst"))
	l.MaxDebt = d.debt(w)
	return l
}

// debt draws how much may be owed; mostly as much as can be represented.
func (d drawer) debt(w *world) int64 {
	if (!w.changes || d.store.meets(CheckedSet)) && d.oneIn(3, "debt") {
		return 1 + int64(d.upTo(7, "debt"))
	}
	return 0
}

// lending draws a limit with classes. A coarse store counts in parts of its own. In cases that
// convert, rates are at most 2^3 and periods 2^13 to 2^20 µs, powers of two. So in 2^10 µs
// multiples of 2^-10 units come back, and a unit has at least 2^10 parts: nothing is rounded.
func (d drawer) lending(w *world, l weir.Limit) weir.Limit {
	if w.grain == coarseGrain {
		l.Rate = 1 << d.upTo(3, "2^k")
		l.Per = weir.Every(time.Microsecond << (13 + d.upTo(7, "2^k µs")))
	}
	l.Burst = 1 + int64(d.upTo(11, "burst"))
	l.MaxDebt = d.debt(w)
	rate, burst := l.Rate, l.Burst
	var classes []weir.Class
	for _, name := range []string{"slow", "fast", sample(d, "name", "third", "other")}[:1+d.upTo(2, "classes")] {
		c := weir.Class{Name: name, Guaranteed: int64(d.upTo(int(rate), "guaranteed"))}
		if w.grain == coarseGrain && c.Guaranteed > 0 {
			c.Guaranteed = 1 << (bits.Len64(uint64(c.Guaranteed)) - 1)
		}
		if c.Guaranteed > 0 {
			c.Burst = 1 + int64(d.upTo(int(max(0, burst-1)), "class burst"))
			c.NoBorrow = d.oneIn(4, "no borrowing")
		}
		if c.Burst > burst {
			break
		}
		rate, burst = rate-c.Guaranteed, burst-c.Burst
		classes = append(classes, c)
	}
	if d.oneIn(2, "order") {
		slices.Reverse(classes)
	}
	l.Classes = weir.ClassesOf(classes...)
	return l
}

// length is about how long one unit of a limit takes, or a window.
func length(l weir.Limit) time.Duration {
	switch l.Algorithm {
	case weir.Concurrency:
		return time.Second
	case weir.GCRA, weir.TokenBucket, weir.Lending:
		return per(l) / time.Duration(l.Rate)
	}
	return per(l)
}

func per(l weir.Limit) time.Duration {
	if d, err := time.ParseDuration(l.Per.String()); err == nil {
		return d
	}
	return 24 * time.Hour // a calendar's
}

// interval draws a time to pass, or to hold: about a unit or a window, in steps
// of the clock.
func (d drawer) interval(w *world, label string) time.Duration {
	f := sample(d, "of history", w.histories...)
	limit := sample(d, "of limit", f.versions[0].Limits()...)
	unit := max(w.grain, length(limit)/w.grain*w.grain)
	switch d.upTo(7, label) {
	case 0:
		return w.grain
	case 1, 2:
		return unit
	case 3:
		return max(w.grain, unit-w.grain)
	case 4:
		return unit + w.grain
	case 5:
		return max(w.grain, time.Duration(d.upTo(20, "twentieths"))*(unit/20)/w.grain*w.grain)
	case 6:
		return time.Duration(2+d.upTo(18, "times")) * unit
	}
	return max(w.grain, min(unit, 10*time.Second)/3/w.grain*w.grain)
}
