package weirprom

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/hist"
	"github.com/weirlimit/weir/upstream"
)

// lasting returns a histogram of so many durations.
func lasting(n int, d time.Duration) *hist.Snapshot {
	var h hist.Histogram
	for range n {
		h.Add(d)
	}
	return h.Snapshot()
}

// upstreamFigures returns figures from 701 to 726 that are all different.
func upstreamFigures() []upstream.Stats {
	return []upstream.Stats{{
		Pool: "ethereum", Requests: 701, Limited: 702, Failed: 703, Retries: 704, Cancelled: 705, Waiting: 706, QueueTimes: lasting(707, 20*time.Millisecond),
		Endpoints: []upstream.EndpointStats{
			{
				Alias: "alchemy-1", Health: "down", CooldownMs: 708_000, Skipped: 709, Waited: 710, Probes: 711, InFlight: 712, Unsent: 713, Latencies: lasting(714, 2*time.Second),
				Failures: map[string]int64{"rate": 715, "quota": 716, "denied": 717, "overloaded": 718, "failed": 719, "timeout": 720},
			},
			{Alias: "public", Health: "recovering", CooldownMs: -1, Skipped: 721, Waited: 722, Probes: 723, InFlight: 724, Unsent: 725, Latencies: lasting(726, time.Millisecond)},
		},
	}}
}

// However many routes and endpoints are configured, now or later, the series are bounded and nothing is lost.
func TestUpstreamSeries(t *testing.T) {
	var list []upstream.Stats
	c := NewUpstreams(func() []upstream.Stats { return list })
	if n := len(gather(t, c)); n != 0 {
		t.Errorf("without routes there are %d metrics", n)
	}
	const endpoints = 10
	add := func(from, to int) {
		list = nil
		for i := from; i < to; i++ {
			r := upstream.Stats{Pool: fmt.Sprintf("route%03d", i), Requests: 1, QueueTimes: lasting(1, 0)}
			for j := range endpoints {
				r.Endpoints = append(r.Endpoints, upstream.EndpointStats{
					Alias: fmt.Sprint("e", j), Health: "ok", CooldownMs: int64(i), Skipped: 1, Latencies: lasting(1, time.Minute), Failures: map[string]int64{"rate": 2},
				})
			}
			list = append(list, r)
		}
	}
	for _, routes := range [][2]int{{0, 100}, {0, 100}, {50, 150}} {
		add(routes[0], routes[1])
		n, sums := 0, map[string]float64{}
		for _, f := range gather(t, c) {
			for _, m := range f.GetMetric() {
				n += seriesOf(m)
				sums[f.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
		if n > 41*24+26*15 {
			t.Errorf("%v: %d series", routes, n)
		}
		for name, want := range map[string]float64{
			"weir_route_requests_total": 100, "weir_route_queue_seconds": 100, "weir_upstream_skipped_total": 100 * endpoints,
			"weir_upstream_seconds": 100 * endpoints, "weir_upstream_requests_total": 3 * 100 * endpoints, "weir_upstream_up": 100 * endpoints,
		} {
			if sums[name] != want {
				t.Errorf("%v: the sum of %s is %v, want %v", routes, name, sums[name], want)
			}
		}
	}
	if got := series(t, c)["weir_upstream_cooldown_seconds other other"]; got != 0.149 {
		t.Errorf("the longest cooldown of several is %v", got)
	}
}

// Names that only look like another one are not mixed up with it.
func TestUpstreamNames(t *testing.T) {
	list := []upstream.Stats{
		{Pool: "other", Requests: 1, Endpoints: []upstream.EndpointStats{{Alias: "a", Skipped: 1}}},
		{Pool: "r", Requests: 2, Endpoints: []upstream.EndpointStats{{Alias: "other", Skipped: 2}, {Alias: "a", Skipped: 3}}},
	}
	got := series(t, NewUpstreams(func() []upstream.Stats { return list }))
	for name, want := range map[string]float64{
		"weir_route_requests_total other": 1, "weir_route_requests_total r": 2,
		"weir_upstream_skipped_total other other": 3, "weir_upstream_skipped_total r a": 3,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	for name := range got {
		if strings.Contains(name, "other a") {
			t.Errorf("there is %s", name)
		}
	}
}
