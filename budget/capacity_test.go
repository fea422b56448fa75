package budget

import (
	"bytes"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// TestWarnTooCostly: costs that can never be admitted are warned of when the account is configured (F1.3). What the
// preset does not admit as it comes is no warning.
func TestWarnTooCostly(t *testing.T) {
	preset := Config{Preset: "alchemy-free"}
	with := func(c Config, change func(*Config)) Config { change(&c); return c }
	limit := func(l ruleset.Limit) func(*Config) { return func(c *Config) { c.Limits = append(c.Limits, l) } }
	costs := func(o Overrides) func(*Config) {
		return func(c *Config) { c.Costs = weir.Must(builtin(t, "alchemy").With(o)) }
	}
	traces := "DEBUG main backfill 500 alchemy_simulateAssetChanges, alchemy_simulateExecution, alchemy_simulateUserOperationAssetChanges, arbtrace_replayBlockTransactions, arbtrace_replayTransaction, …"
	for _, tt := range []struct {
		what   string
		config Config
		lines  []string
	}{
		{"the preset", preset, []string{traces}},
		{"variables", weir.Must(FromEnv(nil)), []string{"WARN main backfill 200 eth_sendRawTransaction, alchemy_getTransactionReceipts, alchemy_simulateAssetChanges, alchemy_simulateExecution, alchemy_simulateUserOperationAssetChanges, …"}},
		{"another limit in which all fit", with(preset, limit(ruleset.Limit{Unit: "cu", Limit: weir.Limit{Name: "day", Rate: 1_000_000, Per: weir.Calendar(weir.Day, time.UTC)}})), []string{traces}},
		{"another limit", with(preset, limit(ruleset.Limit{Unit: "throughput", Limit: weir.Limit{Name: "strict", Rate: 2999, Per: weir.Every(time.Minute)}})), []string{
			traces, "WARN strict 2999 arbtrace_replayBlockTransactions, arbtrace_replayTransaction, getLargestAccounts, trace_callMany, trace_replayBlockTransactions, …",
		}},
		{"a smaller burst", with(preset, limit(ruleset.Limit{Limit: weir.Limit{Rate: 485, Per: weir.Every(time.Second), Burst: 700}})), []string{
			"WARN main backfill 280 eth_getBlockReceipts, getValidityProof, getValidityProofV2", strings.Replace(traces, "500", "280", 1),
		}},
		{"other classes", with(preset, func(c *Config) { c.Classes = []Class{{Name: "realtime", Share: 80}, {Name: "backfill", Share: 20}} }), []string{
			"WARN main backfill 250 eth_getBlockReceipts, getValidityProof, getValidityProofV2", strings.Replace(traces, "500", "250", 1),
		}},
		{"no classes", with(preset, func(c *Config) { c.Classes = []Class{} }), []string{
			"DEBUG main 1250 alchemy_simulateAssetChanges, alchemy_simulateExecution, alchemy_simulateUserOperationAssetChanges, arbtrace_replayBlockTransactions, arbtrace_replayTransaction, …",
		}},
		{"a cost that fits", with(preset, costs(Overrides{Methods: map[string]Amounts{"eth_getLogs": {"throughput": 500}}})), []string{traces}},
		{"a cost", with(preset, costs(Overrides{Methods: map[string]Amounts{"eth_getLogs": {"throughput": 501}}})), []string{"WARN main backfill 500 eth_getLogs", traces}},
		{"another cost of a trace", with(preset, costs(Overrides{Methods: map[string]Amounts{"trace_callMany": {"throughput": 2000}}})), []string{"WARN main backfill 500 trace_callMany", traces}},
		{"the cost of the unknown", with(preset, costs(Overrides{Unknown: &Unknown{Default: Amounts{"cu": 20, "throughput": 600}}})), []string{"WARN main backfill 500 *", traces}},
	} {
		var log bytes.Buffer
		tt.config.Name, tt.config.Logger = "main", slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		newAccount(t, tt.config)
		if got := tooCostlyLines(log.String()); !slices.Equal(got, tt.lines) {
			t.Errorf("%s:\n%s\nwant\n%s", tt.what, strings.Join(got, "\n"), strings.Join(tt.lines, "\n"))
		}
	}
}

// tooCostlyLines returns of each line of a log the level, the limit, the class unless there is none, the most, and the methods.
func tooCostlyLines(log string) (list []string) {
	line := regexp.MustCompile(`level=(\w+) msg="budget: some methods cost more than the (\w+) can .* limit=(\w+) class=(\S+) at_most=(\d+) methods=(.*)`)
	for text := range strings.Lines(log) {
		m := line.FindStringSubmatch(strings.TrimSpace(text))
		switch {
		case m == nil:
			list = append(list, text)
		case m[2] == "class":
			list = append(list, strings.Join([]string{m[1], m[3], m[4], m[5], strings.Trim(m[6], `"`)}, " "))
		default:
			list = append(list, strings.Join([]string{m[1], m[3], m[5], strings.Trim(m[6], `"`)}, " "))
		}
	}
	return list
}

// What a configuration has changed is logged, and not what was so before.
func TestWarnTooCostlyOnce(t *testing.T) {
	var log bytes.Buffer
	config := func(rate int) Config {
		c, err := FromEnv([]string{fmt.Sprint("ALCHEMY_CU_PER_SECOND=", rate)})
		if err != nil {
			t.Fatal(err)
		}
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		return c
	}
	a := newAccount(t, config(500))
	for _, tt := range []struct{ rate, lines int }{{500, 0}, {500, 0}, {400, 1}, {400, 0}, {500, 1}, {50_000, 0}, {500, 1}} {
		log.Reset()
		if err := a.Replace(config(tt.rate)); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "more than the class can ever take"); n != tt.lines {
			t.Errorf("rate %d: %d lines, want %d: %s", tt.rate, n, tt.lines, log.String())
		}
	}
}
