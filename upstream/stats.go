package upstream

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/hist"
)

// counters count what happens at an endpoint. They only grow.
type counters struct {
	attempts atomic.Int64 // it was chosen and asked whether it has room
	skipped  atomic.Int64 // it had none
	sent     atomic.Int64
	waited   atomic.Int64 // of those sent, from the line
	unsent   atomic.Int64 // provably not sent, and given back
	probes   atomic.Int64
	drift    atomic.Int64 // requests that its own limits were charged because the provider has counted them
	failures [outcomes]atomic.Int64
	latency  hist.Histogram
	rate     meter
}

// outcome is how a call ended.
type outcome int

const (
	succeeded outcome = iota
	rateLimited
	quotaExhausted
	accessDenied
	overloaded
	failed    // an answer of 500 and above, or none
	timedOut  // no answer in time
	notSent   // no connection
	cancelled // by the caller
	outcomes
)

func (o outcome) String() string {
	return [...]string{"succeeded", "rate", "quota", "denied", "overloaded", "failed", "timeout", "unsent", "cancelled"}[o]
}

// A meter counts events by the second, for the last minute.
type meter struct{ seconds [64]atomic.Uint64 } // second (32) | count (32)

func (m *meter) add(now time.Time) {
	second := uint64(uint32(now.Unix()))
	cell := &m.seconds[second%uint64(len(m.seconds))]
	for {
		old := cell.Load()
		next := second<<32 | 1
		if old>>32 == second {
			next = old + 1
		}
		if cell.CompareAndSwap(old, next) {
			return
		}
	}
}

// count returns the events of the last n full seconds.
func (m *meter) count(now time.Time, n int) (sum int64) {
	for i := 1; i <= n; i++ {
		second := uint64(uint32(now.Unix() - int64(i)))
		if cell := m.seconds[second%uint64(len(m.seconds))].Load(); cell>>32 == second {
			sum += int64(uint32(cell))
		}
	}
	return sum
}

// Stats is what a pool has done and how it is.
type Stats struct {
	Pool      string          `json:"pool"`
	Strategy  string          `json:"strategy"`
	Endpoints []EndpointStats `json:"endpoints"`

	Requests  int64        `json:"requests"`
	Waiting   int          `json:"waiting"`    // in line now
	Waited    int64        `json:"waited"`     // from the line, and sent
	Limited   int64        `json:"limited"`    // refused, because no endpoint could take them soon enough
	Failed    int64        `json:"failed"`     // answered by no endpoint, though tried
	Retries   int64        `json:"retries"`    // sent again
	Cancelled int64        `json:"cancelled"`  // by the caller, before an answer began
	QueueTime Distribution `json:"queue_time"` // from the start of handling until it was sent for the last time, or failed for good before that

	// QueueTimes is the histogram of QueueTime, for metrics.
	QueueTimes *hist.Snapshot `json:"-"`
}

// EndpointStats is what an endpoint has done and how it is. Nothing in it is secret.
type EndpointStats struct {
	Alias      string `json:"alias"`
	Provider   string `json:"provider"`
	Priority   int    `json:"priority"`
	Selectable bool   `json:"selectable"`
	Monitored  bool   `json:"monitored"`

	// Health is ok, down, or recovering: tried with few calls at once. Reason says why it is not ok.
	Health     string `json:"health"`
	Reason     string `json:"reason"`
	CooldownMs int64  `json:"cooldown_ms"` // until it is tried again; -1 until a probe succeeds
	Head       uint64 `json:"head,omitempty"`

	Limit  string `json:"limit"`  // for example "50/s 2400/m", "" if there is none
	Budget string `json:"budget"` // the account's name

	Attempts int64            `json:"attempts"` // chosen and asked whether it has room: sent, skipped and unsent
	Sent     int64            `json:"sent"`
	Skipped  int64            `json:"skipped"` // at its limit when it was chosen; what is skipped is no failure
	Waited   int64            `json:"waited"`  // of those sent, after waiting in line
	Unsent   int64            `json:"unsent"`  // provably not sent, and not charged
	Probes   int64            `json:"probes"`
	Drift    int64            `json:"drift,omitempty"` // requests that the provider has counted and its own limits had not: somebody else sends them
	Failures map[string]int64 `json:"failures"`        // by class: rate, quota, denied, overloaded, failed, timeout

	SkippedPercent float64      `json:"skipped_percent"` // of those sent and skipped
	QPS            float64      `json:"qps"`             // sent per second, of the last five seconds
	QPM            int64        `json:"qpm"`             // sent in the last minute
	InFlight       int64        `json:"in_flight"`
	LatencyMs      float64      `json:"latency_ms"` // moving average until the response begins
	Latency        Distribution `json:"latency"`

	// Text has the same figures as people read them, for example "1.2K".
	Text map[string]string `json:"text"`

	// Latencies is the histogram of Latency, for metrics.
	Latencies *hist.Snapshot `json:"-"`
}

