package guard

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// Stats are counts of a Guard in this process since its start, for metrics.
type Stats struct {
	Endpoints     []EndpointStats // those with limits, and the stage before authentication; by name
	InFlight      int64           // requests that are being handled
	Subjects      int64           // rows of subjects that this process keeps: see Config.MaxSubjects
	Violations    map[Kind]int64  // those in shadow not counted
	Shadowed      map[Kind]int64  // violations in shadow
	Refused       map[Cause]int64 // requests, but for those that a limit refused
	Exempted      int64           // requests that an exemption admitted
	Unsettled     int64           // requests that count in full because the store could not be reached at their end
	Subscriptions SubscriptionStats
}

// EndpointStats are counts of an endpoint.
type EndpointStats struct {
	Name      string
	Allowed   int64
	Denied    int64
	Shadowed  int64 // allowed, and would have been denied by a limit in shadow
	Penalized int64 // denied while a penalty was in force
}

// SubscriptionStats are counts of subscriptions in this process.
type SubscriptionStats struct {
	Open    int64
	Items   int64
	Refused SubscriptionRefusals
}

func (s subscriptionStats) public() SubscriptionStats {
	return SubscriptionStats{Open: s.open, Items: s.items, Refused: s.refused}
}

// SubscriptionRefusals are refusals by reason.
type SubscriptionRefusals struct {
	TooMany      int64 // Subscriptions.PerSubject
	TooManyItems int64 // ItemsEach and ItemsTotal
	TooFast      int64 // Create and Modify
}

// counters are what Stats returns.
type counters struct {
	violations [kinds][2]atomic.Int64 // enforced and shadow
	refused    [causes]atomic.Int64
	exempted   atomic.Int64
	unsettled  atomic.Int64
	decayed    atomic.Int64 // when the sketch of offenders was

	// endpoints has the counters by name, of all configurations since the start.
	endpoints sync.Map // string -> *endpointCounters
}

// endpointCounters are counters of an endpoint. A request adds to one of the first three.
type endpointCounters struct{ allowed, denied, shadowed, penalized atomic.Int64 }

// name makes the counters of rules, so that they are exported before the first request, and drops those
// of endpoints that are gone.
func (c *counters) name(r *Rules) {
	known := map[string]bool{perIPName: r.perIP != nil}
	for _, e := range r.all() {
		known[e.name] = e.rule != nil
	}
	for name := range c.endpoints.Range {
		if !known[name.(string)] {
			c.endpoints.Delete(name)
		}
	}
	for name, limited := range known {
		if limited {
			c.of(name)
		}
	}
}

func (c *counters) of(name string) *endpointCounters {
	if known, ok := c.endpoints.Load(name); ok {
		return known.(*endpointCounters)
	}
	known, _ := c.endpoints.LoadOrStore(name, new(endpointCounters))
	return known.(*endpointCounters)
}

// decided counts the decision of a limit.
func (c *counters) decided(v *Verdict) {
	e := c.of(v.Endpoint)
	switch {
	case !v.Allowed:
		e.denied.Add(1)
		if v.Penalized {
			e.penalized.Add(1)
		}
	case v.Shadow >= 0:
		e.shadowed.Add(1)
	default:
		e.allowed.Add(1)
	}
}

func (c *counters) violated(v Violation) { c.violations[v.Kind][scoreOf(v.Shadow)].Add(1) }

// decayEvery is how often the sketch of offenders is decayed.
const decayEvery = int64(time.Minute)

// offend counts a refusal of a subject.
func (g *Guard) offend(subject string) {
	now := int64(weir.Now())
	if last := g.stats.decayed.Load(); now-last > decayEvery && g.stats.decayed.CompareAndSwap(last, now) {
		g.offenders.Decay(now)
	}
	g.offenders.Add(subject, 1)
}

// Stats returns the counts.
func (g *Guard) Stats() Stats {
	c := &g.stats
	out := Stats{
		InFlight: g.inFlight.all.Load(), Subjects: int64(g.local.Stats().Keys),
		Violations: map[Kind]int64{}, Shadowed: map[Kind]int64{}, Refused: map[Cause]int64{},
		Exempted: c.exempted.Load(), Unsettled: c.unsettled.Load(), Subscriptions: g.subs.stats().public(),
	}
	for k := range kinds {
		out.Violations[k], out.Shadowed[k] = c.violations[k][enforced].Load(), c.violations[k][shadow].Load()
	}
	for cause := ByBlock; cause < causes; cause++ {
		out.Refused[cause] = c.refused[cause].Load()
	}
	for name, e := range c.endpoints.Range {
		x := e.(*endpointCounters)
		shadowed := x.shadowed.Load() // once, so that Allowed - Shadowed never falls
		out.Endpoints = append(out.Endpoints, EndpointStats{
			Name: name.(string), Allowed: x.allowed.Load() + shadowed, Denied: x.denied.Load(), Shadowed: shadowed, Penalized: x.penalized.Load(),
		})
	}
	slices.SortFunc(out.Endpoints, func(a, b EndpointStats) int { return strings.Compare(a.Name, b.Name) })
	return out
}
