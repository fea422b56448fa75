// Package weirprom exports metrics of weir to Prometheus.
//
//	decisions := weirprom.NewDecisions(weirprom.Options{})
//	registry.MustRegister(decisions, weirprom.NewMemstore(table.Stats))
//
//	login := decisions.Policy("login") // once
//	login.Observe(weirprom.Memory, decision, false, took)
//
// Everything here is a [prometheus.Collector]; serve the registry with promhttp. The metrics of
// [NewMemstore], [NewTier], [NewAuthFailures], [NewGuard], [NewBudgets] and [NewUpstreams] are read during a scrape only, so they cost
// nothing in between. Observe updates a counter and a histogram, in about 100 ns and without allocation.
//
// # What is never a label
//
// Keys, addresses, paths and anything else that a caller chooses. Label values are the names of
// policies and endpoints, which the configuration chooses, and values from closed sets. A [Decisions]
// never has more than 1,800 series, whatever is observed, and all of weir but [NewGuard], [NewBudgets] and [NewUpstreams], with the
// collectors of the Go runtime and the process, stays below 2,000. A guard adds 18, and four for each
// endpoint with limits, of which at most 45 have a label of their own. Each budget adds eleven, two for each
// limit, a third for each of a calendar period, and one for each class and each unit. Routes of a gateway add 15 each, and 24 for each of their endpoints, of
// which at most 25 and 40 have labels of their own. The dashboard has a bounded list
// of the most limited keys, and [guard.Guard.Offenders] one of subjects.
//
// # Decisions
//
//	weir_decisions_total{policy, decision, reason, backend}
//	weir_decision_seconds{policy}
//
// decision is allowed, denied or shadow_denied, the last for denials of a policy in shadow mode,
// which are not enforced. reason is the name of a [weir.Reason]. backend is the name of the
// [Backend] that decided.
//
// If there are too many policies or combinations, the rest is counted under other, so that
// nothing is lost: policies beyond the first 200 share policy="other", rare combinations
// of a policy share reason="other", backend="other" and keep their policy and decision,
// and policies beyond the first 49 share a histogram. So sums over reason and backend are
// exact for each of 200 policies. A name occupies its place until the process ends; a policy
// that is renamed occupies another.
//
// weir_decision_seconds is a native histogram with an error below 5 percent. Servers that
// do not scrape those get buckets of 100 µs, 1 ms, 10 ms and 100 ms.
//
// # Guard
//
//	weir_guard_decisions_total{endpoint, decision}
//	weir_guard_penalized_denials_total{endpoint}
//	weir_guard_violations_total{kind, shadow}
//	weir_guard_refused_total{cause}
//
// and more, see docs/operations.md. endpoint is the name of an endpoint's policy, "guard.ip" for the
// limits before authentication, or other. decision is as above, so that the sum over it counts each
// request once. kind is the name of a [guard.Kind], shadow is true or false, and cause is the name of
// a [guard.Cause]. No label says who it was.
//
// # Budgets
//
//	weir_budget_used{budget, limit}
//	weir_budget_limit{budget, limit}
//	weir_budget_projected{budget, limit}
//	weir_budget_available{budget, class}
//	weir_budget_utilisation{budget}
//	weir_budget_level{budget}
//
// and more, see docs/operations.md. A scrape asks the store for the usage, for a second at most. If it does
// not answer, the series that need it are missing, and weir_budget_unreadable is 1.
//
// # Upstreams
//
//	weir_upstream_requests_total{route, upstream, outcome}
//	weir_upstream_up{route, upstream}
//	weir_upstream_seconds{route, upstream}
//	weir_route_limited_total{route}
//	weir_route_queue_seconds{route}
//
// and more, see docs/operations.md. upstream is the alias of an endpoint. outcome is succeeded or the class of a failure:
// rate, quota, denied, overloaded, failed, timeout, or unsent.
//
// # What to alert on
//
// Page somebody when callers are affected or limits do not hold (at the right, how long the
// condition should last before):
//
//	# The store, or a partition of it, is unavailable: its keys are decided by on_error.
//	weir_store_open > 0                                              for 1m
//
//	# Callers are denied because the store is unavailable, not because of their usage.
//	rate(weir_decisions_total{reason="store_down",decision="denied"}[5m]) > 0   for 2m
//
//	# Decisions are slow: one in a hundred takes more than 10 ms.
//	histogram_quantile(0.99, sum(rate(weir_decision_seconds[5m]))) > 0.01       for 5m
//
//	# State was dropped: more units were admitted than the limits allow.
//	increase(weir_forgiven_units_total[10m]) > 0
//
// weir_forgiven_units_total has two causes. cause="eviction" means that the table was full
// of keys that were all in use: raise its maximum of keys, see weir_keys and weir_table_bytes.
// cause="outage" means that a node
// granted units while the store was unavailable, and its table had no room to record them.
//
// Alert on these without paging:
//
//	# The configuration file on disk is not the one in force.
//	weir_config_last_reload_successful == 0                          for 5m
//
//	# The table is so full that new keys share one strict row.
//	rate(weir_overflow_hits_total[10m]) > 0
//
//	# Charges with an unknown outcome. Some callers may have been charged in vain.
//	rate(weir_store_unknown_total[10m]) > 1
//
//	# Somebody sends wrong or no tokens: a stale secret, or a guesser. The log has an address a second.
//	sum by (kind, reason) (rate(weir_auth_failures_total[10m])) > 0.1   for 10m
//
//	# Leased units expired unused, or unsynced units were flushed without a reply.
//	increase(weir_leases_forfeited_total[1h]) > 0
//	increase(weir_lost_units_total[1h]) > 0
//
//	# Unsynced usage grows: the store charges less than nodes grant.
//	deriv(weir_owed_units[10m]) > 0                                  for 15m
//
//	# Nodes do not see each other, so each computes its share for too few nodes.
//	min(weir_nodes) < count(weir_nodes)                              for 5m
//
//	# Requests are counted in full because the store was unavailable when they ended.
//	increase(weir_guard_unsettled_total[10m]) > 0
//
//	# Nine tenths of a month's budget are used.
//	weir_budget_used{limit="month"} / weir_budget_limit > 0.9        for 10m
//
//	# It will be used up before the month ends, if it goes on like since the start of the month. The projection
//	# of the first hours says little.
//	weir_budget_projected{limit="month"} > weir_budget_limit         for 6h
//
//	# A budget is close to its limit: soon work will be paused.
//	min_over_time(weir_budget_level[15m]) >= 1                       for 15m
//
//	# Work that can wait has been paused for long.
//	min_over_time(weir_budget_level[15m]) >= 2                       for 15m
//
//	# The provider does not let the account in.
//	weir_budget_denied == 1                                          for 5m
//
//	# Somebody else uses the account, or the table of costs is out of date.
//	increase(weir_budget_drift_units_total[1h]) > 0
//	increase(weir_budget_unknown_method_calls_total[1h]) > 0
//
//	# A route has no endpoint in use.
//	sum by (route) (weir_upstream_up) == 0                           for 1m
//
//	# The limits of a route's endpoints are too small for what its callers do.
//	rate(weir_route_limited_total[10m]) > 0                          for 10m
//
//	# Subjects are penalized again and again. The admin API lists who is refused most.
//	increase(weir_guard_violations_total{kind="sustained",shadow="false"}[1h]) > 0
//
// Do not alert on denials as such: they are expected. Examine a policy that denies far more than
// it did last week, and one in shadow mode before it is enforced:
//
//	sum by (policy) (rate(weir_decisions_total{decision="shadow_denied"}[1h]))
//	  / sum by (policy) (rate(weir_decisions_total[1h])) > 0.01
//
// # Limits
//
// Counters are read one by one while decisions continue, so the counters of one scrape may be
// slightly inconsistent. A process has one of each collector: two tables cannot be
// registered in the same registry. Traces are not part of this package.
package weirprom
