package config

import (
	"strings"
	"testing"
)

// leaky is a file whose secrets are literal. Each has CANARY in it.
const leaky = `listen: {http: 127.0.0.1:8080}
clients:
  checkout: {token: CANARY-checkout-0123456789-0123456789, policies: [default]}
  search:
    tokens:
      - "CANARY-search-0123456789-0123456789"
      - CANARY-search-two-0123456789-0123456789
  block:
    token: |-
      CANARY-block-0123456789-0123456789-012
admin:
  tokens:
    ops: {token: 'CANARY-ops-0123456789-0123456789-01234', scopes: [read]}
store:
  kind: redis
  redis:
    addrs: ["redis://user:CANARY@127.0.0.1:6379"]
    prefix: weir
    sentinel_master: mymaster
    sentinel_password: CANARY-sentinel
tracing:
  endpoint: https://user:CANARY@collector.example
  headers:
    authorization: Bearer CANARY-collector
    x-key: "CANARY-key"
routes:
  ethereum:
    kind: jsonrpc
    upstreams:
      - alias: one
        rpc: https://rpc.example.org/CANARY
        headers: {x-node: CANARY-node}
      - {alias: two, rpc: "https://CANARY@two.example.org", ws: 'wss://two.example.org/CANARY'}
log: {level: info}
`

// sample is how many slips there are for each that is tried. With 1, the test takes a
// minute.
const sample = 16

// Whatever single slip of the finger breaks the file, no secret is shown.
func TestNoSlipShowsSecrets(t *testing.T) {
	if _, err := Parse("weir.yaml", []byte(leaky), nil, nil); err != nil {
		t.Fatal(err)
	}
	broken, slips := 0, []string{"", ":", `"`, "'", "{", "}", "[", "\n", "\t", "*", "&", "!", "#", "- ", ": ", "\n\n  ", "x", "|", "\x00", "\xff", "${", "---\n"}
	for i := range leaky {
		for j, slip := range slips {
			if (7*i+j)%sample != 0 {
				continue
			}
			for _, text := range []string{leaky[:i] + slip + leaky[i:], leaky[:i] + slip + leaky[i+1:]} {
				if inCanary(i) {
					continue
				}
				c, err := Parse("weir.yaml", []byte(text), nil, nil)
				if err == nil {
					checkPrinted(t, c)
					continue
				}
				broken++
				if strings.Contains(err.Error(), "CANARY") {
					t.Fatalf("with %q at %d:\n%s\nis shown:\n%v", slip, i, around(text, i), err)
				}
			}
		}
	}
	if broken < len(leaky)*len(slips)/sample {
		t.Errorf("only %d were broken", broken)
	}
}

// inCanary says whether a slip at i would hide that a secret is shown.
func inCanary(i int) bool {
	from := max(0, i-len("CANARY"))
	return strings.Contains(leaky[from:min(len(leaky), i+len("CANARY"))], "CANARY") && strings.Contains("CANARY", string(leaky[i]))
}

func checkPrinted(t *testing.T, c *Config) {
	t.Helper()
	var b strings.Builder
	for _, w := range c.Warnings {
		b.WriteString(w.Error())
	}
	for _, format := range []Format{YAML, JSON} {
		if err := c.Print(&b, format); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(b.String(), "CANARY") {
		t.Fatalf("is printed:\n%s", b.String())
	}
}

func around(text string, i int) string { return text[max(0, i-80):min(len(text), i+80)] }
