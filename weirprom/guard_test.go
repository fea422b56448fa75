package weirprom

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
)

// guardFigures returns figures from 501 to 526 that are all different.
func guardFigures() guard.Stats {
	return guard.Stats{
		Endpoints: []guard.EndpointStats{
			{Name: "guard.ip", Allowed: 501, Denied: 502},
			{Name: "river.CreateStream", Allowed: 503 + 505, Denied: 504, Shadowed: 505, Penalized: 506},
		},
		InFlight: 507, Subjects: 508, Exempted: 509, Unsettled: 510,
		Violations: map[guard.Kind]int64{guard.Exceeded: 511, guard.RapidFire: 512, guard.Penalized: 513, guard.Sustained: 514},
		Shadowed:   map[guard.Kind]int64{guard.Exceeded: 515, guard.RapidFire: 516, guard.Penalized: 517, guard.Sustained: 518},
		Refused:    map[guard.Cause]int64{guard.ByBlock: 519, guard.ByOverload: 520, guard.ByInFlight: 521},
		Subscriptions: guard.SubscriptionStats{
			Open: 522, Items: 523, Refused: guard.SubscriptionRefusals{TooMany: 524, TooManyItems: 525, TooFast: 526},
		},
	}
}

// newGuard returns a guard over memory.
func newGuard(t *testing.T, c guard.Config) *guard.Guard {
	t.Helper()
	table, err := memstore.New(memstore.Config{MaxKeys: 500_000})
	if err != nil {
		t.Fatal(err)
	}
	g, err := guard.New(table, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

func perHour(n int64) weir.Limit { return weir.Limit{Rate: n, Per: weir.Every(time.Hour)} }

// request lets a subject send a request.
func request(t *testing.T, g *guard.Guard, path string, s guard.Subject, from netip.Addr) {
	t.Helper()
	var p guard.Pass
	v, err := g.Enter(context.Background(), &p, guard.Request{Path: path, Address: from})
	if err == nil && v.Allowed {
		_, err = g.Identify(context.Background(), &p, s)
		p.Done(context.Background(), false)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// series returns the series of a collector with their values, as "name label label".
func series(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for _, f := range gather(t, c) {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			out[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return out
}

// Whoever calls, the series are those of the configuration.
func TestGuardFloodOfSubjects(t *testing.T) {
	g := newGuard(t, guard.Config{
		BeforeAuth: guard.BeforeAuth{PerIP: []ruleset.Limit{{Limit: perHour(1)}}},
		Default:    guard.Endpoint{Limits: []ruleset.Limit{{Limit: perHour(1)}}},
		Endpoints:  []guard.Endpoint{{Pattern: "/a", Limits: []ruleset.Limit{{Limit: perHour(1)}}}},
		Penalties:  &guard.Penalties{}, Abuse: &guard.Abuse{},
	})
	c := NewGuard(g.Stats)
	before := slices.Sorted(maps.Keys(series(t, c)))
	flood := 5_000 // the race detector is slow
	if os.Getenv("WEIR_TEST") == "all" {
		flood = 100_000
	}
	for i := range flood {
		from := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		request(t, g, fmt.Sprint("/made-up/", i), guard.User(fmt.Sprint("user", i%(flood/2))), from)
	}
	after := series(t, c)
	if diff := cmp.Diff(before, slices.Sorted(maps.Keys(after))); diff != "" {
		t.Errorf("series (-before +after):\n%s", diff)
	}
	if n := after["weir_guard_decisions_total allowed guard.ip"]; n != float64(flood) {
		t.Errorf("%v requests were counted, of %d", n, flood)
	}
	t.Logf("%d series", len(after))
}

// A guard exports each of its counts, none of them twice, and has a series for each before the
// first request.
func TestGuardOfARealGuard(t *testing.T) {
	g := newGuard(t, guard.Config{
		BeforeAuth: guard.BeforeAuth{PerIP: []ruleset.Limit{{Limit: perHour(100)}}},
		Endpoints: []guard.Endpoint{
			{Pattern: "/strict", Limits: []ruleset.Limit{{Limit: perHour(2)}}},
			{Pattern: "/shadow", Limits: []ruleset.Limit{{Limit: perHour(2)}}, Mode: ruleset.Shadow},
		},
	})
	c := NewGuard(g.Stats)
	if n := len(series(t, c)); n != 3*4+3+8+9 {
		t.Errorf("%d series before the first request: %v", n, series(t, c))
	}
	from := netip.MustParseAddr("192.0.2.1")
	for range 5 {
		request(t, g, "/strict", guard.User("alice"), from)
		request(t, g, "/shadow", guard.User("alice"), from)
	}
	got := series(t, c)
	maps.DeleteFunc(got, func(_ string, n float64) bool { return n == 0 })
	want := map[string]float64{
		"weir_guard_decisions_total allowed guard.ip":     10,
		"weir_guard_decisions_total allowed strict":       2,
		"weir_guard_decisions_total denied strict":        3,
		"weir_guard_decisions_total allowed shadow":       2,
		"weir_guard_decisions_total shadow_denied shadow": 3,
		"weir_guard_violations_total exceeded false":      3,
		"weir_guard_violations_total exceeded true":       3,
	}
	delete(got, "weir_guard_subjects")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Beyond maxEndpoints the rest is summed. An endpoint keeps its series when others come with a
// later configuration, so that no counter falls and none counts twice.
func TestGuardWithManyEndpoints(t *testing.T) {
	stats := guard.Stats{Violations: map[guard.Kind]int64{}}
	for i := range maxEndpoints - 2 {
		stats.Endpoints = append(stats.Endpoints, guard.EndpointStats{Name: fmt.Sprintf("m%03d", i), Allowed: 1})
	}
	stats.Endpoints = append(stats.Endpoints, guard.EndpointStats{Name: "other", Allowed: 1000})
	c := NewGuard(func() guard.Stats {
		s := stats
		s.Endpoints = slices.Clone(stats.Endpoints)
		return s
	})
	if got := series(t, c); len(got) != (maxEndpoints-1)*4+9 || got["weir_guard_decisions_total allowed other"] != 1000 {
		t.Errorf("%d series, %v in other", len(got), got["weir_guard_decisions_total allowed other"])
	}
	for i := range 100 { // they sort before those there are
		stats.Endpoints = append(stats.Endpoints, guard.EndpointStats{Name: fmt.Sprintf("a%03d", i), Allowed: 1, Denied: 2, Penalized: 3})
	}
	got := series(t, c)
	for name, want := range map[string]float64{
		"weir_guard_decisions_total allowed m042": 1, "weir_guard_decisions_total denied a000": 2,
		"weir_guard_decisions_total denied a001": 2, "weir_guard_decisions_total denied a002": 0,
		"weir_guard_decisions_total allowed other": 1098, "weir_guard_decisions_total denied other": 2 * 98,
		"weir_guard_penalized_denials_total other": 3 * 98,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if want := (maxEndpoints+1)*4 + 9; len(got) != want {
		t.Errorf("%d series, want %d", len(got), want)
	}
}

// A daemon without a guard has none of its series.
func TestGuardThatIsNotThere(t *testing.T) {
	if got := series(t, NewGuard(func() guard.Stats { return guard.Stats{} })); len(got) > 0 {
		t.Errorf("%v", got)
	}
}
