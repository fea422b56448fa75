package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// banner reads what a daemon prints, and returns it by the words that the lines begin with.
func (d *daemon) banner(t *testing.T) map[string]string {
	t.Helper()
	lines := map[string]string{}
	for {
		line, err := d.out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if word != "" {
			lines[word] = strings.TrimSpace(rest)
		}
		if word == "stop" {
			return lines
		}
	}
}

// shell runs a command as a person would.
func shell(t *testing.T, command string, env ...string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", command)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	return string(out)
}

// The commands that the daemon prints work with its configuration: each charges.
func TestGreetingCommandsWork(t *testing.T) {
	t.Parallel()
	cert, key, authority := certificates(t)
	const token = "token-0123456789012345678901234567890"
	const plain = "policies:\n  api:\n    limits: [{rate: 100, per: 1h}]\n"
	secure := fmt.Sprintf("{tls: {cert_file: %q, key_file: %q}}", cert, key)
	mutual := fmt.Sprintf("{tls: {cert_file: %q, key_file: %q, client_ca_file: %q, require_client: true}}", cert, key, authority)
	optional := strings.Replace(mutual, ", require_client: true", "", 1)
	socket := filepath.Join(t.TempDir(), "a socket", "weir.sock")
	if err := os.Mkdir(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, config string
		args         string // |-separated
		look, resp   bool
		has          string // the command for curl has
	}{
		{"default", "{}", "", true, true, `-d '{"policy":"default","key":"alice"}'`},
		{"policy", plain, "", true, true, `"policy":"api"`},
		{"by", "policies:\n  api:\n    limits: [{rate: 100, per: 1h, by: ip}, {name: team, rate: 100, per: 1h, by: team}]\n", "", true, true, `"keys":{"ip":"192.0.2.1","team":"example"}`},
		{"tokens", "policies:\n  api:\n    limits: [{rate: 100, per: 1h, unit: tokens}]\n", "", true, true, `"cost":{"tokens":1}`},
		{"requests and tokens", "policies:\n  api:\n    limits: [{rate: 100, per: 1h}, {name: tokens, rate: 90, per: 1h, unit: tokens}]\n", "", true, true, `"cost":{"requests":1,"tokens":1}`},
		{"slots", "policies:\n  jobs:\n    limits: [{rate: 100, algorithm: concurrency}]\n", "", true, true, "/v1/reserve -d"},
		{"slots by unit", "policies:\n  jobs:\n    limits: [{rate: 100, algorithm: concurrency, unit: gpus, by: team}]\n", "", true, true, "/v1/reserve -d"},
		{"clients", plain + "  other:\n    limits: [{rate: 100, per: 1h}]\nclients:\n  shop: {token: \"${TOKEN}\", policies: [other]}\n", "", true, true, `-H "Authorization: Bearer $WEIR_TOKEN"`},
		{"clients are not needed", plain + "auth: none\nclients:\n  shop: {token: \"${TOKEN}\"}\n", "", true, true, "curl -s http://127.0.0.1:"},
		{"socket", plain, "--http|unix:" + socket, false, true, "--unix-socket '"},
		{"socket for RESP", plain, "--resp|unix:" + socket + "2", true, true, "curl -s http://"},
		{"no RESP", plain, "--resp|off", true, false, "curl -s http://"},
		{"TLS", plain + "listen:\n  http: " + secure + "\n  resp: " + secure + "\n", "", true, true, "--cacert "},
		{"TLS for another name", plain + "listen:\n  http: " + secure + "\n  resp: " + secure + "\n", "--http|127.0.0.2:0|--resp|127.0.0.2:0", true, true, "curl -s -k https://127.0.0.2:"},
		{"certificates", plain + "listen:\n  http: " + mutual + "\n  resp: " + mutual + "\n", "", true, true, `--cert "$WEIR_CERT"`},
		{"a client with a certificate", plain + "clients:\n  shop: {certificate: localhost}\nlisten:\n  http: " + optional + "\n  resp: " + optional + "\n", "", true, true, `--cert "$WEIR_CERT"`},
		{"all addresses", plain + "auth: none\n", "--http|0.0.0.0:0|--resp|:0", false, true, "http://127.0.0.1:"},
		{"admin", plain, "--admin|127.0.0.1:0", true, true, "curl -s http://"},
		{"admin on TLS", plain + "listen:\n  admin: {address: \"127.0.0.1:0\", tls: {cert_file: " + cert + ", key_file: " + key + "}}\n", "", true, true, "curl -s http://"},
		{"admin on a socket", plain, "--admin|unix:" + socket + "3", false, true, "curl -s http://"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var args []string
			if tt.args != "" {
				args = strings.Split(tt.args, "|")
			}
			lines := startWith(t, tt.config, []string{"TOKEN=" + token}, args...).banner(t)
			env := []string{"WEIR_TOKEN=" + token, "WEIR_CERT=" + cert, "WEIR_KEY=" + key}
			if !strings.Contains(lines["ask"], tt.has) {
				t.Errorf("ask %s, want %s in it", lines["ask"], tt.has)
			}
			left := remaining(t, shell(t, lines["ask"], env...))
			if _, ok := lines["Redis"]; ok != tt.resp {
				t.Fatalf("a command for redis-cli: %v, want %v", ok, tt.resp)
			}
			if tt.resp {
				wantCharged(t, shell(t, lines["Redis"], env...), left, tt.name == "default")
			}
			if _, ok := lines["look"]; ok != tt.look {
				t.Fatalf("a page to look at: %v, want %v", ok, tt.look)
			}
			if tt.look {
				status := shell(t, `curl -sk --cert "$WEIR_CERT" --key "$WEIR_KEY" -o /dev/null -w '%{http_code}' `+lines["look"], env...)
				if status != fmt.Sprint(http.StatusOK) {
					t.Errorf("GET %s: %s", lines["look"], status)
				}
			}
		})
	}
}

