package weirprom

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Reload is a prometheus.Collector of configuration reloads: whether the configuration in force
// is the last one that was read. Its methods may be called concurrently. Before the first
// call it reports no success.
type Reload struct {
	mu                  sync.Mutex // guards the fields below
	last                bool       // the last attempt succeeded
	at                  time.Time  // of the last success
	successes, failures float64
}

var _ prometheus.Collector = (*Reload)(nil)

// NewReload returns a Reload without attempts. Loading at the start is the first.
func NewReload() *Reload { return &Reload{} }

// Succeeded records that a configuration came into force.
func (r *Reload) Succeeded(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.at = true, at
	r.successes++
}

// Failed records that a configuration was rejected, and the one before stays in force.
func (r *Reload) Failed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = false
	r.failures++
}

var (
	reloadLast = prometheus.NewDesc("weir_config_last_reload_successful",
		"Whether the last configuration that was read came into force (1) or was rejected (0).", nil, nil)
	reloadAt = prometheus.NewDesc("weir_config_last_reload_success_timestamp_seconds",
		"When the configuration in force came into force.", nil, nil)
	reloads = prometheus.NewDesc("weir_config_reloads_total",
		"Configurations that were read, the first included, by result.", []string{"result"}, nil)
)

// Describe is for the registry.
func (r *Reload) Describe(to chan<- *prometheus.Desc) {
	to <- reloadLast
	to <- reloadAt
	to <- reloads
}

// Collect is for the registry.
func (r *Reload) Collect(to chan<- prometheus.Metric) {
	r.mu.Lock()
	last, at, successes, failures := r.last, r.at, r.successes, r.failures
	r.mu.Unlock()
	var successful, seconds float64
	if last {
		successful = 1
	}
	if !at.IsZero() {
		seconds = float64(at.UnixMilli()) / 1e3
	}
	to <- prometheus.MustNewConstMetric(reloadLast, prometheus.GaugeValue, successful)
	to <- prometheus.MustNewConstMetric(reloadAt, prometheus.GaugeValue, seconds)
	to <- prometheus.MustNewConstMetric(reloads, prometheus.CounterValue, successes, "success")
	to <- prometheus.MustNewConstMetric(reloads, prometheus.CounterValue, failures, "failure")
}
