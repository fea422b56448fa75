package algo

import (
	"math/rand/v2"
	"slices"

	"pgregory.net/rapid"
)

// source is where a random test gets its choices from: rapid, a fuzzer's bytes or
// a seeded generator.
type source interface {
	// upTo returns a number between 0 and n.
	upTo(n int64) int64
	// more says whether there is another step to make.
	more() bool
}

// rapidSource makes a number of steps that shrinks with the rest.
type rapidSource struct {
	t     *rapid.T
	steps int
}

func fromRapid(t *rapid.T, steps int) *rapidSource {
	return &rapidSource{t, rapid.IntRange(1, steps).Draw(t, "steps")}
}

func (r *rapidSource) upTo(n int64) int64 { return rapid.Int64Range(0, n).Draw(r.t, "n") }

func (r *rapidSource) more() bool {
	r.steps--
	return r.steps >= 0
}

// byteSource ends with its bytes.
type byteSource struct{ data []byte }

func (b *byteSource) upTo(n int64) int64 {
	var v uint64
	for bits := n; bits > 0; bits >>= 8 {
		v <<= 8
		if len(b.data) > 0 {
			v |= uint64(b.data[0])
			b.data = b.data[1:]
		}
	}
	return int64(v % (uint64(n) + 1))
}

func (b *byteSource) more() bool { return len(b.data) > 0 }

// randSource makes a fixed number of steps.
type randSource struct {
	*rand.Rand
	steps int
}

func (r *randSource) upTo(n int64) int64 { return r.Int64N(n + 1) }

func (r *randSource) more() bool {
	r.steps--
	return r.steps >= 0
}

// between returns a number in [lo, hi].
func between(src source, lo, hi int64) int64 { return lo + src.upTo(hi-lo) }

// oneIn is true once in n times.
func oneIn(src source, n int64) bool { return src.upTo(n-1) == n-1 }

func pick[T any](src source, from ...T) T { return from[src.upTo(int64(len(from)-1))] }

// start is an instant that is aligned to nothing: 2026-03-04T05:06:07.123456789Z.
const start int64 = 1_772_600_767_123_456_789

const (
	second = int64(1e9)
	minute = 60 * second
	hour   = 60 * minute
)

// rates are (rate, per) that divide well, badly and hardly.
var rates = [][2]int64{
	{10, second},
	{3, second},
	{7, minute},
	{1, 100 * second},
	{999_983, second},
	{3, year},
	{1, second},
	{100_000_000, second},
	{2, 1},
	{1_000_000_000, 30 * day},
	{1, 7},
	{11, 13},
	{5, hour},
}

// drawSpec chooses a rule; small capacities are the interesting ones.
func drawSpec(src source, kinds ...ruleKind) ruleSpec {
	s := ruleSpec{kind: pick(src, kinds...)}
	if s.kind == kindGCRA {
		return drawGCRA(src, s)
	}
	s.rate = between(src, 1, 12)
	s.per = pick(src, 1, 10, 1_000, second, minute, 90*second, hour, day)
	if s.kind == kindFixed || s.kind == kindSliding {
		s.per = max(s.per, 1_000)
	}
	if s.kind == kindFixed && oneIn(src, 6) {
		s.cal, s.per = pick(src, calendars...), 0
	}
	return s
}

var calendars = []*Calendar{NewCalendar(Day, nil), NewCalendar(Month, nil)}

func drawGCRA(src source, s ruleSpec) ruleSpec {
	r := pick(src, rates...)
	if oneIn(src, 3) {
		r = [2]int64{between(src, 1, 40), between(src, 20, 5_000)}
	}
	s.rate, s.per = r[0], r[1]
	s.burst = between(src, 1, 12)
	if oneIn(src, 3) {
		s.debt = between(src, 1, 20)
	}
	return s
}

// length is about how long one unit takes, or a window.
func (s ruleSpec) length() int64 {
	switch {
	case s.kind == kindGCRA:
		return max(1, s.per/s.rate)
	case s.cal != nil:
		return day
	case s.kind == kindSlots:
		return second
	}
	return s.per
}

// drawStep chooses how far the clock goes on: nothing, a nanosecond, about a
// unit or a window, and seldom back.
func drawStep(src source, length int64) int64 {
	length = min(length, year)
	switch src.upTo(11) {
	case 0, 1, 2:
		return 0
	case 3:
		return 1
	case 4:
		return length
	case 5:
		return length - 1
	case 6:
		return length + 1
	case 7:
		return src.upTo(4 * length)
	case 8:
		return -src.upTo(2 * length)
	case 9:
		return src.upTo(min(20*length, year))
	default:
		return src.upTo(length)
	}
}

// drawCost chooses a charge: mostly 1, seldom 0 or more than ever fits.
func drawCost(src source, capacity int64) int64 {
	capacity = min(capacity, 1_000)
	switch src.upTo(9) {
	case 0:
		return 0
	case 1:
		return capacity + 1
	case 2:
		return capacity
	case 3, 4:
		return src.upTo(capacity)
	default:
		return 1
	}
}

// must returns the rule of a spec that is known to be good.
func must(t rapid.TB, s ruleSpec) Rule {
	t.Helper()
	r, err := s.build()
	if err != nil {
		t.Fatalf("%+v: %v", s, err)
	}
	return r
}

// grant is units that were granted at some instant between from and to.
type grant struct{ from, to, units int64 }

// checkBound fails if the grants that may lie in any one interval exceed burst +
// rate × (length + 1 ns), exactly.
func checkBound(t rapid.TB, s ruleSpec, grants []grant) {
	t.Helper()
	edges := make([]int64, 0, 2*len(grants))
	for _, g := range grants {
		edges = append(edges, g.from, g.to)
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	for i, a := range edges {
		for _, b := range edges[i:] {
			sum := int64(0)
			for _, g := range grants {
				if g.from <= b && g.to >= a {
					sum += g.units
				}
			}
			if !withinBound(s, sum, b-a) {
				t.Fatalf("%+v: %d units within %d ns of %d: %v", s, sum, b-a, a, grants)
			}
		}
	}
}
