package config

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/ruleset"
)

// budgetsSketch is the section from which the form of the file was designed.
const budgetsSketch = `
budgets:
  alchemy-main:
    preset: alchemy-free        # rate, bucket and costs from the shipped tables; any field can be overridden
    limits: [{name: month, rate: 30000000, per: month}]
    classes:
      realtime: {guaranteed: 60%}
      backfill: {guaranteed: 40%}
    thresholds: {warning: 80%, pause: 90%, resume: 75%}
    on_error: local
`

func TestBudgets(t *testing.T) {
	c, err := Parse("weir.yaml", []byte(budgetsSketch), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Live().Validate(); err != nil {
		t.Fatal(err)
	}
	p, err := c.Live().Budgets[0].Policy()
	if err != nil || p.Name != "alchemy-main" || len(c.Warnings) > 0 {
		t.Fatal(p.Name, err, c.Warnings)
	}
	month := p.Limits[len(p.Limits)-1]
	if len(p.Limits) != 3 || month.Name != "month" || month.Unit != "cu" || month.Rate != 30_000_000 || month.OnError != weir.FailLocal {
		t.Errorf("limits: %+v", p.Limits)
	}
	if got := p.Limits[0].Classes.List(); len(got) != 2 || got[0].Name != "realtime" || got[0].Guaranteed != 291 || got[1].Guaranteed != 194 {
		t.Errorf("classes: %v", got)
	}
}

// What the file says is what package budget gets.
func TestBudgetsOfAFile(t *testing.T) {
	c := parseGood(t, "budgets.yaml")
	list := c.Live().Budgets
	if err := c.Live().Validate(); err != nil || len(list) != 3 || len(c.Warnings) > 0 {
		t.Fatal(len(list), err, c.Warnings)
	}
	main, infra, calls := list[0], list[1], list[2]
	wantClasses := []budget.Class{{Name: "realtime", Share: 62.5}, {Name: "reports", Guaranteed: 100, Burst: 300, NoBorrow: true}, {Name: "backfill"}}
	if main.Name != "alchemy-main" || main.Preset != "alchemy-free" || !slices.Equal(main.Classes, wantClasses) || !slices.Equal(main.Pace, []string{"reports", "backfill"}) || main.OnError != weir.FailClosed {
		t.Errorf("%+v", main)
	}
	if l := main.Limits; len(l) != 2 || l[0].Name != "month" || l[0].Per.String() != "month in Europe/Berlin" || l[1].Mode != ruleset.Shadow {
		t.Errorf("limits: %+v", l)
	}
	if th := main.Thresholds; *th.Warning != 70 || *th.Pause != 85 || *th.Critical != budget.Off || *th.Resume != 60 {
		t.Errorf("thresholds: %d %d %d %d", *th.Warning, *th.Pause, *th.Critical, *th.Resume)
	}
	for method, want := range map[string]budget.Amounts{
		"eth_getLogs": {"cu": 75, "throughput": 60}, "eth_newThing": {"cu": 20, "throughput": 30}, "eth_call": {"cu": 26, "throughput": 26},
	} {
		if got, err := main.Costs.Cost(method); err != nil || !maps.Equal(got, want) {
			t.Errorf("%s costs %v, %v; want %v", method, got, err, want)
		}
	}
	if _, err := main.Costs.Cost("eth_madeUp"); err == nil {
		t.Error("an unknown method has a cost")
	}
	if got, err := infra.Costs.Batch([]string{"eth_call", "eth_madeUp"}); err != nil || got["credits"] != 80+100+5 {
		t.Errorf("a batch costs %v, %v", got, err)
	}
	if infra.Classes == nil || len(infra.Classes) > 0 || calls.Classes != nil || infra.Thresholds.Resume != nil {
		t.Errorf("no classes: %v; those of the default: %v", infra.Classes, calls.Classes)
	}
	if l := infra.Limits; len(l) != 3 || l[2].Name != "prepaid-credits" || l[2].Rate != 5_000_000_000 {
		t.Errorf("limits: %+v", l)
	}
	if _, watched := c.loaded["dir/costs/infra.json"]; !watched {
		t.Errorf("a change of the table would not be noticed: %v", slices.Collect(maps.Keys(c.loaded)))
	}
}

// A client may be granted a budget, as a policy.
func TestBudgetsOfClients(t *testing.T) {
	clients := func(names string) string {
		return budgetsSketch + "clients: {sync: {token: " + strings.Repeat("t", 32) + ", policies: " + names + "}}\n"
	}
	if _, err := Parse("weir.yaml", []byte(clients("[alchemy-main, default]")), nil, nil); err != nil {
		t.Error(err)
	}
	if _, err := Parse("weir.yaml", []byte(clients("[alchemy-*]")), nil, nil); err != nil {
		t.Error(err)
	}
	if _, err := Parse("weir.yaml", []byte(clients("[alchemy-mian]")), nil, nil); err == nil || !strings.Contains(err.Error(), "did you mean alchemy-main?") {
		t.Error(err)
	}
}

// There is a maximum, as in package server.
func TestManyBudgets(t *testing.T) {
	var text strings.Builder
	text.WriteString("budgets:\n")
	for i := range 101 {
		text.WriteString("  b" + strings.Repeat("x", i%50) + string(rune('a'+i/50)) + ": {limits: [{rate: 1, per: 1s}], classes: {}}\n")
	}
	if _, err := Parse("weir.yaml", []byte(text.String()), nil, nil); err == nil || !strings.Contains(err.Error(), "there are 101: at most 100 fit") {
		t.Error(err)
	}
}

// Classes of which all are commented out are those of the default.
func TestBudgetsWithoutClasses(t *testing.T) {
	for text, want := range map[string]int{"classes:\n    #  a: {guaranteed: 60%}": 2, "classes: {}": 0, "pace: []": 2} {
		c, err := Parse("weir.yaml", []byte("budgets:\n  main:\n    limits: [{rate: 10, per: 1s}]\n    "+text+"\n"), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.Live().Budgets[0].Policy()
		if err != nil || len(p.Limits[0].Classes.List()) != want {
			t.Errorf("%s: %v, %v", text, p.Limits, err)
		}
	}
}

// Variables reach into a budget.
func TestBudgetsInTheEnvironment(t *testing.T) {
	environ := []string{
		"WEIR__BUDGETS__ALCHEMY_MAIN__THRESHOLDS__PAUSE=85%", "WEIR__BUDGETS__ALCHEMY_MAIN__CLASSES__BACKFILL__GUARANTEED=100",
		"WEIR__BUDGETS__ALCHEMY_MAIN__COSTS={methods: {eth_call: {cu: 1}}, unknown: refuse}",
	}
	c, err := Parse("weir.yaml", []byte(budgetsSketch), environ, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := c.Live().Budgets[0]
	if *b.Thresholds.Pause != 85 || b.Classes[1].Guaranteed != 100 {
		t.Errorf("%+v", b)
	}
	if cost, err := b.Costs.Cost("eth_call"); err != nil || cost["cu"] != 1 || cost["throughput"] != 26 {
		t.Error(cost, err)
	}
}
