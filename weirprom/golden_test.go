package weirprom

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/golden"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/tiered"
)

// everything returns one of each collector with figures that are all different, so that
// two that are mixed up show.
func everything() []prometheus.Collector {
	d := NewDecisions(Options{MaxPolicies: 2})
	d.Policy("login").Observe(Redis, weir.Decision{Allowed: true, Reason: weir.Admitted}, false, 300*time.Microsecond)
	d.Policy("login").Observe(Local, weir.Decision{Reason: weir.Exhausted}, false, 20*time.Microsecond)
	d.Policy("search").Observe(Memory, weir.Decision{Reason: weir.TooCostly}, true, 2*time.Millisecond)
	d.Policy("one too many").Observe(None, weir.Decision{Reason: weir.Blocked}, false, time.Second)

	reload := NewReload()
	reload.Succeeded(time.Unix(1_700_000_000, 0))
	reload.Succeeded(time.UnixMilli(1_800_000_000_250))
	reload.Failed()

	return []prometheus.Collector{
		d, reload, NewBuildInfo("v1.2.3"),
		NewMemstore(func() memstore.Stats {
			return memstore.Stats{Keys: 101, Holds: 102, Bytes: 103, Evicted: 104, Forgiven: 105, OverflowHits: 106, MostMoved: 107}
		}),
		NewTier(func() tiered.Stats {
			return tiered.Stats{
				DenyCache: 201, Lease: 202, Store: 203, Async: 204, Fallback: 205, StoreCalls: 206, Failures: 207, Unknown: 208,
				Busy: 209, OpenBreakers: 210, Partitions: 211, Opened: 212, Closed: 213, Leases: 214, Forfeited: 215, Unsynced: 216, Lost: 217,
				Forgiven: 218, Keys: 219, Nodes: 220, Published: 221, Received: 222, Unpublished: 223, UnknownUnits: 224, Unreadable: 225,
			}
		}),
		NewAuthFailures(func(yield func(kind, reason string, count uint64)) {
			yield("client", "unknown", 401)
			yield("client", "throttled", 402)
			yield("admin", "missing", 403)
		}),
		NewGuard(guardFigures), NewBudgets(budgetFigures), NewUpstreams(upstreamFigures),
	}
}

func TestGolden(t *testing.T) {
	var text bytes.Buffer
	for _, f := range gather(t, everything()...) {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	got := strings.ReplaceAll(text.String(), runtime.Version(), "GOVERSION")
	golden.Check(t, "testdata/metrics.txt", []byte(got))
}

func TestLint(t *testing.T) {
	families := gather(t, everything()...)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, f := range families {
		if counter := strings.HasSuffix(f.GetName(), "_total"); counter != (f.GetType() == dto.MetricType_COUNTER) {
			t.Errorf("%s is a %v", f.GetName(), f.GetType())
		}
	}
}

// Alerts on names that do not exist never fire.
func TestTheDocNamesWhatExists(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	for _, f := range gather(t, everything()...) {
		exists[f.GetName()] = true
	}
	named := regexp.MustCompile(`weir_[a-z_]+`).FindAllString(string(doc), -1)
	if len(named) < 10 {
		t.Errorf("the doc names only %q", named)
	}
	for _, name := range named {
		if !exists[name] {
			t.Errorf("doc.go names %s, which does not exist", name)
		}
	}
}

// Every number of Stats is exported, so each must be somewhere in the output.
func TestNoFigureIsForgotten(t *testing.T) {
	var text bytes.Buffer
	for _, f := range gather(t, everything()...) {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	for figure := 101; figure <= 726; figure++ {
		want := figure <= 106 || figure >= 201 && figure <= 225 || figure >= 401 && figure <= 403 || figure >= 501 && figure <= 526 || figure >= 601 && figure <= 616 || figure >= 701 // memstore's MostMoved is of interest to its tests only
		if got := regexp.MustCompile(fmt.Sprintf(`(?m) %d$`, figure)).Match(text.Bytes()); got != want {
			t.Errorf("figure %d: exported %v, want %v", figure, got, want)
		}
	}
}

// A lease that ends while Stats reads may be counted nowhere for a moment.
func TestALeaseCountNeverFalls(t *testing.T) {
	reads := []int64{5, 9, 3, 9, 12}
	want := []float64{5, 9, 9, 9, 12}
	i := 0
	c := NewTier(func() tiered.Stats { return tiered.Stats{Lease: reads[i]} })
	for ; i < len(reads); i++ {
		got := -1.0
		for _, f := range gather(t, c) {
			for _, m := range f.GetMetric() {
				if len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == "lease" {
					got = m.GetCounter().GetValue()
				}
			}
		}
		if got != want[i] {
			t.Errorf("read %d: %v, want %v", i, got, want[i])
		}
	}
}

func TestReload(t *testing.T) {
	r := NewReload()
	expect := func(when string, successful, at, successes, failures float64) {
		t.Helper()
		got := map[string]float64{}
		for _, f := range gather(t, r) {
			for _, m := range f.GetMetric() {
				name := f.GetName()
				if len(m.GetLabel()) > 0 {
					name = m.GetLabel()[0].GetValue()
				}
				got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
		want := map[string]float64{
			"weir_config_last_reload_successful": successful, "weir_config_last_reload_success_timestamp_seconds": at,
			"success": successes, "failure": failures,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	expect("before anything", 0, 0, 0, 0)
	r.Succeeded(time.Unix(100, 0))
	expect("started", 1, 100, 1, 0)
	r.Failed()
	expect("refused", 0, 100, 1, 1)
	r.Succeeded(time.Unix(200, 0))
	expect("mended", 1, 200, 2, 1)
}
