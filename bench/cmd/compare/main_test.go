package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/bench/internal/keyed"
	"github.com/weirlimit/weir/bench/internal/overhttp"
	"github.com/weirlimit/weir/bench/internal/proxied"
	"github.com/weirlimit/weir/bench/internal/redisbacked"
	"github.com/weirlimit/weir/bench/internal/report"
	"github.com/weirlimit/weir/bench/internal/services"
)

func TestThisMachine(t *testing.T) {
	m, err := thisMachine()
	if err != nil || !strings.HasPrefix(m.Modules[services.Ratelimit], "v") {
		t.Errorf("the peer has version %q, error %v", m.Modules[services.Ratelimit], err)
	}
}

func TestSelected(t *testing.T) {
	all := allParts(quickExtent)
	whole := 0
	for _, p := range all {
		whole += p.size()
	}
	for _, tt := range []struct {
		pattern string
		want    int
		ok      bool
	}{
		{"", whole, true},
		{"^deny, 2 goroutines$", 1, true},
		{"^100,000 (new )?keys(, 2 goroutines)?$", 2, true}, // a case and a survey
		{"^(pace|smooth|always late), ", 9, true},
		{"^redis, ", 9, true},
		{"^http, ", 2, true},
		{"^services, ", 10, true},
		{"^gateway, ", 6, true},
		{"no such case", 0, false},
		{"(", 0, false},
	} {
		got, err := selected(all, tt.pattern)
		n := 0
		for _, p := range got {
			n += p.size()
		}
		if n != tt.want || (err == nil) != tt.ok {
			t.Errorf("%q selects %d, error %v; want %d", tt.pattern, n, err, tt.want)
		}
	}
}

func TestNamesAreUnique(t *testing.T) {
	seen := make(map[string]bool)
	note := func(name string) {
		if seen[name] {
			t.Errorf("two cases or surveys are called %q", name)
		}
		seen[name] = true
	}
	for _, p := range allParts(wholeExtent) {
		for _, c := range p.cases {
			note(c.Name)
		}
		for _, s := range p.surveys {
			note(s.Name)
		}
	}
}

func TestDocument(t *testing.T) {
	tiny := extent{
		keyed: keyed.Sizes{Many: 10, Most: 20, Vast: 200, Full: 10},
		paced: 5 * time.Millisecond,
		redis: redisbacked.Sizes{Keys: 10, Rounds: 1, PerRun: 5 * time.Millisecond},
		http:  overhttp.Sizes{Keys: 10, Rounds: 1, PerRun: 5 * time.Millisecond},

		services: services.Sizes{Keys: 10, Most: 10, Rounds: 1, PerRun: 5 * time.Millisecond, NoPeer: true},
		proxied:  proxied.Sizes{Rounds: 1, PerRun: 5 * time.Millisecond},
	}
	parts, err := selected(allParts(tiny), "^clock|^10 keys|into a table|^pace, 1,000,000 .* 8|^smooth|^(redis|http), 10 keys|^services, 10 keys, 16|^gateway, eth_call, 16")
	if err != nil {
		t.Fatal(err)
	}
	settings := harness.Settings{Rounds: 1, PerRun: 100 * time.Microsecond}
	sections, err := measure(parts, settings)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r := &report.Report{Machine: report.ThisMachine(), Settings: settings, Sections: sections}
	if err := document(r, dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"benchmarks.md", "benchmarks.svg", "benchmarks-keyed.svg", "benchmarks-pacing.svg", "benchmarks-redis.svg", "benchmarks-http.svg", "benchmarks-services.svg", "benchmarks-gateway.svg"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}
