package weirprom

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/internal/hist"
	"github.com/weirlimit/weir/upstream"
)

// maxUpstreams and maxRoutes bound the endpoints and the routes with label values of their own. So there are at most
// 41 × 24 series of endpoints, and 26 × 15 of routes.
const (
	maxUpstreams = 40
	maxRoutes    = 25
)

// upstreamMetrics is a collector of the statistics of pools of endpoints.
type upstreamMetrics struct {
	stats func() []upstream.Stats // set by NewUpstreams

	mu        sync.Mutex // guards the fields below
	routes    map[string]bool
	upstreams map[[2]string]bool // by route and alias
}

// NewUpstreams returns a collector of the statistics of pools of endpoints, such as the routes of a gateway. stats
// returns the Stats of each; there must be no two with the same name.
//
// The first 40 endpoints, and the first 25 routes, have label values of their own until the process ends. The others,
// be they of this or of a later configuration, are summed under route="other" and upstream="other".
func NewUpstreams(stats func() []upstream.Stats) prometheus.Collector {
	return &upstreamMetrics{stats: stats, routes: map[string]bool{}, upstreams: map[[2]string]bool{}}
}

var (
	upstreamLabels   = []string{"route", "upstream"}
	upstreamRequests = prometheus.NewDesc("weir_upstream_requests_total",
		"Requests to an endpoint that have ended, probes included, by outcome: succeeded, or why not. unsent ones provably were not sent, and cost nothing.",
		[]string{"route", "upstream", "outcome"}, nil)
	upstreamSkipped = prometheus.NewDesc("weir_upstream_skipped_total",
		"How often an endpoint was chosen and at its limits, which is no failure.", upstreamLabels, nil)
	upstreamWaited = prometheus.NewDesc("weir_upstream_waited_total",
		"Requests that were sent to an endpoint after they had waited in the queue.", upstreamLabels, nil)
	upstreamProbes = prometheus.NewDesc("weir_upstream_probes_total",
		"Probes that were sent to an endpoint.", upstreamLabels, nil)
	upstreamInFlight = prometheus.NewDesc("weir_upstream_in_flight",
		"Requests that an endpoint is answering.", upstreamLabels, nil)
	upstreamUp = prometheus.NewDesc("weir_upstream_up",
		"Whether an endpoint is in use, 0 while it is left alone; of several under one label, how many are.", upstreamLabels, nil)
	upstreamCooldown = prometheus.NewDesc("weir_upstream_cooldown_seconds",
		"When an endpoint is tried again, 0 if it is in use or waits for a probe to succeed; of several under one label, the longest.", upstreamLabels, nil)
	upstreamSeconds = prometheus.NewDesc("weir_upstream_seconds",
		"How long an endpoint took until its response began, of those that succeeded.", upstreamLabels, nil)

	routeLabels   = []string{"route"}
	routeRequests = prometheus.NewDesc("weir_route_requests_total",
		"Requests to a route.", routeLabels, nil)
	routeLimited = prometheus.NewDesc("weir_route_limited_total",
		"Requests that were refused, because no endpoint could take them soon enough.", routeLabels, nil)
	routeFailed = prometheus.NewDesc("weir_route_failed_total",
		"Requests that no endpoint has answered, though they were tried.", routeLabels, nil)
	routeRetries = prometheus.NewDesc("weir_route_retries_total",
		"Requests that were sent again.", routeLabels, nil)
	routeCancelled = prometheus.NewDesc("weir_route_cancelled_total",
		"Requests whose caller left before an answer began.", routeLabels, nil)
	routeWaiting = prometheus.NewDesc("weir_route_waiting",
		"Requests in the queue.", routeLabels, nil)
	routeQueue = prometheus.NewDesc("weir_route_queue_seconds",
		"From the start of handling a request until it was sent, or failed for good.", routeLabels, nil)
)

// Describe is for the registry.
func (m *upstreamMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		upstreamRequests, upstreamSkipped, upstreamWaited, upstreamProbes, upstreamInFlight, upstreamUp, upstreamCooldown, upstreamSeconds,
		routeRequests, routeLimited, routeFailed, routeRetries, routeCancelled, routeWaiting, routeQueue,
	} {
		to <- d
	}
}

// Collect is for the registry.
func (m *upstreamMetrics) Collect(to chan<- prometheus.Metric) {
	routes, endpoints := m.byLabel(m.stats())
	for label, r := range routes {
		r.collect(to, label)
	}
	for labels, e := range endpoints {
		e.collect(to, labels)
	}
}

// routeSum are the figures of the routes that share a label value.
type routeSum struct {
	requests, limited, failed, retries, cancelled, waiting int64
	queue                                                  durations
}

func (s *routeSum) add(r *upstream.Stats) {
	s.requests += r.Requests
	s.limited += r.Limited
	s.failed += r.Failed
	s.retries += r.Retries
	s.cancelled += r.Cancelled
	s.waiting += int64(r.Waiting)
	s.queue.add(r.QueueTimes, queueBounds)
}

func (s *routeSum) collect(to chan<- prometheus.Metric, route string) {
	counter := func(d *prometheus.Desc, n int64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), route)
	}
	counter(routeRequests, s.requests)
	counter(routeLimited, s.limited)
	counter(routeFailed, s.failed)
	counter(routeRetries, s.retries)
	counter(routeCancelled, s.cancelled)
	to <- prometheus.MustNewConstMetric(routeWaiting, prometheus.GaugeValue, float64(s.waiting), route)
	to <- s.queue.metric(routeQueue, queueBounds, route)
}

