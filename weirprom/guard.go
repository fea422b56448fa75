package weirprom

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/guard"
)

// maxEndpoints bounds the endpoints of a guard with a label value of their own. So a guard has at
// most 46 × 4 series of endpoints, and 18 others.
const maxEndpoints = 45

// guardMetrics is a collector of the counts of a guard.
type guardMetrics struct {
	stats func() guard.Stats // set by NewGuard

	mu    sync.Mutex // guards the field below
	named map[string]bool
}

// NewGuard returns a collector of the counts of a guard. stats is its Stats method. In a program
// whose guard comes and goes, stats returns the zero Stats while there is none: then there are no
// series.
//
// The first 45 endpoints, by name, have a label value of their own until the process ends. The
// others, be they of this or of a later configuration, are summed under endpoint="other".
func NewGuard(stats func() guard.Stats) prometheus.Collector {
	return &guardMetrics{stats: stats, named: map[string]bool{}}
}

var (
	guardDecisions = prometheus.NewDesc("weir_guard_decisions_total",
		"Decisions of the guard's limits, by endpoint.", []string{"endpoint", "decision"}, nil)
	guardPenalized = prometheus.NewDesc("weir_guard_penalized_denials_total",
		"Denials while a penalty of the subject was in force, by endpoint. They are denied decisions as well.", []string{"endpoint"}, nil)
	guardRefused = prometheus.NewDesc("weir_guard_refused_total",
		"Requests that the guard refused for another cause than a limit.", []string{"cause"}, nil)
	guardViolations = prometheus.NewDesc("weir_guard_violations_total",
		"Violations, by kind, and whether they are of limits in shadow. Those of kind penalized are penalties that began.", []string{"kind", "shadow"}, nil)
	guardInFlight = prometheus.NewDesc("weir_guard_in_flight",
		"Requests that are being handled.", nil, nil)
	guardSubjects = prometheus.NewDesc("weir_guard_subjects",
		"Rows of subjects that this process keeps, for abuse detection and reports.", nil, nil)
	guardExempted = prometheus.NewDesc("weir_guard_exempted_total",
		"Requests that an exemption admitted.", nil, nil)
	guardUnsettled = prometheus.NewDesc("weir_guard_unsettled_total",
		"Requests that count in full because the store could not be reached at their end.", nil, nil)
	guardSubscriptions = prometheus.NewDesc("weir_guard_subscriptions",
		"Open subscriptions.", nil, nil)
	guardItems = prometheus.NewDesc("weir_guard_subscription_items",
		"Items of open subscriptions.", nil, nil)
	guardSubscriptionsDenied = prometheus.NewDesc("weir_guard_subscriptions_denied_total",
		"Subscriptions, and additions to one, that were denied, by reason.", []string{"reason"}, nil)
)

// Describe is for the registry.
func (g *guardMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		guardDecisions, guardPenalized, guardRefused, guardViolations, guardInFlight, guardSubjects, guardExempted, guardUnsettled,
		guardSubscriptions, guardItems, guardSubscriptionsDenied,
	} {
		to <- d
	}
}

// Collect is for the registry.
func (g *guardMetrics) Collect(to chan<- prometheus.Metric) {
	s := g.stats()
	if s.Violations == nil { // there is no guard
		return
	}
	counter := func(d *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, n int64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
	for label, e := range g.byLabel(s.Endpoints) {
		counter(guardDecisions, e.Allowed-e.Shadowed, label, outcomeNames[allowed])
		counter(guardDecisions, e.Denied, label, outcomeNames[denied])
		counter(guardDecisions, e.Shadowed, label, outcomeNames[shadowDenied])
		counter(guardPenalized, e.Penalized, label)
	}
	for cause, n := range s.Refused {
		counter(guardRefused, n, cause.String())
	}
	for kind, n := range s.Violations {
		counter(guardViolations, n, kind.String(), strconv.FormatBool(false))
		counter(guardViolations, s.Shadowed[kind], kind.String(), strconv.FormatBool(true))
	}
	gauge(guardInFlight, s.InFlight)
	gauge(guardSubjects, s.Subjects)
	counter(guardExempted, s.Exempted)
	counter(guardUnsettled, s.Unsettled)
	gauge(guardSubscriptions, s.Subscriptions.Open)
	gauge(guardItems, s.Subscriptions.Items)
	counter(guardSubscriptionsDenied, s.Subscriptions.Refused.TooMany, "max_subscriptions")
	counter(guardSubscriptionsDenied, s.Subscriptions.Refused.TooManyItems, "max_items")
	counter(guardSubscriptionsDenied, s.Subscriptions.Refused.TooFast, "rate")
}

// byLabel sums the counts of endpoints that share a label value.
func (g *guardMetrics) byLabel(list []guard.EndpointStats) map[string]guard.EndpointStats {
	slices.SortFunc(list, func(a, b guard.EndpointStats) int { return strings.Compare(a.Name, b.Name) })
	g.mu.Lock()
	defer g.mu.Unlock()
	out := map[string]guard.EndpointStats{}
	for _, e := range list {
		label := g.labelLocked(e.Name)
		sum := out[label]
		sum.Allowed += e.Allowed
		sum.Denied += e.Denied
		sum.Shadowed += e.Shadowed
		sum.Penalized += e.Penalized
		out[label] = sum
	}
	return out
}

// labelLocked returns the label value of an endpoint. An endpoint keeps the one that it had first: if
// it moved, the counts of two series would be wrong. It requires g.mu.
func (g *guardMetrics) labelLocked(name string) string {
	label := clean(name)
	switch {
	case g.named[label]:
	case label == other, len(g.named) >= maxEndpoints:
		return other
	default:
		g.named[strings.Clone(label)] = true
	}
	return label
}
