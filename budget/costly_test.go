package budget

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// TestTooCostly: F1.3, what can never be called is known before anybody waits for it.
func TestTooCostly(t *testing.T) {
	table, err := BuiltinTable("alchemy")
	if err != nil {
		t.Fatal(err)
	}
	throughput := func(l weir.Limit) ruleset.Limit { return ruleset.Limit{Unit: "throughput", Limit: l} }
	second := throughput(weir.Limit{Rate: 500, Per: weir.Every(time.Second)})
	narrow := throughput(weir.Limit{Name: "narrow", Rate: 400, Per: weir.Every(time.Minute), Algorithm: weir.SlidingLog})
	soft := narrow
	soft.Mode = ruleset.Shadow
	dear := map[string]Amounts{"dear": {"cu": 1, "throughput": 450}}
	costs, err := table.With(Overrides{Methods: dear})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		c    Config
		want string
	}{
		{Config{Name: "a", Preset: "alchemy-free"}, "[]"},
		{Config{Name: "a", Limits: []ruleset.Limit{second}, Costs: costs, Classes: []Class{}}, "[]"},
		{Config{Name: "a", Limits: []ruleset.Limit{second, soft}, Costs: costs, Classes: []Class{}}, "[]"},
		{Config{Name: "a", Limits: []ruleset.Limit{second, narrow}, Costs: costs, Classes: []Class{}}, "[{ throughput 400 [dear eth_getBlockReceipts]}]"},
		{Config{Name: "a", Limits: []ruleset.Limit{second}, Costs: costs}, "[{realtime throughput 300 [dear eth_getBlockReceipts]} {backfill throughput 200 [dear eth_getBlockReceipts eth_sendRawTransaction]}]"},
		{Config{Name: "a", Limits: []ruleset.Limit{second}}, "[]"},
		{Config{Name: "a"}, "[]"},
	} {
		got := fmt.Sprint(tt.c.TooCostly("eth_sendRawTransaction", "eth_getBlockReceipts", "eth_call", "dear", "eth_unknown"))
		if got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}