// Distribution is the shape of a histogram, in milliseconds.
type Distribution struct {
	Count  uint64  `json:"count"`
	MeanMs float64 `json:"mean_ms"`
	P50Ms  float64 `json:"p50_ms"`
	P95Ms  float64 `json:"p95_ms"`
	P99Ms  float64 `json:"p99_ms"`
}

func distribution(s *hist.Snapshot) Distribution {
	return Distribution{s.Count, millis(s.Mean()), millis(s.Quantile(0.5)), millis(s.Quantile(0.95)), millis(s.Quantile(0.99))}
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Short returns a number as people read it: 999, 1.2K, 3.4M.
func Short(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprint(n)
	case n < 999_950:
		return fmt.Sprintf("%.1fK", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1fM", float64(n)/1e6)
}

// Stats returns the pool's statistics. It changes nothing.
func (p *Pool) Stats() Stats {
	now, set := time.Now(), p.set.Load()
	s := Stats{
		Pool: p.name, Strategy: set.config.Strategy.String(), Waiting: p.lines.waiting(),
		Requests: p.requests.Load(), Waited: p.waited.Load(), Limited: p.limited.Load(), Failed: p.failed.Load(), Retries: p.retried.Load(), Cancelled: p.cancelled.Load(),
		QueueTimes: p.queueTime.Snapshot(),
	}
	s.QueueTime = distribution(s.QueueTimes)
	for _, e := range set.endpoints {
		s.Endpoints = append(s.Endpoints, e.stats(now))
	}
	return s
}

func (e *endpoint) stats(now time.Time) EndpointStats {
	m := e.memory
	c := &m.stats
	s := EndpointStats{
		Alias: e.Alias, Provider: e.Provider, Priority: e.Priority, Selectable: !e.Unselectable, Monitored: !e.Unmonitored, Head: m.head.Load(),
		Limit: e.limitText(), Budget: e.Budget,
		Attempts: c.attempts.Load(), Sent: c.sent.Load(), Skipped: c.skipped.Load(), Waited: c.waited.Load(), Unsent: c.unsent.Load(), Probes: c.probes.Load(), Drift: c.drift.Load(),
		Failures: map[string]int64{}, InFlight: m.inFlight.Load(), LatencyMs: millis(time.Duration(m.latency.Load())),
		QPS: float64(c.rate.count(now, 5)) / 5, QPM: c.rate.count(now, 60), Latencies: c.latency.Snapshot(),
	}
	s.Health, s.Reason, s.CooldownMs = e.health(now)
	for o := rateLimited; o <= timedOut; o++ {
		if n := c.failures[o].Load(); n > 0 {
			s.Failures[o.String()] = n
		}
	}
	if s.Skipped > 0 {
		s.SkippedPercent = float64(int64(10_000*s.Skipped/(s.Skipped+s.Sent))) / 100
	}
	s.Latency = distribution(s.Latencies)
	s.Text = map[string]string{
		"attempts": Short(s.Attempts), "sent": Short(s.Sent), "skipped": Short(s.Skipped), "qpm": Short(s.QPM), "limited": Short(s.Skipped),
	}
	return s
}

// health returns what the most telling of the endpoint's gates says.
func (e *endpoint) health(now time.Time) (health, reason string, cooldownMs int64) {
	if d := e.accountCooldown(); d > 0 {
		health, reason, cooldownMs = "down", "the account cools down", d.Milliseconds()
	}
	recovering := ""
	for _, g := range e.gates() {
		s := g.state(now)
		switch {
		case s.Open:
		case s.Half:
			recovering = s.Reason
		case s.Until.IsZero():
			return "down", s.Reason, -1
		default:
			if ms := max(1, s.Until.Sub(now).Milliseconds()); ms >= cooldownMs {
				health, reason, cooldownMs = "down", s.Reason, ms
			}
		}
	}
	switch {
	case health != "":
		return health, reason, cooldownMs
	case !e.isConfirmed():
		return "down", "its chain id is not known yet", 0
	case recovering != "":
		return "recovering", recovering, 0
	}
	return "ok", "", 0
}

func (e *endpoint) accountCooldown() time.Duration {
	if e.budget == nil {
		return 0
	}
	return e.budget.Cooldown()
}

// limitText returns the endpoint's limits in short.
func (e *endpoint) limitText() (text string) {
	if e.policy == nil {
		return ""
	}
	for i, l := range e.policy.Limits() {
		if i > 0 {
			text += " "
		}
		text += shortLimit(l)
	}
	return text
}

// shortLimit returns a limit as tables show it, for example "50/s" or "2400/m".
func shortLimit(l weir.Limit) string {
	per := l.Per.String()
	switch l.Per.Duration() {
	case time.Second:
		per = "s"
	case time.Minute:
		per = "m"
	case time.Hour:
		per = "h"
	}
	text := fmt.Sprintf("%d/%s", l.Rate, per)
	if l.Burst > 0 && l.Burst != l.Rate {
		text += fmt.Sprintf(" burst %d", l.Burst)
	}
	return text
}
