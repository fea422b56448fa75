package weirprom_test

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/weirprom"
)

func ExampleNewGuard() {
	table, _ := memstore.New(memstore.Config{MaxKeys: 1000})
	g, _ := guard.New(table, guard.Config{Default: guard.Endpoint{Limits: []ruleset.Limit{{Limit: weir.PerMinute(50)}}}})
	defer g.Close()

	registry := prometheus.NewRegistry()
	registry.MustRegister(weirprom.NewGuard(g.Stats))

	families, _ := registry.Gather()
	for _, f := range families[:3] {
		fmt.Println(f.GetName(), len(f.GetMetric()))
	}
	// Output:
	// weir_guard_decisions_total 3
	// weir_guard_exempted_total 1
	// weir_guard_in_flight 1
}
