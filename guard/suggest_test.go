package guard

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
)

func limitOf(rate int64, per time.Duration, burst int64) ruleset.Limit {
	return ruleset.Limit{Limit: weir.Limit{Rate: rate, Per: weir.Every(per), Burst: burst}}
}

func mustMeasurer(t testing.TB) *measurer {
	t.Helper()
	m, err := newMeasurer(1000)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestObserve measures one key at 10 per second, so that a unit is returned every 100 ms.
func TestObserve(t *testing.T) {
	start := weir.Now()
	now := start
	table, err := memstore.New(memstore.Config{Now: func() weir.Instant { return now }})
	if err != nil {
		t.Fatal(err)
	}
	m := &measurer{table: table}
	e := newMeasured("api", []ruleset.Limit{limitOf(10, time.Second, 5)})
	const ms = time.Millisecond
	for i, tt := range []struct {
		at        time.Duration
		key       string
		cost      int64
		need      int64 // 0 if nothing is recorded
		wasBeyond int64
	}{
		{0, "a", 1, 1, 0},
		{0, "a", 1, 2, 0},
		{0, "a", 3, 5, 0},
		{0, "b", 1, 1, 0},
		{1 * ms, "a", 1, 6, 0}, // 5.99
		{100 * ms, "a", 1, 6, 0},
		{101 * ms, "a", 1, 7, 0}, // 6.99
		{50 * ms, "a", 1, 8, 0},  // the clock steps back, the table's time does not
		{801 * ms, "a", 1, 2, 0}, // 1.99
		{10_000 * ms, "a", 1, 1, 0},
		{10_000 * ms, "a", 0, 0, 0},
		{10_000 * ms, "a", -1, 0, 0},
		{10_000 * ms, strings.Repeat("a", weir.MaxKeyBytes+1), 1, 0, 0},
		{20_000 * ms, "a", 9_999, 9_999, 0},
		{20_000 * ms, "a", 1, 10_000, 0},
		{20_000 * ms, "a", 1, 10_000, 1}, // and nothing is charged
		{20_100 * ms, "a", 1, 10_000, 0},
		{30_000 * ms, "c", 10_001, 10_000, 1},
		{30_000 * ms, "c", math.MaxInt64, 0, 0}, // weir.MaxCost is less
	} {
		e.counts = newBurstCounts(e.most)
		now = start.Add(tt.at)
		m.observe(t.Context(), e, tt.key, tt.cost, false)
		s := e.suggestion()
		if s.NeededMax != tt.need || s.Beyond != tt.wasBeyond || (s.Requests == 1) != (tt.need > 0) {
			t.Errorf("%d: at %v %s costs %d: needed %d, beyond %d, requests %d; want %+v", i, tt.at, tt.key, tt.cost, s.NeededMax, s.Beyond, s.Requests, tt)
		}
	}
	m.observe(t.Context(), nil, "a", 1, true) // an endpoint without a burst
}

func TestSuggestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mustMeasurer(t)
		e := newMeasured("reads", []ruleset.Limit{limitOf(1000, time.Minute, 20)})
		// 100 app starts of 30 requests each, and one caller with 50.
		for i := range 100 {
			for n := range 30 {
				m.observe(t.Context(), e, fmt.Sprint("user:", i), 1, n >= 20)
			}
		}
		for n := range 50 {
			m.observe(t.Context(), e, "user:greedy", 1, n >= 20)
		}
		got := e.suggestion()
		want := Suggestion{
			Endpoint: "reads", Limit: "main", Rate: 1000, Per: time.Minute, Burst: 20,
			Requests: 3050, Refused: 1030, Needed50: 17, Needed99: 31, NeededMax: 50,
			Most: 1_000_000, Suggested: 31,
		}
		if got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	})
}

