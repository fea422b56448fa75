package upstream

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/fielderr"
	"github.com/weirlimit/weir/secret"
)

// TestConfigErrors has one mistake in each configuration. Errors name the field, and have nothing secret in them.
func TestConfigErrors(t *testing.T) {
	many := func(n int) (list []Endpoint) {
		for i := range n {
			list = append(list, endpointAt(fmt.Sprint("e", i)))
		}
		return list
	}
	with := func(set func(*Endpoint)) func(*Config) {
		return func(c *Config) { set(&c.Endpoints[0]) }
	}
	url := func(text string) func(*Config) { return with(func(e *Endpoint) { e.RPC = secret.New(text) }) }
	for _, tt := range []struct {
		change func(*Config)
		want   string // the field, "" if nothing is wrong
	}{
		{func(*Config) {}, ""},
		{func(c *Config) { c.Endpoints = many(100) }, ""},
		{func(c *Config) { c.Endpoints = many(101) }, "Endpoints"},
		{func(c *Config) { c.Endpoints = nil }, "Endpoints"},
		{func(c *Config) { c.Name = "" }, "Name"},
		{func(c *Config) { c.Name = "a/b" }, "Name"},
		{func(c *Config) { c.Strategy = 7 }, "Strategy"},
		{func(c *Config) { c.MaxQueue = -1 }, "MaxQueue"},
		{func(c *Config) { c.Cooldown = -1 }, "Cooldown"},
		{func(c *Config) { c.Timeout = -1 }, "Timeout"},
		{func(c *Config) { c.Probe.Every = -1 }, "Probe"},
		{func(c *Config) { c.JSONRPC, c.Chain.ID = false, 1 }, "Chain"},
		{func(c *Config) { c.Endpoints = append(c.Endpoints, c.Endpoints[0]) }, "Endpoints[1].Alias"},
		{with(func(e *Endpoint) { e.Alias = "" }), "Endpoints[0].Alias"},
		{with(func(e *Endpoint) { e.Priority = -1 }), "Endpoints[0].Priority"},
		{with(func(e *Endpoint) { e.Weight = -1 }), "Endpoints[0].Weight"},
		{with(func(e *Endpoint) { e.Concurrency = -1 }), "Endpoints[0].Concurrency"},
		{with(func(e *Endpoint) { e.Limits = Rate{PerSecond: 40_000, Aligned: true}.Limits() }), "Endpoints[0].Limits"},
		{with(func(e *Endpoint) { e.Allow = []string{"eth_*Call"} }), "Endpoints[0].Allow[0]"},
		{with(func(e *Endpoint) { e.Deny = []string{""} }), "Endpoints[0].Deny[0]"},
		{with(func(e *Endpoint) { e.Headers = []Header{{Name: "Connection", Value: secret.New("canary")}} }), "Endpoints[0].Headers[0].Name"},
		{with(func(e *Endpoint) { e.Headers = []Header{{Name: "X-Key", Value: secret.New("canary\r\nX: 1")}} }), "Endpoints[0].Headers[0].Value"},
		{url(""), "Endpoints[0].RPC"},
		{url("canary"), "Endpoints[0].RPC"},
		{url("ftp://canary.example"), "Endpoints[0].RPC"},
		{url("https://"), "Endpoints[0].RPC"},
		{url("https://canary.example/\x00"), "Endpoints[0].RPC"},
		{url("https://rpc.example/#canary"), "Endpoints[0].RPC"},
	} {
		c := Config{Name: "eth", JSONRPC: true, Endpoints: many(1)}
		tt.change(&c)
		err := c.Validate()
		if tt.want == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		problem, ok := errors.AsType[*fielderr.Error](err)
		if !ok || pathOf(problem) != tt.want || len(fielderr.Split(err)) != 1 || strings.Contains(err.Error(), "canary") {
			t.Errorf("%v, want one problem of %s", err, tt.want)
		}
	}
}

// TestDefaults shows that nothing but a name and an endpoint is needed.
func TestDefaults(t *testing.T) {
	c := Config{Name: "eth", Endpoints: []Endpoint{endpointAt("a")}}.normal()
	e := c.Endpoints[0]
	if c.Strategy != Balanced || c.MaxWait != 3*time.Second || c.MaxQueue != 1000 || e.Priority != 10 || e.Weight != 100 || e.Unselectable || e.Unmonitored || len(e.Limits) != 0 || e.Provider != "a.example" {
		t.Errorf("%+v", c)
	}
}

// pathOf returns the path to a field, as in Endpoints[0].Alias.
func pathOf(e *fielderr.Error) string {
	var path strings.Builder
	for _, step := range e.Path {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&path, "[%d]", step)
		default:
			fmt.Fprintf(&path, ".%v", step)
		}
	}
	return strings.TrimPrefix(path.String(), ".")
}
