package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/golden"
)

// What operators see when they end a cooldown.
func TestResumeCommands(t *testing.T) {
	url := recorded(t, "resume.golden")
	var out bytes.Buffer
	for _, command := range []string{
		"budgets resume alchemy-main", "budgets resume alchemy-main", "budgets resume nope",
		"upstreams resume ethereum alchemy-1", "upstreams resume ethereum public", "upstreams resume ethereum nope", "upstreams resume nope alchemy-1",
		"upstreams resume ethereum public --json",
	} {
		code, stdout, stderr := operate(t, strings.Fields(command), "--admin", url)
		if ok := !strings.Contains(command, "nope"); ok != (code == exitOK) {
			t.Errorf("%s: exit code %d, stderr %q", command, code, stderr)
		}
		fmt.Fprintf(&out, "$ weir %s\n%s%s", command, stdout, stderr)
	}
	golden.Check(t, "testdata/resume.golden", out.Bytes())
}

func TestResumeMisused(t *testing.T) {
	for want, list := range map[string][][]string{
		"the name of a budget is needed, such as 'weir budgets resume alchemy-main'":                          {{"budgets", "resume"}, {"budgets", "resume", ""}, {"budgets", "resume", "a", "b"}},
		"a route and the alias of an upstream are needed, such as 'weir upstreams resume ethereum alchemy-1'": {{"upstreams", "resume", "a"}, {"upstreams", "resume", "a", ""}},
	} {
		for _, args := range list {
			if code, _, stderr := operate(t, args); code != exitUsage || !strings.Contains(stderr, want) {
				t.Errorf("%q: exit code %d, %s", args, code, stderr)
			}
		}
	}
}

// An endpoint that waits for a probe has no time.
func TestResumeNotes(t *testing.T) {
	url := answering(t, 200, "application/json", `{"route":"r","upstream":"a","health":"down","reason":"denied (status 401)","cooldown_ms":-1}`)
	code, stdout, stderr := operate(t, []string{"upstreams", "resume", "r", "a"}, "--admin", url)
	if want := "a of r is tried again; it was down: denied (status 401)\n"; code != exitOK || stdout != want || stderr != "" {
		t.Errorf("exit code %d, %q, %q, want %q", code, stdout, stderr, want)
	}
}