func TestSuggestBurst(t *testing.T) {
	tests := []struct {
		name                              string
		rate, burst, need50, need99, most int64
		want                              int64
	}{
		{"as measured", 1000, 1000, 3, 42, 1_000_000, 42},
		{"rounded up", 1000, 1000, 3, 101, 1_000_000, 110},
		{"rounded up to the next power of ten", 1000, 1000, 3, 991, 1_000_000, 1000},
		{"at least one", 1000, 1000, 0, 0, 1_000_000, 1},
		{"registration", 1, 1, 1, 3, 1000, 3},
		{"ten times the rate", 10, 5, 3, 5000, 10_000, 100},
		{"ten times the burst", 10, 50, 3, 5000, 10_000, 500},
		{"half need more than that", 10, 5, 321, 5000, 10_000, 330},
		{"no more than can be measured", 7, 7, 6999, 7000, 7000, 7000},
		{"greatest", algo.MaxRate, algo.MaxRate, algo.MaxRate, algo.MaxRate, algo.MaxRate, algo.MaxRate},
	}
	for _, tt := range tests {
		s := Suggestion{Rate: tt.rate, Burst: tt.burst, Needed50: tt.need50, Needed99: tt.need99, Most: tt.most}
		if got := suggestBurst(s); got != tt.want {
			t.Errorf("%s: suggested %d, want %d", tt.name, got, tt.want)
		}
	}
	unused := newMeasured("api", []ruleset.Limit{limitOf(10, time.Second, 5)}).suggestion()
	if unused.Suggested != 5 || unused.NeededMax != 0 {
		t.Errorf("without requests: %+v, want the burst as it is", unused)
	}
}

func TestNewMeasured(t *testing.T) {
	with := func(l ruleset.Limit, change func(*ruleset.Limit)) ruleset.Limit {
		change(&l)
		return l
	}
	perSecond := limitOf(10, time.Second, 5)
	tests := []struct {
		name   string
		limits []ruleset.Limit
		most   int64 // 0 if nothing is measured
	}{
		{"none", nil, 0},
		{"GCRA by default", []ruleset.Limit{perSecond}, 10_000},
		{"token bucket", []ruleset.Limit{with(perSecond, func(l *ruleset.Limit) { l.Algorithm = weir.TokenBucket })}, 10_000},
		{"window", []ruleset.Limit{with(perSecond, func(l *ruleset.Limit) { l.Algorithm = weir.FixedWindow })}, 0},
		{"calendar", []ruleset.Limit{{Limit: weir.Limit{Rate: 10, Per: weir.Calendar(weir.Day, nil)}}}, 0},
		{"slots", []ruleset.Limit{{Limit: weir.Limit{Rate: 10, Algorithm: weir.Concurrency}}}, 0},
		{"by address", []ruleset.Limit{with(perSecond, func(l *ruleset.Limit) { l.By = "ip" })}, 0},
		{"of tokens", []ruleset.Limit{with(perSecond, func(l *ruleset.Limit) { l.Unit = "tokens" })}, 0},
		{"of requests", []ruleset.Limit{with(perSecond, func(l *ruleset.Limit) { l.Unit = ruleset.Requests })}, 10_000},
		{"off", []ruleset.Limit{with(perSecond, func(l *ruleset.Limit) { l.Mode = ruleset.Off })}, 0},
		{"shadow", []ruleset.Limit{with(perSecond, func(l *ruleset.Limit) { l.Mode = ruleset.Shadow })}, 10_000},
		{"the first that can be", []ruleset.Limit{with(perSecond, func(l *ruleset.Limit) { l.By = "ip" }), limitOf(3, time.Hour, 0), perSecond}, 3000},
		{"a greater burst", []ruleset.Limit{limitOf(1, time.Second, 5000)}, 5000},
		{"long period", []ruleset.Limit{limitOf(1, 365*24*time.Hour, 2)}, 40},
		{"longest period", []ruleset.Limit{limitOf(3, time.Duration(algo.MaxPer), 0)}, 3},
		{"highest rate", []ruleset.Limit{limitOf(algo.MaxRate, 365*24*time.Hour, 0)}, algo.MaxRate},
		{"shortest period", []ruleset.Limit{limitOf(2, 1, 0)}, 2000},
		{"invalid rate", []ruleset.Limit{limitOf(0, time.Second, 0)}, 0},
		{"invalid burst", []ruleset.Limit{limitOf(1, time.Second, math.MaxInt64)}, 0},
	}
	for _, tt := range tests {
		e := newMeasured(strings.Repeat("n", 64), tt.limits)
		got := int64(0)
		if e != nil {
			got = e.most
			e.counts.record(e.most)
		}
		if got != tt.most {
			t.Errorf("%s: the greatest burst that is measured is %d, want %d", tt.name, got, tt.most)
		}
	}
}

