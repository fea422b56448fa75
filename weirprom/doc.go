// Package weirprom tells Prometheus what weir does.
//
//	decisions := weirprom.NewDecisions(weirprom.Options{})
//	registry.MustRegister(decisions, weirprom.NewMemstore(table.Stats))
//
//	login := decisions.Policy("login") // once
//	login.Observe(weirprom.Memory, decision, false, took)
//
// Everything here is a [prometheus.Collector]; serve the registry with promhttp. Only
// /metrics reads the figures of [NewMemstore], [NewThrottle] and [NewTier], so they cost
// nothing between scrapes. An Observe is one counter and one histogram, 100 ns and no memory.
//
// # What is never a label
//
// Keys, addresses, paths and anything else that a caller chooses. Labels are the names of
// policies, which the configuration chooses, and words from closed sets. A [Decisions]
// never has more than 1,800 series, whatever is observed, and all of weir with the
// collectors of the Go runtime and the process stays below 2,000. Who is limited most is a
// question for the dashboard, which has a list of bounded length.
//
// # Decisions
//
//	weir_decisions_total{policy, decision, reason, backend}
//	weir_decision_seconds{policy}
//
// decision is allowed, denied or shadow_denied, the last for refusals of a policy that is
// only being tried and refuses nobody. reason is the name of a [weir.Reason]. backend is who
// decided, a [Backend].
//
// Where there are too many policies or combinations, the rest is counted under other, and
// nothing is lost: policies beyond the first 200 share policy="other", rare combinations
// of a policy share reason="other", backend="other" and keep their policy and decision,
// and policies beyond the first 49 share their times. So sums over reason and backend are
// right for each of 200 policies. Names stay taken until the process ends; a policy that
// is renamed takes another.
//
// weir_decision_seconds is a native histogram with an error below 5 percent. Servers that
// do not scrape those get buckets of 100 µs, 1 ms, 10 ms and 100 ms.
//
// # What to alert on
//
// Wake somebody when callers are hurt or limits do not hold (at the right, for how long it
// should last before):
//
//	# The store is away, and some part of the keys is decided without it.
//	weir_store_open > 0                                              for 1m
//
//	# Callers are refused although they have done nothing wrong.
//	rate(weir_decisions_total{reason="store_down",decision="denied"}[5m]) > 0   for 2m
//
//	# Decisions are slow: one in a hundred takes more than 10 ms.
//	histogram_quantile(0.99, sum(rate(weir_decision_seconds[5m]))) > 0.01       for 5m
//
//	# It was told to forget: more units were let through than the limits allow.
//	increase(weir_forgiven_units_total[10m]) > 0
//
// weir_forgiven_units_total is one number with three causes. cause="eviction" means that the
// table was full of keys that were all in use: give it more keys, see weir_keys and
// weir_table_bytes. cause="cl_throttle_eviction" means the same of the table of CL.THROTTLE,
// whose size is fixed: see weir_cl_throttle_keys, and count in Redis. cause="outage" means
// that a node granted units while the store was away, and had no room to remember for whom.
//
// Look at these in the morning:
//
//	# The file on disk is not what runs.
//	weir_config_last_reload_successful == 0                          for 5m
//
//	# The table, or that of CL.THROTTLE, is so full that new keys share one strict row.
//	rate(weir_overflow_hits_total[10m]) > 0
//	rate(weir_cl_throttle_overflow_hits_total[10m]) > 0
//
//	# Charges whose outcome nobody knows. Some callers may have been charged for nothing.
//	rate(weir_store_unknown_total[10m]) > 1
//
//	# Units were charged to this node and used by nobody, or reported without an answer.
//	increase(weir_leases_forfeited_total[1h]) > 0
//	increase(weir_lost_units_total[1h]) > 0
//
//	# The store is owed more and more: it takes less than is decided.
//	deriv(weir_owed_units[10m]) > 0                                  for 15m
//
//	# Nodes cannot hear each other, so each share is computed for too few.
//	min(weir_nodes) < count(weir_nodes)                              for 5m
//
// Do not alert on denials as such: refusing is the job. A policy that denies far more than
// it did last week is worth a look, and so is one in shadow before it is made to bite:
//
//	sum by (policy) (rate(weir_decisions_total{decision="shadow_denied"}[1h]))
//	  / sum by (policy) (rate(weir_decisions_total[1h])) > 0.01
//
// # Limits
//
// Stats are read figure by figure while decisions go on, so figures of one scrape may
// differ by what was under way. A process has one of each collector: two tables cannot be
// registered in the same registry. Traces are the business of another package.
package weirprom
