package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/golden"
)

// What operators see of the endpoints of routes (S0.10).
func TestUpstreamsCommands(t *testing.T) {
	url := recorded(t, "upstreams.golden")
	var out bytes.Buffer
	for _, command := range []string{"upstreams", "upstreams ethereum", "upstreams nope", "upstreams --json"} {
		code, stdout, stderr := operate(t, strings.Fields(command), "--admin", url)
		if ok := command != "upstreams nope"; ok != (code == exitOK) {
			t.Errorf("%s: exit code %d, stderr %q", command, code, stderr)
		}
		fmt.Fprintf(&out, "$ weir %s\n%s%s", command, stdout, stderr)
	}
	golden.Check(t, "testdata/upstreams.golden", out.Bytes())
}

// Whatever the answer has is shown as text, and nothing of it divides by zero.
func TestUpstreamsNotes(t *testing.T) {
	const used = `"budgets":[{"account":"a","horizons":[{"limit":"s","used":5,"capacity":10},{"limit":"m","used":9,"capacity":10},{"limit":"d","used":10,"capacity":10,"soft":true}]},{"account":"b","error":"x"},{"account":"c"}]`
	for _, tt := range []struct{ answer, want string }{
		{`{"routes":[],"budgets":[]}`, "the daemon has no routes; a section routes: of its configuration makes some\n"},
		{`{"routes":[{"pool":"r","strategy":"sticky","endpoints":[{"alias":"e\u001b[2J","health":"down","reason":"denied (status 401)","cooldown_ms":-1}],"waiting":3}]}`, `r      "e\x1b[2J"  down (not selectable)  -        0.0  0    -      0.0%     until a probe succeeds: denied (status 401)  -       -` + "\n\nr: sticky, 0 requests, 3 waiting now\n"},
		{`{"routes":[{"pool":"r","endpoints":[{"alias":"x","budget":"a","selectable":true,"health":"recovering","reason":"overloaded (status 503)"}]}],` + used + `}`, "0.0%     recovering: overloaded (status 503)  a       90.0% of m\n"},
		{`{"routes":[{"pool":"r","strategy":"sticky","endpoints":[{"alias":"x","health":"down","reason":"its chain id is not known yet"}],"requests":1}]}`, "0.0%     its chain id is not known yet  -       -\n\nr: sticky, 1 request\n"},
		{`{"routes":[{"pool":"r","endpoints":[{"alias":"x","budget":"b"}]}],` + used + `}`, "b       unknown\n"},
		{`{"routes":[{"pool":"r","endpoints":[{"alias":"x","budget":"c"}]}],` + used + `}`, "c       -\n"},
	} {
		url := answering(t, 200, "application/json", tt.answer)
		code, stdout, stderr := operate(t, []string{"upstreams"}, "--admin", url)
		if code != exitOK || !strings.Contains(stdout, tt.want) || stderr != "" {
			t.Errorf("%s: exit code %d, %q\n%s\nwant\n%s", tt.answer, code, stderr, stdout, tt.want)
		}
	}
}

func TestUpstreamsMisused(t *testing.T) {
	for _, args := range [][]string{{"upstreams", "a", "b"}, {"upstreams", ""}} {
		code, _, stderr := operate(t, args)
		if code != exitUsage || !strings.Contains(stderr, "at most one name") {
			t.Errorf("%q: exit code %d, %s", args, code, stderr)
		}
	}
}
