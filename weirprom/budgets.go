package weirprom

import (
	"context"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/budget"
)

// budgetMetrics is a collector of what is used of budgets.
type budgetMetrics struct {
	usages func(context.Context) []budget.Usage // set by NewBudgets
}

// usagesWithin is how long a scrape waits for the usage of all budgets.
const usagesWithin = time.Second

// NewBudgets returns a collector of what is used of budgets. usages returns the Usage of each account,
// also if it failed: then the series that need the store are missing. It is called for each scrape and
// its context ends after a second. It charges nothing.
//
// A budget has two series for each limit, a third for each that counts a calendar period, one for each class and each
// unit, and eleven others. So the configuration bounds them; there must be no two budgets with the same name.
func NewBudgets(usages func(context.Context) []budget.Usage) prometheus.Collector {
	return &budgetMetrics{usages: usages}
}

var (
	budgetUsed = prometheus.NewDesc("weir_budget_used",
		"Units in use of a limit, by all nodes.", []string{"budget", "limit"}, nil)
	budgetLimit = prometheus.NewDesc("weir_budget_limit",
		"The most that a limit admits at once.", []string{"budget", "limit"}, nil)
	budgetProjected = prometheus.NewDesc("weir_budget_projected",
		"Units that will be used at the end of a calendar period, if it goes on like since its start.", []string{"budget", "limit"}, nil)
	budgetAvailable = prometheus.NewDesc("weir_budget_available",
		"Units that a class can take now, borrowed ones included.", []string{"budget", "class"}, nil)
	budgetUtilisation = prometheus.NewDesc("weir_budget_utilisation",
		"Share of the limit with the shortest period that is used, averaged over a second.", []string{"budget"}, nil)
	budgetLevel = prometheus.NewDesc("weir_budget_level",
		"The level of the utilisation: 0 normal, 1 warning, 2 paused, 3 critical.", []string{"budget"}, nil)
	budgetCooldown = prometheus.NewDesc("weir_budget_cooldown_seconds",
		"How long no charge is admitted, because the provider wants no calls.", []string{"budget"}, nil)
	budgetDrift = prometheus.NewDesc("weir_budget_drift_units_total",
		"Units that the provider has counted and weir had not.", []string{"budget", "unit"}, nil)
	budgetUnknown = prometheus.NewDesc("weir_budget_unknown_method_calls_total",
		"Calls of methods that the table of costs does not list, refused ones included.", []string{"budget"}, nil)
	budgetSoft = prometheus.NewDesc("weir_budget_soft_exceeded_total",
		"Calls that were admitted beyond a soft limit.", []string{"budget"}, nil)
	budgetRefusals = prometheus.NewDesc("weir_budget_refusals_total",
		"Calls that the provider has refused, by the class of the refusal.", []string{"budget", "class"}, nil)
	budgetDenied = prometheus.NewDesc("weir_budget_denied",
		"Whether the provider does not let the account in: its key or its money.", []string{"budget"}, nil)
	budgetUnread = prometheus.NewDesc("weir_budget_unreadable",
		"Whether the store could not be asked, so that the usage is missing.", []string{"budget"}, nil)
)

// Describe is for the registry.
func (b *budgetMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		budgetUsed, budgetLimit, budgetProjected, budgetAvailable, budgetUtilisation, budgetLevel, budgetCooldown, budgetDrift, budgetUnknown, budgetSoft, budgetRefusals, budgetDenied, budgetUnread,
	} {
		to <- d
	}
}

// Collect is for the registry.
func (b *budgetMetrics) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), usagesWithin)
	defer cancel()
	for _, u := range b.usages(ctx) {
		collectBudget(to, &u)
	}
}

func collectBudget(to chan<- prometheus.Metric, u *budget.Usage) {
	name := clean(u.Account)
	counter := func(d *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), append([]string{name}, labels...)...)
	}
	gauge := func(d *prometheus.Desc, n float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, append([]string{name}, labels...)...)
	}
	for _, h := range u.Horizons {
		gauge(budgetUsed, float64(h.Used), clean(h.Limit))
		gauge(budgetLimit, float64(h.Capacity), clean(h.Limit))
		if h.Burn != nil {
			gauge(budgetProjected, float64(h.Burn.Projected), clean(h.Limit))
		}
	}
	for _, c := range u.Classes {
		gauge(budgetAvailable, float64(c.Available), clean(c.Class))
	}
	unread := 1.0
	if len(u.Horizons) > 0 {
		gauge(budgetUtilisation, u.Utilisation)
		unread = 0
	}
	gauge(budgetUnread, unread)
	gauge(budgetLevel, levelNumber(u.Level))
	gauge(budgetCooldown, float64(u.CooldownMs)/1000)
	drift := map[string]int64{}
	maps.Copy(drift, u.Drift)
	for _, h := range u.Horizons { // without drift it is 0, so that its first increase is seen
		if _, ok := drift[h.Unit]; !ok {
			drift[h.Unit] = 0
		}
	}
	for unit, n := range drift {
		counter(budgetDrift, n, clean(unit))
	}
	counter(budgetUnknown, u.UnknownCalls)
	counter(budgetSoft, u.SoftExceeded)
	for class := budget.Overloaded; class <= budget.AccessDenied; class++ {
		counter(budgetRefusals, u.Refusals[class.String()], class.String())
	}
	denied := 0.0
	if u.Denied != nil {
		denied = 1
	}
	gauge(budgetDenied, denied)
}

// levelNumber returns the number of a level's name.
func levelNumber(name string) float64 {
	for l := budget.Normal; l <= budget.Critical; l++ {
		if l.String() == name {
			return float64(l)
		}
	}
	return 0
}
