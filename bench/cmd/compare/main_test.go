package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/bench/internal/report"
	"github.com/weirlimit/weir/bench/internal/single"
)

func TestSelected(t *testing.T) {
	all := single.Cases()
	for _, tt := range []struct {
		pattern string
		want    int
		ok      bool
	}{
		{"", len(all), true},
		{"^deny, 2 goroutines$", 1, true},
		{"no such case", 0, false},
		{"(", 0, false},
	} {
		got, err := selected(all, tt.pattern)
		if len(got) != tt.want || (err == nil) != tt.ok {
			t.Errorf("%q selects %d cases, error %v; want %d", tt.pattern, len(got), err, tt.want)
		}
	}
}

func TestDocument(t *testing.T) {
	cases, err := selected(single.Cases(), "^clock")
	if err != nil {
		t.Fatal(err)
	}
	settings := harness.Settings{Rounds: 1, PerRun: 100 * time.Microsecond}
	results, err := measure(cases, settings)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r := &report.Report{Machine: report.ThisMachine(), Settings: settings, Results: results}
	if err := document(r, dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"benchmarks.md", "benchmarks.svg"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}