// TestInherit changes the configuration: counts and usage stay unless the rate changes.
func TestInherit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mustMeasurer(t)
		old := newMeasured("api", []ruleset.Limit{limitOf(10, time.Second, 5)})
		m.observe(t.Context(), old, "a", 7, true)
		for _, tt := range []struct {
			name     string
			next     *measured
			requests int64
			needed   int64 // after one more unit
		}{
			{"same", newMeasured("api", []ruleset.Limit{limitOf(10, time.Second, 5)}), 2, 8},
			{"another burst", newMeasured("api", []ruleset.Limit{limitOf(10, time.Second, 9)}), 3, 9},
			{"another rate", newMeasured("api", []ruleset.Limit{limitOf(11, time.Second, 5)}), 1, 1},
			{"another endpoint", newMeasured("web", []ruleset.Limit{limitOf(10, time.Second, 5)}), 1, 1},
		} {
			tt.next.inherit(old)
			m.observe(t.Context(), tt.next, "a", 1, false)
			if s := tt.next.suggestion(); s.Requests != tt.requests || s.NeededMax != tt.needed {
				t.Errorf("%s: %d requests, needed %d; want %d and %d", tt.name, s.Requests, s.NeededMax, tt.requests, tt.needed)
			}
		}
		old.inherit(nil)
		(*measured)(nil).inherit(old)
	})
}

func TestBuckets(t *testing.T) {
	check := func(t interface{ Fatalf(string, ...any) }, burst int64) {
		bucket := bucketOf(burst)
		greatest := greatestIn(bucket)
		if greatest < burst || greatest-burst > burst/8 {
			t.Fatalf("%d is in a bucket up to %d", burst, greatest)
		}
		if bucketOf(greatest) != bucket || bucketOf(greatest+1) != bucket+1 {
			t.Fatalf("bucket %d of %d should end at %d; that and the next are in %d and %d", bucket, burst, greatest, bucketOf(greatest), bucketOf(greatest+1))
		}
	}
	for burst := range int64(10_000) {
		check(t, burst)
	}
	rapid.Check(t, func(t *rapid.T) { check(t, rapid.Int64Range(0, algo.MaxRate).Draw(t, "burst")) })
	if n := bucketOf(100_000) + 1; n != 117 {
		t.Errorf("100,000 takes %d buckets", n)
	}
}

// TestMeasureProperty compares what is measured with an exact model, which keeps each key's level in
// units × nanoseconds, and all bursts in a list.
func TestMeasureProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		per := rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour}).Draw(rt, "per")
		rate := rapid.SampledFrom([]int64{1, 2, 5, 10, 100, 1000}).Draw(rt, "rate") // a unit is whole nanoseconds
		requests := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) measureRequest {
			r := measureRequest{
				key:  rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key"),
				cost: rapid.SampledFrom([]int64{1, 1, 1, 2, 7, 50, rate * 300}).Draw(t, "cost"),
			}
			if rapid.IntRange(0, 3).Draw(t, "pauses") == 0 {
				r.after = time.Duration(rapid.Int64Range(0, 5*int64(per)/rate).Draw(t, "after"))
			}
			return r
		}), 1, 200).Draw(rt, "requests")

		model := exactModel{rate: rate, per: per, most: rate * measuredPeriods, levels: map[string]int64{}}
		for _, r := range requests {
			model.observe(r)
		}
		model.check(rt, measure(t, limitOf(rate, per, 1), requests))
	})
}

type measureRequest struct {
	after time.Duration // since the request before
	key   string
	cost  int64
}

// measure returns what is measured in virtual time.
func measure(t *testing.T, limit ruleset.Limit, requests []measureRequest) (s Suggestion) {
	synctest.Test(t, func(t *testing.T) {
		m, e := mustMeasurer(t), newMeasured("api", []ruleset.Limit{limit})
		for _, r := range requests {
			time.Sleep(r.after)
			m.observe(t.Context(), e, r.key, r.cost, false)
		}
		s = e.suggestion()
	})
	return s
}

type exactModel struct {
	rate   int64
	per    time.Duration
	most   int64
	levels map[string]int64
	needed []int64
	beyond int64
}