// remaining returns what remains after a call over HTTP, which must be admitted and charged.
func remaining(t *testing.T, reply string) int64 {
	t.Helper()
	var a struct {
		Allowed          bool
		Limit, Remaining int64
	}
	if err := json.Unmarshal([]byte(reply), &a); err != nil || !a.Allowed || a.Remaining != a.Limit-1 {
		t.Fatalf("not admitted, or not charged: %s (%v)", reply, err)
	}
	return a.Remaining
}

// wantCharged checks the reply of redis-cli: after the id of a reservation whether it was admitted,
// the limit and what remains. That is one less than before, unless units have come back.
func wantCharged(t *testing.T, reply string, before int64, comesBack bool) {
	t.Helper()
	numbers := strings.Fields(reply)
	if len(numbers) == 6 {
		numbers = numbers[1:]
	}
	left := fmt.Sprint(before - 1)
	if comesBack && len(numbers) > 2 && numbers[2] == fmt.Sprint(before) {
		left = numbers[2]
	}
	if len(numbers) != 5 || numbers[0] != "1" || numbers[2] != left {
		t.Fatalf("not admitted, or not charged: %s", reply)
	}
}

// Each route has a line with its address. A command that calls a policy is shown if there is one that somebody
// may use, besides the policy that a gateway has without a configuration of policies.
func TestGreetingOfRoutes(t *testing.T) {
	t.Parallel()
	const routes = "routes:\n" +
		"  ethereum: {kind: jsonrpc, upstreams: [{alias: a, rpc: \"http://127.0.0.1:1\", monitored: false}]}\n" +
		"  base: {kind: jsonrpc, upstreams: [{alias: a, rpc: \"http://127.0.0.1:1\", monitored: false}]}\n"
	const policies = "policies:\n  api:\n    limits: [{rate: 100, per: 1h}]\n"
	const token = "token-0123456789012345678901234567890"
	socket := filepath.Join(t.TempDir(), "weir.sock")
	for _, tt := range []struct {
		name, config string
		args         []string
		routes       string // %s is the daemon's origin
		asks         bool
	}{
		{"routes", routes, nil, "%s/gw/ethereum %s/gw/base", false},
		{"routes and a policy", routes + policies, nil, "%s/gw/ethereum %s/gw/base", true},
		{"a socket", routes, []string{"--http", "unix:" + socket}, "http://localhost/gw/ethereum over " + socket + " http://localhost/gw/base over " + socket, false},
		{"a client of routes", routes + policies + "clients:\n  dapp: {token: \"${TOKEN}\", routes: [base]}\n", nil, "%s/gw/ethereum %s/gw/base", false},
		{"a client of policies", routes + policies + "clients:\n  shop: {token: \"${TOKEN}\", policies: [api]}\n", nil, "%s/gw/ethereum %s/gw/base", true},
		{"no routes", policies, nil, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := startWith(t, tt.config, []string{"TOKEN=" + token}, tt.args...)
			var got []string
			asks := false
		lines:
			for {
				line, err := d.out.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
				switch word {
				case "route":
					got = append(got, strings.TrimSpace(rest))
				case "ask":
					asks = true
				}
				if word == "stop" {
					break lines
				}
			}
			if want := strings.ReplaceAll(tt.routes, "%s", d.url); strings.Join(got, " ") != want || asks != tt.asks {
				t.Errorf("routes %q, want %q; asks %v, want %v", got, want, asks, tt.asks)
			}
		})
	}
}
