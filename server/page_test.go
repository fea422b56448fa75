package server

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// pagePolicies are all kinds of policies that a command can be for.
func pagePolicies() []ruleset.Policy {
	second := weir.Every(time.Second)
	return []ruleset.Policy{
		{Name: "plain", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 100, Per: second}}}},
		{Name: "by.ip", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 100, Per: second}, By: "ip"}}},
		{Name: "both", Limits: []ruleset.Limit{
			{Limit: weir.Limit{Rate: 100, Per: second}}, {Limit: weir.Limit{Name: "ip", Rate: 50, Per: second}, By: "ip"},
		}},
		{Name: "tokens", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 1000, Per: second}, Unit: "tokens"}}},
		{Name: "units", Limits: []ruleset.Limit{
			{Limit: weir.Limit{Rate: 10, Per: second}},
			{Limit: weir.Limit{Name: "tokens", Rate: 1000, Per: second}, Unit: "tokens"},
			{Limit: weir.Limit{Name: "bytes", Rate: 1, Per: second}, Unit: "bytes", By: "user"},
		}},
		{Name: "slots", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 2, Algorithm: weir.Concurrency}}}},
	}
}

// The page prints commands that work for the configuration that is in force: each is run in a shell,
// and admitted.
func TestPageCommandsWork(t *testing.T) {
	clients := []Client{{Name: "shop", Tokens: token("shop")}}
	operators := []Operator{{Name: "ops", Tokens: token("ops"), Scopes: ScopeRead}}
	socket := func(t *testing.T) Listener {
		return Listener{Address: "unix:" + filepath.Join(t.TempDir(), "it's weir.sock")}
	}
	for name, config := range map[string]func(t *testing.T) Config{
		"one listener": func(*testing.T) Config { return Config{} },
		"clients":      func(*testing.T) Config { return Config{Live: Live{Clients: clients}} },
		"admin": func(*testing.T) Config {
			return Config{Admin: Listener{Address: "127.0.0.1:0"}, Live: Live{Operators: operators}}
		},
		"socket and admin": func(t *testing.T) Config {
			return Config{HTTP: socket(t), Admin: Listener{Address: "127.0.0.1:0"}, Live: Live{Clients: clients}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t)
			cfg.Limiter, cfg.Live.Policies = frozenTable(t), pagePolicies()
			srv := run(t, cfg)
			origin := srv.url
			if srv.bound.Admin != nil {
				origin = "http://" + srv.bound.Admin.String()
			}
			commands := pageCommands(t, origin)
			if len(commands) != len(cfg.Live.Policies) {
				t.Fatalf("%d commands: %q", len(commands), commands)
			}
			for _, c := range commands {
				cmd := exec.Command("sh", "-c", c)
				cmd.Env = append(os.Environ(), "TOKEN="+token("shop")[0].Reveal())
				out, err := cmd.Output()
				var d struct{ Allowed bool }
				if err != nil || json.Unmarshal(out, &d) != nil || !d.Allowed {
					t.Errorf("%s\nprints %s, %v", c, out, err)
				}
			}
		})
	}
}

// pageCommands returns the commands that the page at an origin shows.
func pageCommands(t *testing.T, origin string) []string {
	t.Helper()
	dir := t.TempDir()
	for from, to := range map[string]string{"page/call.js": "call.js", "testdata/commands.js": "commands.js"} {
		text, err := os.ReadFile("internal/dashboard/" + from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type":"module"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var answers []string
	for _, path := range []string{"/admin/v1/policies", "/admin/v1/config"} {
		text, status := getText(t, newClient(t), origin+path, "Authorization", "Bearer "+token("ops")[0].Reveal())
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, status, text)
		}
		answers = append(answers, text)
	}
	out, err := exec.Command("node", filepath.Join(dir, "commands.js"), answers[0], answers[1], origin).CombinedOutput()
	if err != nil {
		t.Fatalf("node, which scripts/setup.sh installs: %v\n%s", err, out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}
