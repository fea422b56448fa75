package weirprom

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/tiered"
)

func TestObserve(t *testing.T) {
	exhausted := weir.Decision{Reason: weir.Exhausted}
	tests := []struct {
		name    string
		backend Backend
		dec     weir.Decision
		shadow  bool
		want    string // decision reason backend
	}{
		{"allowed", Memory, weir.Decision{Allowed: true, Reason: weir.Admitted}, false, "allowed admitted memory"},
		{"allowed in shadow", Local, weir.Decision{Allowed: true, Reason: weir.Admitted}, true, "allowed admitted local"},
		{"denied", Redis, exhausted, false, "denied exhausted redis"},
		{"denied in shadow", Redis, exhausted, true, "shadow_denied exhausted redis"},
		{"blocked", None, weir.Decision{Reason: weir.Blocked}, false, "denied blocked none"},
		{"a reason of the future", Redis, weir.Decision{Reason: 200}, false, "denied other other"},
		{"a backend of the future", 200, exhausted, false, "denied other other"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := NewDecisions(Options{})
			p := d.Policy("login")
			p.Observe(tt.backend, tt.dec, tt.shadow, time.Millisecond)
			p.Observe(tt.backend, tt.dec, tt.shadow, -time.Hour) // a clock that went back
			want := map[string]float64{"login " + tt.want: 2}
			if got := counts(t, d); !maps.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
}

func TestEveryReasonAndBackendHasAName(t *testing.T) {
	for r := range reasons {
		if name := reasonName(r); name == other || strings.Contains(name, "(") {
			t.Errorf("reason %d is %q", r, name)
		}
	}
	if next := weir.Reason(reasons).String(); !strings.Contains(next, "(") {
		t.Errorf("weir has a reason %q that is counted as other: it is time to raise reasons", next)
	}
	if len(backendNames) != backends || Backend(backends).String() != other {
		t.Errorf("%d backends, %d names", backends, len(backendNames))
	}
}

func TestANilPolicyCountsNothing(*testing.T) {
	var p *PolicyDecisions
	p.Observe(Memory, weir.Decision{}, false, time.Second)
}

func TestPolicyReturnsTheSame(t *testing.T) {
	d := NewDecisions(Options{MaxPolicies: 2})
	a, b := d.Policy("a"), d.Policy("b")
	if a == b || d.Policy("a") != a || d.Policy("b") != b {
		t.Error("a policy is not the same twice")
	}
	if c := d.Policy("c"); c != d.Policy("other") || c != d.Policy("d") || c == a {
		t.Error("policies beyond the most do not share")
	}
	if got := NewDecisions(Options{MaxPolicies: 1 << 20}).maxPolicies; got != maxPolicies {
		t.Errorf("%d policies, more than the series are reckoned for", got)
	}
}

// Names are checked when a configuration is read. Should one slip through, it must not
// disturb those who read the metrics.
func TestNamesAreCleaned(t *testing.T) {
	tests := map[string]string{
		"login":                    "login",
		"größe 1":                  "größe 1",
		"a\r\nweir_fake 1\x00\x7f": "a__weir_fake 1__",
		"a\u2028b\u202ec":          "a_b_c",
		"\xff\xfe":                 "__",
		strings.Repeat("é", 100):   strings.Repeat("é", 64),
		strings.Repeat("€", 100):   strings.Repeat("€", 42),
		"":                         "",
	}
	for name, want := range tests {
		d := NewDecisions(Options{})
		d.Policy(name).Observe(Memory, weir.Decision{Allowed: true, Reason: weir.Admitted}, false, 0)
		if got := counts(t, d); !maps.Equal(got, map[string]float64{want + " allowed admitted memory": 1}) {
			t.Errorf("%q is counted as %v", name, got)
		}
	}
}

// Whatever the configuration and whatever happens, a process has no more than 2,000
// series, and no decision goes uncounted.
func TestFloodOfPolicies(t *testing.T) {
	d, reload := NewDecisions(Options{}), NewReload()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(d, reload, NewBuildInfo("v1"),
		NewMemstore(func() memstore.Stats { return memstore.Stats{} }),
		NewTier(func() tiered.Stats { return tiered.Stats{} }),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	const names = 5 * maxPolicies
	observed := 0.0
	for i := range names {
		p := d.Policy(fmt.Sprintf("policy %d", i))
		for _, ok := range []bool{true, false} {
			for _, shadow := range []bool{true, false} {
				for reason := range weir.Reason(reasons + 2) {
					for backend := range Backend(backends + 2) {
						p.Observe(backend, weir.Decision{Allowed: ok, Reason: reason}, shadow, time.Duration(i)*time.Microsecond)
						observed++
					}
				}
			}
		}
	}

	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all, ours, counted, timed := 0, 0, 0.0, 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			n := seriesOf(m)
			all += n
			if strings.HasPrefix(f.GetName(), "weir_decision") {
				ours += n
			}
			if f.GetName() == "weir_decisions_total" {
				counted += m.GetCounter().GetValue()
			}
			timed += float64(m.GetHistogram().GetSampleCount())
		}
	}
	t.Logf("%d series, %d of decisions", all, ours)
	if ours > maxSeries || all > 2_000 {
		t.Errorf("%d series, %d of decisions", all, ours)
	}
	if ours < maxSeries*9/10 {
		t.Errorf("only %d of %d series are used", ours, maxSeries)
	}
	if counted != observed || timed != observed {
		t.Errorf("%v counted and %v timed of %v", counted, timed, observed)
	}
}

// seriesOf is how many lines a metric has in the text format.
func seriesOf(m *dto.Metric) int {
	switch {
	case m.GetHistogram() != nil:
		return len(m.GetHistogram().GetBucket()) + 3 // +Inf, sum, count
	case m.GetSummary() != nil:
		return len(m.GetSummary().GetQuantile()) + 2
	}
	return 1
}

// One policy with every combination must not leave the next without a single one.
func TestEachPolicyHasSeriesOfItsOwn(t *testing.T) {
	d := NewDecisions(Options{})
	for i := range 20 {
		greedy := d.Policy(fmt.Sprint("greedy", i))
		for reason := range weir.Reason(reasons) {
			for backend := range Backend(backends) {
				greedy.Observe(backend, weir.Decision{Reason: reason}, false, 0)
			}
		}
	}
	modest := d.Policy("modest")
	modest.Observe(Memory, weir.Decision{Allowed: true, Reason: weir.Admitted}, false, 0)
	modest.Observe(Memory, weir.Decision{Reason: weir.Exhausted}, false, 0)
	modest.Observe(None, weir.Decision{Reason: weir.Blocked}, false, 0)
	modest.Observe(Memory, weir.Decision{Reason: weir.TooCostly}, false, 0)
	got := counts(t, d)
	maps.DeleteFunc(got, func(labels string, _ float64) bool { return !strings.HasPrefix(labels, "modest ") })
	want := map[string]float64{
		"modest allowed admitted memory": 1, "modest denied exhausted memory": 1, "modest denied blocked none": 1,
		"modest denied other other": 1,
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestTheHistogramIsNativeAndClassic(t *testing.T) {
	d := NewDecisions(Options{})
	p := d.Policy("login")
	for _, took := range []time.Duration{50 * time.Microsecond, time.Millisecond, 20 * time.Millisecond, time.Second} {
		p.Observe(Memory, weir.Decision{}, false, took)
	}
	i := slices.IndexFunc(gather(t, d), func(f *dto.MetricFamily) bool { return f.GetName() == "weir_decision_seconds" })
	var h *dto.Histogram
	for _, m := range gather(t, d)[i].GetMetric() {
		if m.GetLabel()[0].GetValue() == "login" {
			h = m.GetHistogram()
		}
	}
	if h.GetSampleCount() != 4 || h.GetSchema() != 3 || len(h.GetPositiveDelta()) == 0 {
		t.Errorf("not native: %v", h)
	}
	var cumulative []uint64
	for _, b := range h.GetBucket() {
		cumulative = append(cumulative, b.GetCumulativeCount())
	}
	if want := []uint64{1, 2, 2, 3}; !slices.Equal(cumulative, want) {
		t.Errorf("classic buckets %v, want %v", cumulative, want)
	}
}

func TestConcurrently(t *testing.T) {
	const goroutines, each = 8, 500
	d := NewDecisions(Options{MaxPolicies: 3})
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for i := range each {
				d.Policy(fmt.Sprint(i%5)).Observe(Backend(i%4), weir.Decision{Reason: weir.Reason(i % 8)}, i%2 == 0, time.Duration(i))
				if i%100 == 0 {
					gather(t, d)
				}
			}
		})
	}
	wg.Wait()
	total := 0.0
	for _, n := range counts(t, d) {
		total += n
	}
	if total != goroutines*each {
		t.Errorf("%v, want %d", total, goroutines*each)
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	p := NewDecisions(Options{}).Policy("login")
	dec := weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: 100, Remaining: 42}
	i := 0
	observe := func() {
		p.Observe(Memory, dec, false, time.Duration(i%100)*17*time.Microsecond)
		i++
	}
	for range 200 {
		observe() // buckets are made when they are first met
	}
	if n := testing.AllocsPerRun(1000, observe); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// gather fails the test if a registry would not take c.
func gather(t *testing.T, c ...prometheus.Collector) []*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	for _, x := range c {
		if err := registry.Register(x); err != nil {
			t.Fatal(err)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Error(err)
	}
	return families
}

// counts returns weir_decisions_total as "policy decision reason backend": n.
func counts(t *testing.T, d *Decisions) map[string]float64 {
	t.Helper()
	got := map[string]float64{}
	for _, f := range gather(t, d) {
		if f.GetName() != "weir_decisions_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			label := map[string]string{}
			for _, l := range m.GetLabel() {
				label[l.GetName()] = l.GetValue()
			}
			got[strings.Join([]string{label["policy"], label["decision"], label["reason"], label["backend"]}, " ")] = m.GetCounter().GetValue()
		}
	}
	return got
}

func BenchmarkObserve(b *testing.B) {
	p := NewDecisions(Options{}).Policy("login")
	dec := weir.Decision{Allowed: true, Reason: weir.Admitted}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p.Observe(Memory, dec, false, time.Duration(i&1023)*time.Microsecond)
	}
}

func BenchmarkObserveParallel(b *testing.B) {
	p := NewDecisions(Options{}).Policy("login")
	dec := weir.Decision{Allowed: true, Reason: weir.Admitted}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			p.Observe(Memory, dec, false, time.Duration(i&1023)*time.Microsecond)
		}
	})
}

func BenchmarkScrapeFull(b *testing.B) {
	d := NewDecisions(Options{})
	for i := range maxPolicies {
		for r := range weir.Reason(reasons) {
			d.Policy(fmt.Sprint(i)).Observe(Memory, weir.Decision{Reason: r}, false, time.Millisecond)
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(d)
	for b.Loop() {
		if _, err := registry.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
