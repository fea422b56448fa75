package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/upstream"
)

// routesSketch is the section from which the form of the file was designed.
const routesSketch = `
budgets:
  alchemy-main: {preset: alchemy-free}
routes:
  ethereum:                     # served at /gw/ethereum
    kind: jsonrpc               # jsonrpc | http | llm
    strategy: balanced          # balanced | sticky
    max_wait: 3s
    max_queue: 1000
    chain: {id: 1, max_lag: 3}
    upstreams:
      - {alias: alchemy-1, rpc: "${ALCHEMY_1}", ws: "${ALCHEMY_1_WS}", budget: alchemy-main, priority: 10}
      - {alias: public, rpc: "https://rpc.example.org", priority: 20, max_per_secs: 50, max_per_min: 2400}   # shorthand for limits:
`

func TestRoutes(t *testing.T) {
	c, err := Parse("weir.yaml", []byte(routesSketch), []string{"ALCHEMY_1=https://eth.example.org/v2/key", "ALCHEMY_1_WS=wss://eth.example.org/v2/key"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	live := c.Live()
	if err := live.Validate(); err != nil || len(c.Warnings) > 0 {
		t.Fatal(err, c.Warnings)
	}
	pool := live.Routes[0].Pool
	if pool.Name != "ethereum" || !pool.JSONRPC || pool.MaxWait != 3*time.Second || pool.MaxQueue != 1000 || pool.Chain != (upstream.Chain{ID: 1, MaxLag: 3}) {
		t.Errorf("%+v", pool)
	}
	one, public := pool.Endpoints[0], pool.Endpoints[1]
	if one.RPC.Reveal() != "https://eth.example.org/v2/key" || one.WS.Reveal() != "wss://eth.example.org/v2/key" || one.Budget != "alchemy-main" || one.Priority != 10 || len(one.Limits) != 0 {
		t.Errorf("%+v", one)
	}
	if want := (upstream.Rate{PerSecond: 50, PerMinute: 2400}).Limits(); !slices.Equal(public.Limits, want) || public.Priority != 20 || public.Weight != 100 {
		t.Errorf("%+v", public)
	}
}

// What the file says is what package gateway gets (S0.11, S0.12, S0.13).
func TestRoutesOfAFile(t *testing.T) {
	c := parseGood(t, "routes.yaml")
	live := c.Live()
	if err := live.Validate(); err != nil || len(live.Routes) != 3 || len(c.Warnings) > 0 {
		t.Fatal(len(live.Routes), err, c.Warnings)
	}
	ethereum, aligned, sui := live.Routes[0], live.Routes[1], live.Routes[2]
	p := ethereum.Pool
	if p.Strategy != upstream.Sticky || p.MaxWait != 1500*time.Millisecond || p.Timeout != 10*time.Second || p.Cooldown != time.Minute ||
		p.Probe != (upstream.Probe{Every: time.Minute, Timeout: 2 * time.Second, Method: "eth_blockNumber"}) {
		t.Errorf("%+v", p)
	}
	if ethereum.MaxBody != 1<<20 || !slices.Equal(ethereum.Origins, []string{"https://app.example.com"}) || !slices.Equal(ethereum.Repeatable, []string{"eth_sendRawTransaction"}) {
		t.Errorf("%+v", ethereum)
	}
	node := p.Endpoints[1]
	if len(node.Limits) != 2 || node.Limits[1].Per.String() != "day in Europe/Berlin" || node.Concurrency != 20 ||
		!slices.Equal(node.Allow, []string{"eth_*", "net_version"}) || !slices.Equal(node.Deny, []string{"eth_getLogs"}) {
		t.Errorf("%+v", node)
	}
	if h := node.Headers; len(h) != 2 || h[0].Name != "x-api-key" || h[1].Name != "x-other" || h[1].Value.Reveal() != "CANARY-header" {
		t.Errorf("%+v", h)
	}
	public, smooth := aligned.Pool.Endpoints[0], aligned.Pool.Endpoints[1]
	if aligned.Pool.MaxWait >= 0 || !public.Unselectable || public.Unmonitored || !slices.Equal(public.Limits, upstream.Rate{PerSecond: 32767, PerMinute: 262143, Aligned: true}.Limits()) {
		t.Errorf("%+v", public)
	}
	if smooth.Unselectable || !smooth.Unmonitored || !slices.Equal(smooth.Limits, upstream.Rate{PerMinute: 600, Smooth: true}.Limits()) {
		t.Errorf("%+v", smooth)
	}
	if e := sui.Pool.Endpoints; e[0].Alias != public.Alias || len(e[0].Limits) != 0 { // the same alias in another route
		t.Errorf("%+v", e)
	}
	for _, setting := range live.Effective {
		if text := fmt.Sprintf("%v %+v %q", setting, setting.Value, setting.Value); strings.Contains(text, "CANARY") {
			t.Errorf("%s is shown", setting.Path)
		}
	}
}

// A client that may use routes has nothing else, and routes are granted by name.
func TestRoutesOfClients(t *testing.T) {
	list := parseGood(t, "routes.yaml").Live().Clients
	dapp, indexer := list[0].Grants, list[1].Grants
	if !dapp.MayRoute("ethereum") || dapp.MayRoute("sui") || dapp.MayPolicy("default") || !dapp.MayClass("realtime") {
		t.Errorf("%+v", dapp)
	}
	if !indexer.MayRoute("eth-aligned") || !indexer.MayRoute("sui") || indexer.MayRoute("other") || indexer.MayClass("realtime") {
		t.Errorf("%+v", indexer)
	}
}

// A file that others may read is worth a warning if it has keys in it, and only then.
func TestKeysOfRoutesInAFile(t *testing.T) {
	for rpc, want := range map[string]int{
		"https://rpc.example.org": 0, "https://fullnode.testnet.sui.io:443": 0, "http://127.0.0.1:8545/": 0,
		"https://rpc.example.org/v2/key": 1, "https://user@rpc.example.org": 1, "https://rpc.example.org?key=k": 1,
		"https://0123456789abcdef0123456789abcdef.rpc.example.org": 1,
	} {
		file := []byte("routes: {r: {kind: jsonrpc, upstreams: [{alias: a, rpc: " + rpc + "}]}}")
		c, err := parse("weir.yaml", file, 0o644, nil, readFile, nil)
		if err != nil || len(c.Warnings) != want {
			t.Errorf("%s: %v, %v", rpc, err, c.Warnings)
			continue
		}
		if printed := fmt.Sprint(c.Live().Effective); strings.Contains(printed, "example.org") {
			t.Errorf("%s is shown: %s", rpc, printed)
		}
	}
}

// Limits of document 000 that do not fit are refused, never cut (F0.20, F0.22, F0.23).
func TestLimitsOfUpstreams(t *testing.T) {
	for _, tt := range []struct{ limits, want string }{
		{"max_per_secs: 32767, max_per_min: 262143, aligned: true", ""},
		{"max_per_secs: 32768, aligned: true", "max_per_secs: 32768: at most 32767 can be counted"},
		{"max_per_min: 262144, aligned: true", "max_per_min: 262144: at most 262143 can be counted"},
		{"max_per_secs: 32768, max_per_min: 262144", ""},
		{"max_per_secs: 4294967297, aligned: true", "max_per_secs: 4294967297: at most 32767"}, // not 1
		{"max_per_secs: 18446744073709551617", "max_per_secs: 18446744073709551617 must be between"},
		{"max_per_secs: 1099511627777", "max_per_secs: "}, // more than an exact window counts
		{"max_per_secs: 0", "max_per_secs: 0 must be at least 1: leave it out for no limit"},
		{"max_per_secs: null", "has no value"},
		{"max_per_secs: 1.5", "must be a whole number"},
		{"limits: [{rate: 5, per: 1s}, {name: hour, rate: 9, per: 1h}]", ""},
		{"limits: [{rate: 5, per: 1s}], max_per_min: 5", "limits: max_per_secs and max_per_min are a short form of limits"},
	} {
		file := "routes: {r: {kind: jsonrpc, upstreams: [{alias: a, rpc: \"https://rpc.example.org\", " + tt.limits + "}]}}"
		c, err := Parse("weir.yaml", []byte(file), nil, nil)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.limits, err)
		case tt.want == "":
			if err := c.Live().Validate(); err != nil {
				t.Errorf("%s: %v", tt.limits, err)
			}
		case err == nil || !strings.Contains(err.Error(), tt.want) || strings.Count(err.Error(), "weir.yaml:") != 1:
			t.Errorf("%s: %v", tt.limits, err)
		}
	}
}
