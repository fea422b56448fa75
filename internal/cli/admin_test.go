package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// adminCommands are the operators' commands.
var adminCommands = [][]string{
	{"keys", "get", "api", "alice"},
	{"keys", "reset", "api", "alice"},
	{"override", "set", "api", "alice", "--rate", "1", "--per", "1s", "--until", "never"},
	{"override", "list"},
	{"override", "remove", "api", "alice"},
	{"guard"},
	{"guard", "subject", "user:alice"},
	{"guard", "pardon", "user:alice"},
	{"guard", "suggest"},
	{"budgets", "resume", "alchemy-main"},
	{"upstreams"},
	{"upstreams", "resume", "ethereum", "alchemy-1"},
}

// operate runs an operators' command.
func operate(t *testing.T, args []string, more ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Main(t.Context(), append(append([]string{}, args...), more...), &out, &errs)
	return code, out.String(), errs.String()
}

// answering starts a server that answers everything in the same way.
func answering(t *testing.T, status int, contentType, body string) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Location", "http://192.0.2.1/")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// Whatever is at the address, an error is one line that says so.
func TestAddressesThatAreNotAnAdminAPI(t *testing.T) {
	const problem = "application/problem+json"
	for _, tt := range []struct {
		name, contentType, body string
		status                  int
		want                    string
	}{
		{"a page", "text/html", "<html>", 200, "is not the admin API's: invalid character '<'"},
		{"no page", "text/html", "<html>", 404, "answered 404 and not as the admin API does; is it the address of a daemon?"},
		{"elsewhere", "text/html", "", 302, "answered 302 and not as the admin API does"},
		{"clients' API", problem, `{"detail":"nothing is at \"/admin/v1/keys\"; GET / shows what is"}`, 404, "say by --admin URL where the daemon has its admin listener"},
		{"no detail", problem, `{}`, 500, "answered 500"},
		{"busy", problem, `{"detail":"the call failed; the daemon's log says why"}`, 503, "weir: the call failed; the daemon's log says why\n"},
		{"escape sequences", problem, `{"detail":"\u001b[31m"}`, 400, `weir: "\x1b[31m"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url := answering(t, tt.status, tt.contentType, tt.body)
			for _, args := range adminCommands {
				if tt.status == 200 && slices.Contains(args, "remove") { // whose answer says nothing new
					continue
				}
				code, stdout, stderr := operate(t, args, "--admin", url)
				if code != exitFailure || stdout != "" || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
					t.Errorf("%v: exit code %d, stdout %q, stderr %q, want %q", args, code, stdout, stderr, tt.want)
				}
			}
		})
	}
}

// Callers choose keys, so what is printed does no harm to a terminal.
func TestControlCharactersAreQuoted(t *testing.T) {
	const bad = `\u001b[31m\u0007\n`
	url := answering(t, 200, "application/json", strings.ReplaceAll(`{"policy":"BAD","key":"BAD","enforced":false,"rollout":"0%",
"override":{"key":"BAD","until":"never","source":"file"},"reset":["BAD"],"missing":["BAD"],"until":"never",
"limits":[{"limit":"BAD","name":"BAD","key":"BAD","unit":"BAD","mode":"enforce"}],
"overrides":[{"policy":"BAD","key":"BAD","limits":[{"name":"BAD","per":"BAD"}]}],
"routes":[{"pool":"BAD","strategy":"BAD","endpoints":[{"alias":"BAD","health":"BAD","reason":"BAD","limit":"BAD","budget":"BAD","cooldown_ms":1}]}],
"endpoints":[{"name":"BAD"}],"violations":{"BAD":{}},"refused":{"BAD":1},"offenders":[{"subject":"BAD"}],"penalty_until":"BAD",
"quotas":[{"endpoint":"BAD","limit":"BAD"}],"suggestions":[{"endpoint":"BAD","pattern":"BAD","limit":"BAD","per":"BAD","requests":1,"suggested":2}]}`, "BAD", bad))
	for _, args := range adminCommands {
		code, stdout, stderr := operate(t, args, "--admin", url)
		harmful := strings.ContainsFunc(stdout, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
		if code != exitOK || stderr != "" || stdout == "" || harmful {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
	}
}

// The token is sent to the address, and to no other.
func TestTheTokenIsNotSentElsewhere(t *testing.T) {
	var got []string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = append(got, "elsewhere") }))
	defer elsewhere.Close()
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"))
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}))
	defer first.Close()
	t.Setenv(adminTokenVariable, " canary\n")
	operate(t, adminCommands[0], "--admin", first.URL)
	if want := "[Bearer canary]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// The addresses that weir check takes are those of operators, too.
func TestAdminAddresses(t *testing.T) {
	t.Parallel()
	cert, key, authority := certificates(t)
	socket := filepath.Join(t.TempDir(), "weir.sock")
	policies := "policies:\n  api:\n    limits: [{rate: 100, per: 1h}]\n"
	plain := startWith(t, policies, nil, "--admin", "unix:"+socket)
	secure := startWith(t, policies+fmt.Sprintf("listen:\n  http: {tls: {cert_file: %q, key_file: %q}}\n", cert, key), nil)
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"--admin unix:" + socket, exitOK, "api    alice  100"},
		{"--admin unix:" + socket + "-none", exitFailure, "no such file or directory; start a daemon"},
		{"--admin unix:", exitUsage, "must be the path of a socket"},
		{"--admin " + plain.url, exitFailure, "the admin API is not at " + plain.url + "; say by --admin URL where the daemon has its admin listener"},
		{"--admin " + secure.url, exitFailure, "signed by unknown authority; trust the authority that signed it by --ca FILE"},
		{"--admin " + secure.url + "/ --ca " + authority, exitOK, "api    alice  100"},
		{"--admin " + strings.TrimPrefix(secure.url, "https://"), exitFailure, "answered 400 and not as the admin API does"},
		{"--admin " + strings.Replace(secure.url, "https", "http", 1) + " --ca " + authority, exitUsage, "must begin with https:// for --ca"},
		{"--admin http://u:p@127.0.0.1:1", exitUsage, "must be like"},
		{"--admin http://127.0.0.1:1/admin/v1", exitUsage, "must be like"},
	} {
		code, stdout, stderr := operate(t, adminCommands[0], strings.Fields(tt.args)...)
		if code != tt.code || !strings.Contains(stdout+stderr, tt.want) {
			t.Errorf("%q: exit code %d, want %d and %q: %s%s", tt.args, code, tt.code, tt.want, stdout, stderr)
		}
	}
}
