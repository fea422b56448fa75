package weirprom

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir"
)

// The maximum number of series. A process may have 2,000. Of these, 200 are for the
// other collectors of this package (about 40), the Go runtime's and the process's (about
// 60) and whatever the program adds, and 1,800 for decisions:
//
//	policies, and "other"           200 + 1                     = 201
//	allowed, denied, shadow_denied  201 × 3  with reason other  =   603
//	combinations of its own         201 × 3                     =   603
//	histograms, and "other"         (49 + 1) × (4 + 3)          =   350
//	combinations, first come        the rest                    =   244
//	                                                              1,800
//
// Most policies need two or three combinations: admitted and exhausted, from one backend
// or two. Policies that need more take from the 244; when these are used up, new combinations
// are counted under reason other.
const (
	maxSeries      = 1_800
	maxPolicies    = 200
	timedPolicies  = 49
	ownSeries      = 3
	histogramCosts = 4 + 3 // classicBuckets, and +Inf, _sum and _count
	sharedSeries   = maxSeries - (maxPolicies+1)*(outcomes+ownSeries) - (timedPolicies+1)*histogramCosts
)

var classicBuckets = [...]float64{100e-6, 1e-3, 10e-3, 100e-3}

// other is the label value of everything without a series of its own.
const other = "other"

// maxLabel bounds the bytes of a policy's name in a label.
const maxLabel = 128

// The values of the label decision.
const (
	allowed = iota
	denied
	shadowDenied

	outcomes = iota
)

var outcomeNames = [outcomes]string{"allowed", "denied", "shadow_denied"}

// reasons is the number of reasons that are known here. Others are counted as other.
const reasons = int(weir.Blocked) + 1

// Options are settings of Decisions that most callers leave alone.
type Options struct {
	// MaxPolicies bounds the policies with a label value of their own. The others share the
	// label value "other". The default is 200, which is also the maximum.
	MaxPolicies int
}

// Decisions is a prometheus.Collector that counts decisions and the time they took. Its methods
// may be called concurrently.
type Decisions struct {
	total       *prometheus.CounterVec   // set by NewDecisions
	seconds     *prometheus.HistogramVec // set by NewDecisions
	maxPolicies int                      // set by NewDecisions
	other       *PolicyDecisions         // set by NewDecisions

	mu       sync.Mutex // guards the fields below, and PolicyDecisions.own
	policies map[string]*PolicyDecisions
	shared   int // series left for any policy
}

var _ prometheus.Collector = (*Decisions)(nil)

// NewDecisions returns a Decisions without any observations.
func NewDecisions(o Options) *Decisions {
	d := &Decisions{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_decisions_total",
			Help: "Decisions, by policy, decision, reason and the backend that decided.",
		}, []string{"policy", "decision", "reason", "backend"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:                            "weir_decision_seconds",
			Help:                            "Time that decisions took, by policy. Of a pipeline one decision is timed.",
			Buckets:                         classicBuckets[:],
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  160, // 20 powers of two: 1 µs to 1 s
			NativeHistogramMinResetDuration: time.Hour,
		}, []string{"policy"}),
		maxPolicies: maxPolicies,
		policies:    map[string]*PolicyDecisions{},
		shared:      sharedSeries,
	}
	if o.MaxPolicies > 0 {
		d.maxPolicies = min(o.MaxPolicies, maxPolicies)
	}
	d.other = &PolicyDecisions{all: d, label: other, seconds: d.seconds.WithLabelValues(other)}
	return d
}

// Policy returns the counters of a policy. It takes a lock, so call it once for each policy and
// keep the result. The label has the first 128 bytes of the name; characters that cannot be
// printed become _.
func (d *Decisions) Policy(name string) *PolicyDecisions {
	label := clean(name)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch p := d.policies[label]; {
	case p != nil:
		return p
	case label == other, len(d.policies) >= d.maxPolicies:
		return d.other
	}
	p := &PolicyDecisions{all: d, label: label, seconds: d.other.seconds}
	if len(d.policies) < timedPolicies {
		p.seconds = d.seconds.WithLabelValues(label)
	}
	d.policies[strings.Clone(label)] = p
	return p
}

// Describe is for the registry.
func (d *Decisions) Describe(to chan<- *prometheus.Desc) {
	d.total.Describe(to)
	d.seconds.Describe(to)
}

// Collect is for the registry.
func (d *Decisions) Collect(to chan<- prometheus.Metric) {
	d.total.Collect(to)
	d.seconds.Collect(to)
}

// PolicyDecisions counts the decisions of one policy. Its methods may be called concurrently. A
// nil *PolicyDecisions counts nothing.
type PolicyDecisions struct {
	all     *Decisions // set by Policy
	label   string     // set by Policy
	seconds prometheus.Observer

	// counters caches counters, so that Observe needs no lookup of labels. Each is nil until
	// its first use, which sets it under all.mu: to a counter of its own, or to the one with
	// reason other. It does not change after that.
	counters [outcomes][reasons + 1][backends + 1]atomic.Pointer[prometheus.Counter]

	own int // number of own series in use; guarded by all.mu
}

// Observe counts a decision and how long it took; a negative time means that it was not timed.
// shadow says that a denial is not enforced.
func (p *PolicyDecisions) Observe(backend Backend, dec weir.Decision, shadow bool, took time.Duration) {
	if p == nil {
		return
	}
	p.counter(outcome(dec.Allowed, shadow), min(int(dec.Reason), reasons), min(int(backend), backends)).Inc()
	if took >= 0 {
		p.seconds.Observe(took.Seconds())
	}
}

// ObserveMany counts n equal decisions that were not timed.
func (p *PolicyDecisions) ObserveMany(backend Backend, dec weir.Decision, shadow bool, n int) {
	if p == nil {
		return
	}
	p.counter(outcome(dec.Allowed, shadow), min(int(dec.Reason), reasons), min(int(backend), backends)).Add(float64(n))
}

func outcome(ok, shadow bool) int {
	switch {
	case ok:
		return allowed
	case shadow:
		return shadowDenied
	}
	return denied
}

func (p *PolicyDecisions) counter(outcome, reason, backend int) prometheus.Counter {
	if c := p.counters[outcome][reason][backend].Load(); c != nil {
		return *c
	}
	return p.firstOf(outcome, reason, backend)
}

// firstOf returns the counter of a combination at its first use.
func (p *PolicyDecisions) firstOf(outcome, reason, backend int) prometheus.Counter {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	at := &p.counters[outcome][reason][backend]
	if c := at.Load(); c != nil { // another goroutine was faster
		return *c
	}
	if reason == reasons || backend == backends || !p.roomLocked() {
		reason, backend = reasons, backends
	}
	c := p.all.total.WithLabelValues(p.label, outcomeNames[outcome], reasonName(reason), Backend(backend).String())
	at.Store(&c)
	return c
}

// roomLocked allocates a series: one of the policy's own, or a shared one. It requires p.all.mu.
func (p *PolicyDecisions) roomLocked() bool {
	switch {
	case p.own < ownSeries:
		p.own++
	case p.all.shared > 0:
		p.all.shared--
	default:
		return false
	}
	return true
}

func reasonName(reason int) string {
	if reason >= reasons {
		return other
	}
	return weir.Reason(reason).String()
}

// clean converts a name to a label value: printable text of bounded length.
func clean(name string) string {
	name = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, name)
	if len(name) <= maxLabel {
		return name
	}
	end := maxLabel
	for !utf8.RuneStart(name[end]) {
		end--
	}
	return name[:end]
}
