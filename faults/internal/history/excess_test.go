package history

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

const ms = time.Millisecond

func TestExcess(t *testing.T) {
	t.Parallel()
	limit := Limit{Rate: 1, Burst: 1}
	for _, tt := range []struct {
		name   string
		grants []Grant
		want   float64
	}{
		{"nothing", nil, math.Inf(-1)},
		{"one", []Grant{{0, 0}}, 0},
		{"one that took a second", []Grant{{0, time.Second}}, -1},
		{"three that may have been a second apart", []Grant{{0, time.Second}, {0, 2 * time.Second}, {0, 3 * time.Second}}, -1},
		{"three at once", []Grant{{0, 10 * ms}, {0, 10 * ms}, {0, 10 * ms}}, 1.99},
		{"three at once, long after one", []Grant{{0, 0}, {time.Hour, time.Hour}, {time.Hour, time.Hour}, {time.Hour, time.Hour}}, 2},
		{"one inside another", []Grant{{0, 4 * time.Second}, {time.Second, time.Second}}, 0},
		{"the unit that came back", []Grant{{0, 0}, {time.Second, time.Second}}, 0},
		{"a tenth too early", []Grant{{0, 0}, {900 * ms, 900 * ms}}, 0.1},
	} {
		if got := Excess(tt.grants, limit); !near(got, tt.want) {
			t.Errorf("%s: excess %v, want %v", tt.name, got, tt.want)
		}
	}
}

// The quick way finds what looking at all intervals finds, and no placement of the
// grants exceeds the limit by less.
func TestExcessModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		limit := Limit{Rate: float64(random.IntN(5)) * 50, Burst: float64(random.IntN(4))}
		grants := someGrants(random, random.IntN(12)+1)
		got := Excess(grants, limit)
		if want := slowExcess(grants, limit); !near(got, want) {
			t.Fatalf("seed %d: excess of %v under %v is %v, want %v", seed, grants, limit, got, want)
		}
		for range 20 {
			if placed := Excess(place(random, grants), limit); placed < got-1e-9 {
				t.Fatalf("seed %d: %v under %v: a placement exceeds by %v, less than the certain %v", seed, grants, limit, placed, got)
			}
		}
	}
}

// Instants of grants that are known leave no doubt: then it is the excess itself.
func TestExcessOfGCRA(t *testing.T) {
	t.Parallel()
	const period = 10 * ms
	random := rand.New(rand.NewPCG(1, 2))
	var grants []Grant
	var tat, now time.Duration
	for range 20_000 {
		now += time.Duration(random.IntN(int(8 * ms)))
		if next := max(tat, now) + period; next <= now+100*period {
			tat = next
			grants = append(grants, Grant{now, now})
		}
	}
	limit := Limit{Rate: 100, Burst: 100}
	if got := Excess(grants, limit); got > 1e-6 || got < -1 {
		t.Errorf("GCRA under full load exceeds by %v, want 0 or a little less", got)
	}
	double := append(grants, grants...)
	if got, want := Excess(double, limit), 100.0; got < want {
		t.Errorf("twice the grants exceed by %v, want at least %v", got, want)
	}
}

func TestExcesses(t *testing.T) {
	t.Parallel()
	list := []Decision{
		{Key: "a", Allowed: true},
		{Key: "b", Allowed: true},
		{Key: "b", Allowed: true},
		{Key: "b", Status: 200, Reason: "exhausted"},
		{Key: "c", Err: "reset"},
	}
	excesses := Excesses(list, Limit{Rate: 1, Burst: 1})
	if len(excesses) != 2 {
		t.Errorf("excesses of %v, want those of a and b", excesses)
	}
	if key, excess := Worst(excesses); key != "b" || excess != 1 {
		t.Errorf("worst is %q by %v, want b by 1", key, excess)
	}
}

// slowExcess is the definition.
func slowExcess(grants []Grant, limit Limit) float64 {
	excess := math.Inf(-1)
	for _, first := range grants {
		for _, last := range grants {
			a, b := first.Sent, last.Received
			n := 0
			for _, g := range grants {
				if a <= g.Sent && g.Received <= b {
					n++
				}
			}
			if n > 0 {
				excess = max(excess, float64(n)-limit.Burst-limit.Rate*(b-a).Seconds())
			}
		}
	}
	return excess
}

// someGrants meets equal instants often.
func someGrants(random *rand.Rand, n int) (grants []Grant) {
	for range n {
		sent := time.Duration(random.IntN(20)) * ms
		grants = append(grants, Grant{sent, sent + time.Duration(random.IntN(10))*ms})
	}
	return grants
}

// place chooses an instant for each grant.
func place(random *rand.Rand, grants []Grant) (placed []Grant) {
	for _, g := range grants {
		at := g.Sent + time.Duration(random.Int64N(int64(g.Received-g.Sent)+1))
		placed = append(placed, Grant{at, at})
	}
	return placed
}

func near(a, b float64) bool { return a == b || math.Abs(a-b) < 1e-9 }

func BenchmarkExcess(b *testing.B) {
	grants := someGrants(rand.New(rand.NewPCG(1, 1)), 100_000)
	for b.Loop() {
		Excess(grants, Limit{Rate: 100, Burst: 100})
	}
}
