package adminapi

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/golden"
	"github.com/weirlimit/weir/upstream"
)

// oneRoute returns what there is to say of the route "ethereum".
func oneRoute() []upstream.Stats {
	return []upstream.Stats{{
		Pool: "ethereum", Strategy: "balanced", Requests: 1520, Waited: 12, Limited: 3, Failed: 1, Retries: 2, Cancelled: 4,
		QueueTime: upstream.Distribution{Count: 1520, MeanMs: 3.2, P50Ms: 0.1, P95Ms: 0.2, P99Ms: 81},
		Endpoints: []upstream.EndpointStats{
			{
				Alias: "alchemy-1", Provider: "eth-mainnet.g.alchemy.com", Priority: 10, Selectable: true, Monitored: true,
				Health: "down", Reason: "rate (status 429)", CooldownMs: 800, Head: 20_000_000, Budget: "alchemy-main",
				Attempts: 1500, Sent: 1400, Skipped: 100, Waited: 12, Probes: 40, Failures: map[string]int64{"rate": 1}, SkippedPercent: 6.66,
				QPS: 4.2, QPM: 250, InFlight: 2, LatencyMs: 31.5, Latency: upstream.Distribution{Count: 1400, MeanMs: 33, P50Ms: 30, P95Ms: 60, P99Ms: 90},
				Text: map[string]string{"attempts": "1.5K", "sent": "1.4K", "skipped": "100", "qpm": "250", "limited": "100"},
			},
			{
				Alias: "public", Provider: "rpc.example.org", Priority: 20, Selectable: true, Health: "ok", Limit: "50/s 2400/m",
				Attempts: 120, Sent: 120, Failures: map[string]int64{}, LatencyMs: 140,
				Text: map[string]string{"attempts": "120", "sent": "120", "skipped": "0", "qpm": "0", "limited": "0"},
			},
		},
	}}
}

// What operators resume: an endpoint and its account, or an account alone. What there is not, they cannot.
func TestResume(t *testing.T) {
	frozen(t, func(t *testing.T) {
		d := newDaemon(t)
		d.budgets[0].Cool(90 * time.Minute)
		got := d.converse("POST /admin/v1/budgets/alchemy-main/resume", "POST /admin/v1/budgets/alchemy-main/resume")
		if left := d.budgets[0].Cooldown(); left > 0 {
			t.Errorf("the account waits for another %v", left)
		}
		got = append(got, d.converse("POST /admin/v1/upstreams/ethereum/alchemy-1/resume", "POST /admin/v1/upstreams/ethereum/public/resume")...)
		if want := []string{"alchemy-main", "alchemy-main", "ethereum/alchemy-1", "alchemy-main", "ethereum/public"}; !slices.Equal(d.resumed, want) {
			t.Errorf("%q were resumed, want %q", d.resumed, want)
		}
		d.resumed = nil
		got = append(got, d.converse("POST /admin/v1/budgets/nope/resume", "POST /admin/v1/upstreams/nope/alchemy-1/resume", "POST /admin/v1/upstreams/ethereum/nope/resume",
			"POST /admin/v1/upstreams/ethereum/resume", "POST /admin/v1/upstreams/ethereum//resume", "POST /admin/v1/upstreams/ethereum/public/x/resume", "POST /admin/v1/budgets//resume",
			"POST /admin/v1/budgets/alchemy-main/x/resume", "GET /admin/v1/budgets/alchemy-main/resume", "POST /admin/v1/budgets/alchemy-main/resume?key=x", "GET /admin/v1/budgets")...)
		if len(d.resumed) > 0 {
			t.Errorf("%q were resumed", d.resumed)
		}
		d.budgets, d.routes = nil, nil
		got = append(got, d.converse("POST /admin/v1/budgets/alchemy-main/resume", "POST /admin/v1/upstreams/ethereum/alchemy-1/resume")...)
		golden.Check(t, "testdata/resume.golden", got)
	})
}

func TestUpstreamAnswers(t *testing.T) {
	frozen(t, func(t *testing.T) {
		d := newDaemon(t)
		got := d.converse("GET /admin/v1/upstreams", "GET /admin/v1/upstreams/ethereum", "GET /admin/v1/upstreams/nope", "GET /admin/v1/upstreams/",
			"GET /admin/v1/upstreams/a/b", "GET /admin/v1/upstreams?route=ethereum", "POST /admin/v1/upstreams", "DELETE /admin/v1/upstreams/ethereum")
		d.budgets = nil // one that is being removed
		got = append(got, d.converse("GET /admin/v1/upstreams")...)
		d.routes = nil
		got = append(got, d.converse("GET /admin/v1/upstreams", "GET /admin/v1/upstreams/ethereum")...)
		golden.Check(t, "testdata/upstreams.golden", got)
	})
}
