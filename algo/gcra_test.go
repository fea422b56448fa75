package algo

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// want is one row of a table: a charge at an instant and what it must answer.
type want struct {
	at, cost  int64
	ok        bool
	remaining int64 // after it
}

func runTable(t *testing.T, s ruleSpec, rows []want) {
	t.Helper()
	b := newBare(t, s)
	for i, r := range rows {
		if ok := b.take(r.at, r.cost); ok != r.ok {
			t.Fatalf("row %d, %+v: %v", i, r, ok)
		}
		if got := b.remaining(r.at); got != r.remaining {
			t.Fatalf("row %d, %+v: remaining %d", i, r, got)
		}
	}
}

func gcraSpec(rate, per, burst int64) ruleSpec {
	return ruleSpec{kind: kindGCRA, rate: rate, per: per, burst: burst}
}

func TestGCRATables(t *testing.T) {
	for name, c := range map[string]struct {
		spec ruleSpec
		rows []want
	}{
		"the example in its comment": {gcraSpec(10, second, 5), []want{
			{start, 5, true, 0},
			{start, 1, false, 0},
			{start + second/10 - 1, 1, false, 0},
			{start + second/10, 1, true, 0},
		}},
		"a clock that goes back an hour": {gcraSpec(10, second, 5), []want{
			{start, 5, true, 0},
			{start - hour, 1, false, 0},
			{start - hour + second/10, 1, false, 0},
			{start, 1, false, 0},
			{start + second/10, 1, true, 0},
		}},
		"a clock that goes on an hour and back": {gcraSpec(10, second, 5), []want{
			{start, 5, true, 0},
			{start + hour, 5, true, 0}, // forgiven once
			{start, 1, false, 0},
			{start + hour, 1, false, 0},
		}},
		"a year idle": {gcraSpec(10, second, 5), []want{
			{start, 5, true, 0},
			{start + year, 6, false, 5},
			{start + year, 5, true, 0},
			{start + year, 1, false, 0},
		}},
		"cost 0 and too much": {gcraSpec(10, second, 5), []want{
			{start, 0, true, 5},
			{start, 6, false, 5},
			{start, 5, true, 0},
			{start, 0, true, 0},
		}},
		"burst 1 spaces": {gcraSpec(1, 100*second, 1), []want{
			{start, 1, true, 0},
			{start + 100*second - 1, 1, false, 0},
			{start + 100*second, 1, true, 0},
		}},
		"2 per ns": {gcraSpec(2, 1, 4), []want{
			{start, 4, true, 0},
			{start, 1, false, 0},
			{start + 1, 2, true, 0},
			{start + 3, 5, false, 4},
			{start + 3, 4, true, 0},
		}},
		"100M per s": {gcraSpec(100_000_000, second, 1), []want{
			{start, 1, true, 0},
			{start + 9, 1, false, 0},
			{start + 10, 1, true, 0},
		}},
	} {
		t.Run(name, func(t *testing.T) { runTable(t, c.spec, c.rows) })
	}
}

// TestGCRAOddRates: a rate that divides badly still gives exactly rate units in
// every period, at any instant.
func TestGCRAOddRates(t *testing.T) {
	t.Parallel()
	for _, r := range [][2]int64{
		{3, second},
		{7, minute},
		{999_983, second},
		{3, year},
		{1_000_000_000, 30 * day},
		{1, 100 * second},
		{100_000_000, second},
		{2, 1},
		{1_000_003, 1_000_003},
		{17, 19},
	} {
		rate, per := r[0], r[1]
		g := must(t, gcraSpec(rate, per, rate)).(*GCRA)
		for _, at := range []int64{Epoch, start, start + 1, start + 333_333_333, Epoch + 37*year + 5} {
			word := uint64(0)
			for period := range int64(2) {
				now := at + period*per
				next, ok := g.Take(word, now, rate)
				if !ok || g.Remaining(next, now) != 0 {
					t.Fatalf("%v at %d: period %d: %v, remaining %d", r, at, period, ok, g.Remaining(next, now))
				}
				if _, ok := g.Take(next, now, 1); ok {
					t.Fatalf("%v at %d: one too many", r, at)
				}
				if _, ok := g.Take(next, now+per-1, rate); ok && per > 1 {
					t.Fatalf("%v at %d: a period's units a nanosecond early", r, at)
				}
				word = next
			}
		}
	}
}