func (m *exactModel) observe(r measureRequest) {
	for k, level := range m.levels {
		m.levels[k] = max(0, level-int64(r.after)*m.rate)
	}
	level := m.levels[r.key] + r.cost*int64(m.per)
	need := (level + int64(m.per) - 1) / int64(m.per)
	if need > m.most {
		m.beyond++
		m.needed = append(m.needed, m.most)
		return
	}
	m.levels[r.key] = level
	m.needed = append(m.needed, need)
}

func (m *exactModel) check(t *rapid.T, s Suggestion) {
	slices.Sort(m.needed)
	n := len(m.needed)
	if s.Requests != int64(n) || s.Beyond != m.beyond || s.NeededMax != m.needed[n-1] {
		t.Fatalf("%+v, want %d requests, %d beyond, up to %d", s, n, m.beyond, m.needed[n-1])
	}
	for _, q := range []struct {
		percent int
		got     int64
	}{{50, s.Needed50}, {99, s.Needed99}} {
		exact := m.needed[(n*q.percent+99)/100-1]
		if q.got < exact || q.got-exact > exact/8 || q.got > s.NeededMax {
			t.Fatalf("%d %% of %v needed %d, exactly %d", q.percent, m.needed, q.got, exact)
		}
	}
	if s.Suggested < max(1, m.needed[(n+1)/2-1]) || s.Suggested > m.most {
		t.Fatalf("suggested %d, when half needed %d", s.Suggested, s.Needed50)
	}
}

// TestObserveConcurrently has many goroutines at one instant, so that each key's last request needs all of
// its units.
func TestObserveConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const goroutines, requests, keys = 8, 1000, 10
		m := mustMeasurer(t)
		e := newMeasured("api", []ruleset.Limit{limitOf(100, time.Second, 10)})
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for i := range requests {
					m.observe(t.Context(), e, fmt.Sprint("user:", i%keys), 1, i%2 == 0)
					if i%100 == 0 {
						e.suggestion()
					}
				}
			})
		}
		wg.Wait()
		s := e.suggestion()
		if s.Requests != goroutines*requests || s.Refused != goroutines*requests/2 || s.NeededMax != goroutines*requests/keys {
			t.Errorf("%+v", s)
		}
		if exact := int64(goroutines * requests / keys / 2); s.Needed50 < exact || s.Needed50 > exact*9/8 {
			t.Errorf("half needed %d, want %d", s.Needed50, exact)
		}
	})
}

// TestRecordConcurrently has goroutines that do nothing else, so that a lost update shows.
func TestRecordConcurrently(t *testing.T) {
	const goroutines, requests = 4, 200_000
	c := newBurstCounts(requests)
	var lost atomic.Int64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for i := range int64(requests) {
				c.record(i + 1)
				if c.max.Load() <= i {
					lost.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n, _, _, greatest := c.needed(); n != goroutines*requests || greatest != requests || lost.Load() > 0 {
		t.Errorf("%d requests up to %d, want %d up to %d; the greatest was lost %d times", n, greatest, goroutines*requests, requests, lost.Load())
	}
}

// TestManyKeys has more keys than the measurer remembers: those who need most stay.
func TestManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mustMeasurer(t)
		e := newMeasured("api", []ruleset.Limit{limitOf(10, time.Second, 5)})
		m.observe(t.Context(), e, "greedy", 100, false)
		for i := range 20_000 {
			m.observe(t.Context(), e, fmt.Sprint("user:", i), 1, false)
		}
		m.observe(t.Context(), e, "greedy", 1, false)
		if s := e.suggestion(); s.NeededMax != 101 || s.Needed99 != 1 || m.table.Stats().Keys > 1000 {
			t.Errorf("%+v with %d keys", s, m.table.Stats().Keys)
		}
	})
}

func TestNewMeasurerRefuses(t *testing.T) {
	if _, err := newMeasurer(-1); err == nil {
		t.Error("no error for -1 keys")
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	m, e := mustMeasurer(t), newMeasured("api", []ruleset.Limit{limitOf(10, time.Second, 5)})
	m.observe(t.Context(), e, "a", 1, false)
	ctx := t.Context()
	if allocs := testing.AllocsPerRun(100, func() { m.observe(ctx, e, "a", 1, true) }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func BenchmarkObserve(b *testing.B) {
	m, e := mustMeasurer(b), newMeasured("api", []ruleset.Limit{limitOf(1000, time.Second, 5)})
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		m.observe(ctx, e, "user:alice", 1, false)
	}
}
