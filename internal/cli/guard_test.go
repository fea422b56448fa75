package cli

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/golden"
)

// recorded starts a server that sends the answers that the tests of package adminapi have recorded. Of
// several answers to the same request, it sends one after the other, and then the last one again.
func recorded(t *testing.T, file string) (url string) {
	t.Helper()
	text, err := os.ReadFile("../../server/internal/adminapi/testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string][]string{}
	for _, entry := range strings.Split(string(text), "> ")[1:] {
		what, answer, _ := strings.Cut(entry, "\n")
		answers[what] = append(answers[what], answer)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		query := ""
		for _, name := range []string{"top", "subject", "plan", "method", "path"} { // in the order of the recording
			if value := r.URL.Query().Get(name); value != "" && value != "20" {
				query += "&" + name + "=" + value
			}
		}
		what := strings.TrimSpace(fmt.Sprintf("%s %s%s %s", r.Method, r.URL.Path, strings.Replace(query, "&", "?", 1), body))
		list := answers[what]
		if len(list) == 0 {
			t.Errorf("no answer to %s", what)
			return
		}
		if len(list) > 1 {
			answers[what] = list[1:]
		}
		status, answer, _ := strings.Cut(list[0], " ")
		if status != "200" {
			w.Header().Set("Content-Type", "application/problem+json")
			code, _ := strconv.Atoi(status)
			w.WriteHeader(code)
		}
		io.WriteString(w, answer)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// What operators see of a guard.
func TestGuardCommands(t *testing.T) {
	url := recorded(t, "guard.golden")
	var out bytes.Buffer
	for _, command := range []string{
		"guard",
		"guard --top 0",
		"guard --json",
		"guard subject user:alice",
		"guard subject user:bob --plan pro",
		"guard subject cert:spiffe://example.org/billing --path /river.StreamService/CreateStream",
		"guard subject user:bob --json",
		"guard pardon user:alice",
		"guard subject user:alice",
		"guard pardon user:alice",
		"guard pardon user:alice --json",
		"guard suggest",
		"guard suggest --json",
	} {
		code, stdout, stderr := operate(t, strings.Fields(command), "--admin", url)
		if code != exitOK || stderr != "" {
			t.Errorf("%s: exit code %d, stderr %q", command, code, stderr)
		}
		fmt.Fprintf(&out, "$ weir %s\n%s", command, stdout)
	}
	golden.Check(t, "testdata/guard.golden", out.Bytes())
}

// What is suggested can be pasted.
func TestSuggestions(t *testing.T) {
	for _, tt := range []struct {
		name, answer, want string
	}{
		{"not measured", `[]`, "# Nothing is measured; set 'measure: true' in the section guard: of the configuration.\n"},
		{"no requests", `[{"endpoint":"a","pattern":"/a","limit":"main","rate":5,"per":"1s","burst":5,"suggested":5}]`, "#\n# The bursts are right for the requests so far.\n"},
		{"default alone", `[{"endpoint":"guard.default","limit":"main","rate":50,"per":"1m0s","burst":50,"requests":9,"suggested":80}]`, `
#
# Bursts for the configuration. Keep what else these endpoints have.
guard:
  default: {limits: [{rate: 50, per: 1m, burst: 80}]}
`},
		{
			"names and patterns", `[{"endpoint":"a","pattern":"POST /v1/users/{id}","limit":"per-hour","rate":5,"per":"1h0m0s","burst":1,"requests":9,"needed_50":50,"needed_99":60,"needed_max":5000,"beyond":2,"suggested":60},
{"endpoint":"b","pattern":"/b","limit":"main","rate":5,"per":"1m30s","burst":5,"requests":9,"suggested":5},
{"endpoint":"c","pattern":"eth_*","limit":"main","rate":5,"per":"10s","burst":5,"requests":9,"needed_50":49,"suggested":49}]`, `
#
# Bursts for the configuration. Keep what else these endpoints have.
guard:
  endpoints:
    "POST /v1/users/{id}": {limits: [{name: "per-hour", rate: 5, per: 1h, burst: 60}]} # half of the requests needed ten times what is allowed now: raise the rate instead
    "eth_*": {limits: [{rate: 5, per: 10s, burst: 49}]}
`,
		},
	} {
		url := answering(t, 200, "application/json", `{"suggestions":`+tt.answer+`}`)
		code, stdout, stderr := operate(t, []string{"guard", "suggest"}, "--admin", url)
		if code != exitOK || !strings.HasSuffix(stdout, tt.want) || stderr != "" {
			t.Errorf("%s: exit code %d, %q\n%s\nwant\n%s", tt.name, code, stderr, stdout, tt.want)
		}
		if shows := strings.Contains(stdout, "more than 5000"); shows != strings.Contains(tt.answer, "beyond") {
			t.Errorf("%s: %s", tt.name, stdout)
		}
	}
}

// Somebody who writes a name for a subject gets a hint.
func TestSubjectsHaveKinds(t *testing.T) {
	url := answering(t, 200, "application/json", `{"penalty_until":"","quotas":[]}`)
	for subject, want := range map[string]string{
		"alice":       "note: subjects have a kind, such as user:alice, key:alice or ip:192.0.2.1\n",
		"user:alice":  "",
		"unknown":     "",
		"a\x1b[31m":   "note: subjects have a kind, such as user:\"a\\x1b[31m\", key:\"a\\x1b[31m\" or ip:192.0.2.1\n",
		"ip:192.0.2.": "",
	} {
		for _, command := range []string{"subject", "pardon"} {
			if code, stdout, stderr := operate(t, []string{"guard", command, subject}, "--admin", url); code != exitOK || stderr != want || stdout == "" {
				t.Errorf("%s %q: exit code %d, %q, %q, want %q", command, subject, code, stdout, stderr, want)
			}
		}
	}
}