// TestGCRAThreePerSecond takes them one by one.
func TestGCRAThreePerSecond(t *testing.T) {
	g := must(t, gcraSpec(3, second, 3)).(*GCRA)
	for _, at := range []int64{Epoch, start, start + 1, start + 7_777_777} {
		word := uint64(0)
		for _, now := range []int64{at, at + second, at + 2*second} {
			granted := 0
			for range 5 {
				next, ok := g.Take(word, now, 1)
				if word = next; ok {
					granted++
				}
			}
			if granted != 3 {
				t.Errorf("%d granted at %d, want 3", granted, now-at)
			}
		}
	}
}

// TestGCRABound: any rate at all, judged by exact fractions.
func TestGCRABound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rate, per := drawRate(t)
		burst := min(rapid.Int64Range(1, 20).Draw(t, "burst"), fillable(rate, per))
		s := gcraSpec(rate, per, burst)
		driveBare(t, fromRapid(t, 40), s, false) // with no room for debt, going back meets the clamp
	})
}

// TestStepAndViewEqualTake: the small steps that a fast path is made of add up
// to Take and to the functions that tell of a word one by one.
func TestStepAndViewEqualTake(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		src := fromRapid(t, 40)
		s := drawSpec(src, kindGCRA)
		g := must(t, s).(*GCRA)
		word, now := uint64(0), start
		for src.more() {
			now += drawStep(src, s.length())
			cost := 1 + drawCost(src, s.burst)%s.burst
			next, ok := g.Take(word, now, cost)
			if got, fits := g.Step(word, g.Tick(now), cost); fits != ok || ok && got != next {
				t.Fatalf("%+v at %d: step %d of %d: %d %v, take %d %v", s, now, cost, word, got, fits, next, ok)
			}
			want := View{g.Remaining(next, now), g.RetryAt(next, now, cost), g.ResetAt(next, now)}
			if v := g.View(next, now, cost); v != want || v.Remaining != g.Room(next, g.Tick(now)) {
				t.Fatalf("view %+v, want %+v", v, want)
			}
			word = next
		}
	})
}

// bucketModel is a token bucket as people draw it: a level and when it was last
// looked at.
type bucketModel struct {
	clock *rateClock
	burst *big.Rat
	level *big.Rat
	last  *big.Int
}

func newBucketModel(s ruleSpec) *bucketModel {
	return &bucketModel{
		clock: clockOf(s.rate, s.per),
		burst: new(big.Rat).SetInt64(s.burst),
		level: new(big.Rat).SetInt64(s.burst),
		last:  new(big.Int),
	}
}

// fill lets tokens drip in. A clock that goes back takes none out, but
// they must drip again.
func (b *bucketModel) fill(now int64) *big.Rat {
	at := b.clock.at(now)
	passed := new(big.Rat).SetFrac(new(big.Int).Sub(at, b.last), b.clock.unit)
	level := passed.Add(passed, b.level)
	if level.Cmp(b.burst) > 0 {
		level = b.burst
	}
	return level
}

func (b *bucketModel) take(now, cost int64) bool {
	level, c := b.fill(now), new(big.Rat).SetInt64(cost)
	if cost > 0 && level.Cmp(c) < 0 {
		return false
	}
	if cost > 0 {
		b.level, b.last = new(big.Rat).Sub(level, c), b.clock.at(now)
	}
	return true
}

func TestBucketEqualsGCRA(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		src := fromRapid(t, 60)
		s := drawSpec(src, kindGCRA)
		bucket, model := Bucket{must(t, s).(*GCRA)}, newBucketModel(s)
		word, now := uint64(0), start
		for src.more() {
			now += max(0, drawStep(src, s.length()))
			cost := drawCost(src, s.burst)
			want := model.take(now, cost)
			next, ok := bucket.Take(word, now, cost)
			if ok != want {
				t.Fatalf("%+v at %d: take %d = %v, want %v", s, now, cost, ok, want)
			}
			word = next
			checkLevel(t, bucket, word, now, model.fill(now))
		}
	})
}

func checkLevel(t rapid.TB, b Bucket, word uint64, now int64, want *big.Rat) {
	t.Helper()
	tokens, part := b.Level(word, now)
	got := new(big.Rat).SetFrac(new(big.Int).SetUint64(part), new(big.Int).SetUint64(b.Unit()))
	got.Add(got, new(big.Rat).SetInt64(tokens))
	if got.Cmp(want) != 0 {
		t.Fatalf("at %d: level %v, want %v", now, got, want)
	}
	if part >= b.Unit() {
		t.Fatalf("at %d: %d of %d parts", now, part, b.Unit())
	}
	if r := b.Remaining(word, now); r != tokens {
		t.Fatalf("at %d: remaining %d, level %d", now, r, tokens)
	}
}