// endpointSum are the figures of the endpoints that share label values.
type endpointSum struct {
	outcomes                                      [len(outcomesOfUpstreams)]int64
	skipped, waited, probes, inFlight, up, coolMs int64
	latency                                       durations
}

// outcomesOfUpstreams are the outcomes of requests to endpoints. The first and the last are no failures.
var outcomesOfUpstreams = [...]string{"succeeded", "rate", "quota", "denied", "overloaded", "failed", "timeout", "unsent"}

func (s *endpointSum) add(e *upstream.EndpointStats) {
	for i, name := range outcomesOfUpstreams {
		s.outcomes[i] += e.Failures[name]
	}
	if e.Latencies != nil {
		s.outcomes[0] += int64(e.Latencies.Count) //nolint:gosec // a count of calls
	}
	s.outcomes[len(s.outcomes)-1] += e.Unsent
	s.skipped += e.Skipped
	s.waited += e.Waited
	s.probes += e.Probes
	s.inFlight += e.InFlight
	s.coolMs = max(s.coolMs, e.CooldownMs)
	if e.Health != "down" {
		s.up++
	}
	s.latency.add(e.Latencies, latencyBounds)
}

func (s *endpointSum) collect(to chan<- prometheus.Metric, labels [2]string) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, n float64) {
		to <- prometheus.MustNewConstMetric(d, kind, n, labels[:]...)
	}
	for i, name := range outcomesOfUpstreams {
		to <- prometheus.MustNewConstMetric(upstreamRequests, prometheus.CounterValue, float64(s.outcomes[i]), labels[0], labels[1], name)
	}
	send(upstreamSkipped, prometheus.CounterValue, float64(s.skipped))
	send(upstreamWaited, prometheus.CounterValue, float64(s.waited))
	send(upstreamProbes, prometheus.CounterValue, float64(s.probes))
	send(upstreamInFlight, prometheus.GaugeValue, float64(s.inFlight))
	send(upstreamUp, prometheus.GaugeValue, float64(s.up))
	send(upstreamCooldown, prometheus.GaugeValue, float64(s.coolMs)/1000)
	to <- s.latency.metric(upstreamSeconds, latencyBounds, labels[:]...)
}

// The bounds of the buckets. Durations are counted to an eighth, so some that are just below one may be above it.
var (
	latencyBounds = []time.Duration{5 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second}
	queueBounds   = []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second}
)

// durations are the sum of some histograms.
type durations struct {
	count   uint64
	sum     time.Duration
	buckets map[float64]uint64
}

func (d *durations) add(s *hist.Snapshot, bounds []time.Duration) {
	if d.buckets == nil {
		d.buckets = map[float64]uint64{}
	}
	if s == nil {
		return
	}
	d.count += s.Count
	d.sum += s.Sum
	for _, b := range bounds {
		d.buckets[b.Seconds()] += s.AtMost(b)
	}
}

func (d *durations) metric(desc *prometheus.Desc, bounds []time.Duration, labels ...string) prometheus.Metric {
	for _, b := range bounds { // also those of which nothing was added
		d.buckets[b.Seconds()] += 0
	}
	return prometheus.MustNewConstHistogram(desc, d.count, d.sum.Seconds(), d.buckets, labels...)
}

// byLabel sums the figures of routes and of endpoints that share label values.
func (m *upstreamMetrics) byLabel(list []upstream.Stats) (map[string]*routeSum, map[[2]string]*endpointSum) {
	m.mu.Lock()
	defer m.mu.Unlock()
	routes, endpoints := map[string]*routeSum{}, map[[2]string]*endpointSum{}
	for i := range list {
		r := &list[i]
		label := m.routeLocked(r.Pool)
		if routes[label] == nil {
			routes[label] = &routeSum{}
		}
		routes[label].add(r)
		for j := range r.Endpoints {
			labels := m.upstreamLocked(r.Pool, r.Endpoints[j].Alias)
			if endpoints[labels] == nil {
				endpoints[labels] = &endpointSum{}
			}
			endpoints[labels].add(&r.Endpoints[j])
		}
	}
	return routes, endpoints
}

// routeLocked returns the label value of a route, which keeps the one that it had first. It requires m.mu.
func (m *upstreamMetrics) routeLocked(name string) string {
	label := clean(name)
	switch {
	case m.routes[label]:
		return label
	case label == other, len(m.routes) >= maxRoutes:
		return other
	}
	m.routes[strings.Clone(label)] = true
	return label
}

// upstreamLocked returns the label values of an endpoint, which keeps those that it had first. It requires m.mu.
func (m *upstreamMetrics) upstreamLocked(route, alias string) [2]string {
	labels := [2]string{clean(route), clean(alias)}
	switch {
	case m.upstreams[labels]:
		return labels
	case labels[0] == other, labels[1] == other, len(m.upstreams) >= maxUpstreams:
		return [2]string{other, other}
	}
	m.upstreams[[2]string{strings.Clone(labels[0]), strings.Clone(labels[1])}] = true
	return labels
}
