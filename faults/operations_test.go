package faults

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirlimit/weir/faults/internal/rig"
	"github.com/weirlimit/weir/internal/redistest"
)

// What docs/operations.md tells people to watch is there, in a daemon that counts in memory and has a
// guard, a budget and a route, or in one that counts in Redis.
func TestOperationsMetrics(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(config, []byte(`
guard: {default: {limits: [{rate: 1, per: 1s}]}}
budgets: {main: {preset: alchemy-free}}
routes: {ethereum: {kind: jsonrpc, upstreams: [{alias: a, rpc: "http://127.0.0.1:1", budget: main, monitored: false}]}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	var metrics strings.Builder
	for _, args := range [][]string{
		{"--snapshot", filepath.Join(t.TempDir(), "weir.snap"), "--config", config},
		{"--redis", redistest.Start(t).Addr()},
	} {
		fleet := rig.StartFleet(t, program, 1, args...)
		if _, err := fleet.Ask(0, "alice", 1); err != nil {
			t.Fatal(err)
		}
		text, err := fleet.Get(0, "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		metrics.WriteString(text)
		fleet.Stop()
	}
	names := regexp.MustCompile("`((?:weir|go|process)_[a-z_]+)").FindAllStringSubmatch(string(page), -1)
	if len(names) < 15 {
		t.Errorf("only %d names were found on the page", len(names))
	}
	for _, name := range names {
		if !strings.Contains(metrics.String(), "# TYPE "+name[1]+" ") {
			t.Errorf("no daemon has %s", name[1])
		}
	}
}
