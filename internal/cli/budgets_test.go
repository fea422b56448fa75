package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/golden"
)

// What operators see of budgets.
func TestBudgetsCommands(t *testing.T) {
	url := recorded(t, "budgets.golden")
	var out bytes.Buffer
	for _, command := range []string{"budgets", "budgets", "budgets alchemy-main", "budgets nope", "budgets --json"} {
		code, stdout, stderr := operate(t, strings.Fields(command), "--admin", url)
		if ok := command != "budgets nope"; ok != (code == exitOK) {
			t.Errorf("%s: exit code %d, stderr %q", command, code, stderr)
		}
		fmt.Fprintf(&out, "$ weir %s\n%s%s", command, stdout, stderr)
	}
	golden.Check(t, "testdata/budgets.golden", out.Bytes())
}

// What is unusual is told, and names that others chose are shown as text.
func TestBudgetsNotes(t *testing.T) {
	for _, tt := range []struct{ answer, want string }{
		{`{"account":"a","level":"paused","error":"the usage is unknown; the daemon's log says why"}`, "\na: level paused; the usage is unknown; the daemon's log says why\n"},
		{`{"account":"a","utilisation":0.5,"cooldown_ms":1500,"denied":{"since":"2026-11-19T05:00:00Z","reason":"status 401"},"refusals":{"denied":1,"rate":4},"drift":{"cu":12},"soft_exceeded":3,"unknown_calls":2}`, "\na: 50.0% used, averaged over a second; the provider wants no calls for 1.5s; the provider does not let the account in since 2026-11-19T05:00:00Z: status 401; refused by the provider: denied 1, rate 4; used by others: cu 12; calls beyond soft limits: 3; calls of unknown methods: 2\n"},
		{`{"account":"a","horizons":[{"limit":"main","unit":"cu","used":-5,"capacity":0,"reset_ms":-1}]}`, "main   -5    0   cu    -500.0  never        -          -\n"},
		{`{"account":"a","unknown_methods":{"e\u001b[2J":1}}`, "UNKNOWN METHOD  CALLS\n\"e\\x1b[2J\"      1\n"},
	} {
		url := answering(t, 200, "application/json", tt.answer)
		code, stdout, stderr := operate(t, []string{"budgets", "a"}, "--admin", url)
		if code != exitOK || !strings.Contains(stdout, tt.want) || stderr != "" {
			t.Errorf("%s: exit code %d, %q\n%s\nwant\n%s", tt.answer, code, stderr, stdout, tt.want)
		}
	}
	var many []string
	for i := range 23 {
		many = append(many, fmt.Sprintf(`"m%d":%d`, i, i))
	}
	url := answering(t, 200, "application/json", `{"account":"a","methods":{`+strings.Join(many, ",")+`}}`)
	if _, stdout, _ := operate(t, []string{"budgets", "a"}, "--admin", url); !strings.Contains(stdout, "m22     22\nm21     21\n") || !strings.HasSuffix(stdout, "m3      3\n(and 3 more)\n") {
		t.Errorf("%s", stdout)
	}
}

func TestBudgetsMisused(t *testing.T) {
	for _, args := range [][]string{{"budgets", "a", "b"}, {"budgets", ""}} {
		code, _, stderr := operate(t, args)
		if code != exitUsage || !strings.Contains(stderr, "at most one name") {
			t.Errorf("%q: exit code %d, %s", args, code, stderr)
		}
	}
}
