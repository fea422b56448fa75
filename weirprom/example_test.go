package weirprom_test

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/weirprom"
)

func ExampleNewDecisions() {
	table, _ := memstore.New(memstore.Config{MaxKeys: 1000})
	policy, _ := weir.NewPolicy("login", weir.Limit{Rate: 5, Per: weir.Every(time.Minute)})

	decisions := weirprom.NewDecisions(weirprom.Options{})
	registry := prometheus.NewRegistry()
	registry.MustRegister(decisions, weirprom.NewMemstore(table.Stats))

	login := decisions.Policy("login")

	began := time.Now()
	decision, err := table.Take(context.Background(), policy, "alice", 1)
	if err == nil {
		login.Observe(weirprom.Memory, decision, false, time.Since(began))
	}

	families, _ := registry.Gather()
	for _, f := range families {
		fmt.Println(f.GetName())
	}
	// Output:
	// weir_decision_seconds
	// weir_decisions_total
	// weir_evictions_total
	// weir_forgiven_units_total
	// weir_keys
	// weir_overflow_hits_total
	// weir_reservations
	// weir_table_bytes
}