// TestGCRAHeals: whatever the word was, a healed one admits within
// (burst + debt + cost) × T.
func TestGCRAHeals(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawGCRA(fromRapid(t, 1), ruleSpec{kind: kindGCRA})
		s.debt = rapid.Int64Range(1, 30).Draw(t, "debt")
		g := must(t, s).(*GCRA)
		cost := rapid.Int64Range(1, s.burst).Draw(t, "cost")
		word := g.Heal(rapid.Uint64Range(0, 1<<63-1).Draw(t, "word"), start)

		word, ok := g.Take(word, start, cost)
		if !ok {
			_, ok = g.Take(word, healed(s, start, cost), cost)
		}
		if !ok {
			t.Fatalf("%+v: word %d still refuses %d", s, word, cost)
		}
		if at := g.RetryAt(word, start, cost); at > healed(s, start, cost) {
			t.Fatalf("%+v: retry at %d, healed by %d", s, at, healed(s, start, cost))
		}
	})
}

// healed returns now + (burst + debt + cost) × T, rounded up.
func healed(s ruleSpec, now, cost int64) int64 {
	n := new(big.Int).Mul(big.NewInt(s.burst+s.debt+cost), big.NewInt(s.per))
	return now + ceilDiv(n, big.NewInt(s.rate)).Int64() + 1
}

// TestGCRADebt: real debt within the cap is kept, and paid off in time.
func TestGCRADebt(t *testing.T) {
	s := gcraSpec(1, second, 5)
	s.debt = 10
	l := NewLedger([]Rule{must(t, s)}, start)
	id, _ := l.Reserve(start, 5, Never)
	if got := l.Settle(start, id, 15); got.Overrun != 10 {
		t.Fatalf("%+v", got)
	}
	if v := l.Take(start, 1); v.OK || v.RetryAt != start+11*second {
		t.Errorf("after an overrun of 10: %+v, want a retry after 11 s", v)
	}
	id, _ = l.Reserve(start+11*second, 1, Never)
	l.Settle(start+11*second, id, 1_000)
	if v := l.Take(start+11*second, 1); v.OK || v.RetryAt != start+22*second {
		t.Errorf("debt beyond the cap is forgotten: %+v, want a retry after 22 s", v)
	}
}

func TestGCRAFresh(t *testing.T) {
	for _, c := range []struct {
		fill      Fill
		remaining int64
	}{{0, 10}, {500_000, 5}, {FillSteps, 0}, {1, 9}} {
		g, err := NewGCRA(10, second, 10, 0, c.fill)
		if err != nil {
			t.Fatal(err)
		}
		word := g.Fresh(start).A
		if got := g.Remaining(word, start); got != c.remaining {
			t.Errorf("fill %d: remaining %d, want %d", c.fill, got, c.remaining)
		}
		if got := g.Remaining(word, start+second); got != 10 {
			t.Errorf("fill %d: %d a second later", c.fill, got)
		}
		if got := g.Remaining(word, start+year); got != 10 {
			t.Errorf("fill %d: %d a year later", c.fill, got)
		}
	}
}

// TestGCRAOutsideTheRange: an unset clock stalls, it does not open.
func TestGCRAOutsideTheRange(t *testing.T) {
	g := must(t, gcraSpec(10, second, 5)).(*GCRA)
	for _, now := range []int64{math.MinInt64, -1, 0, Epoch - 1, Horizon + 1, math.MaxInt64} {
		word, granted := uint64(0), int64(0)
		for range 20 {
			next, ok := g.Take(word, now, 1)
			if word = next; ok {
				granted++
			}
		}
		if granted != 5 {
			t.Errorf("at %d: %d granted", now, granted)
		}
	}
}

// TestBucketInDebt: a bucket that owes is empty, not less.
func TestBucketInDebt(t *testing.T) {
	b := Bucket{must(t, gcraSpec(10, second, 5)).(*GCRA)}
	word := b.Tick(start) + b.burst
	for _, owed := range []uint64{0, 1, b.unit, 100 * b.unit} {
		if tokens, part := b.Level(word+owed, start); tokens != 0 || part != 0 {
			t.Errorf("%d ticks in debt: %d tokens, %d parts", owed, tokens, part)
		}
	}
	if tokens, part := b.Level(word-1, start); tokens != 0 || part != 1 {
		t.Errorf("a tick before: %d tokens, %d parts", tokens, part)
	}
}
