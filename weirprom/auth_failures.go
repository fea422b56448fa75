package weirprom

import "github.com/prometheus/client_golang/prometheus"

// authFailures is a collector of refused callers.
type authFailures struct {
	each func(yield func(kind, reason string, count uint64))
}

var authFailuresTotal = prometheus.NewDesc("weir_auth_failures_total",
	"Callers that were refused, by kind (client or admin) and reason.", []string{"kind", "reason"}, nil)

// NewAuthFailures returns a collector of the calls that a daemon refused because of who called. At
// each scrape it calls each, which passes the number of failures of every kind of caller and reason
// to yield. Both must be from closed sets: a kind is client or admin, and a reason is
//
//   - missing: there was no token and no certificate,
//   - unknown: nobody has the token,
//   - throttled: nobody has the token, and too many such tokens came from the address,
//   - forbidden: the caller is known, and may not do what it asked for.
func NewAuthFailures(each func(yield func(kind, reason string, count uint64))) prometheus.Collector {
	return authFailures{each}
}

// Describe is for the registry.
func (authFailures) Describe(to chan<- *prometheus.Desc) { to <- authFailuresTotal }

// Collect is for the registry.
func (a authFailures) Collect(to chan<- prometheus.Metric) {
	a.each(func(kind, reason string, count uint64) {
		to <- prometheus.MustNewConstMetric(authFailuresTotal, prometheus.CounterValue, float64(count), kind, reason)
	})
}
