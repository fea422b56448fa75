package weirhttp

import (
	"net/http"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/ruleset"
)

// guardSetups are handlers of which the cost is held.
func guardSetups(t testing.TB) map[string]http.Handler {
	t.Helper()
	huge := []ruleset.Limit{{Limit: weir.Limit{Rate: 1_000_000_000, Per: weir.PerSecond(1).Per}}}
	g := func(c guard.Config) *guard.Guard { return newGuard(t, newTable(t), c) }
	endpoint := guard.Endpoint{Pattern: "GET /v1/things", Limits: huge}
	perIP := guard.BeforeAuth{PerIP: huge}
	keys := guard.Identity{Keys: map[guard.KeyHash]guard.Owner{guard.HashKey("0123456789abcdef0123456789abcdef"): {ID: "app"}}}
	outcome := endpoint
	outcome.Count = guard.CountFailures
	before, after := Stages(g(guard.Config{BeforeAuth: perIP, Endpoints: []guard.Endpoint{endpoint}}))
	return map[string]http.Handler{
		"bare":     bare,
		"address":  Guard(g(guard.Config{BeforeAuth: perIP, Endpoints: []guard.Endpoint{endpoint}}))(bare),
		"key":      Guard(g(guard.Config{BeforeAuth: perIP, Endpoints: []guard.Endpoint{endpoint}, Identity: keys}))(bare),
		"disabled": Guard(g(guard.Config{BeforeAuth: perIP, Endpoints: []guard.Endpoint{{Pattern: "GET /v1/things", Disabled: true}}}))(bare),
		"failures": Guard(g(guard.Config{BeforeAuth: perIP, Endpoints: []guard.Endpoint{outcome}}))(bare),
		"stages":   before(after(bare)),
	}
}

// TestGuardAllocates: the subject of the address and the header fields.
func TestGuardAllocates(t *testing.T) {
	if raced() {
		t.Skip("the race detector empties pools")
	}
	all := guardSetups(t)
	w, r := &discard{http.Header{}}, someRequest()
	count := func(h http.Handler) float64 {
		return testing.AllocsPerRun(200, func() { h.ServeHTTP(w, r) })
	}
	base := count(bare)
	for name, want := range map[string]float64{"address": 2, "key": 2, "disabled": 1} {
		if n := count(all[name]) - base; n > want {
			t.Errorf("%s: %v allocations more than the bare handler, want at most %v", name, n, want)
		}
	}
}

func BenchmarkGuard(b *testing.B) {
	for _, name := range []string{"bare", "address", "key", "disabled", "failures", "stages"} {
		h := guardSetups(b)[name]
		b.Run(name, func(b *testing.B) {
			w, r := &discard{http.Header{}}, someRequest()
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}
