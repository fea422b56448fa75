package budget

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/jsonrpc"
	"github.com/weirlimit/weir/ruleset"
)

func TestBuiltinTables(t *testing.T) {
	for _, name := range builtinTables() {
		table := builtin(t, name)
		if got := table.Info(); got.Name != name || got.Source == "" || len(got.Units) == 0 {
			t.Errorf("%s: info %+v", name, got)
		}
	}
	_, err := BuiltinTable("../doc")
	wantError(t, err, `budget: no cost table is called "../doc": use one of alchemy, generic`)
}

func TestAlchemyCosts(t *testing.T) {
	tests := []struct {
		method         string
		cu, throughput int64
	}{
		{"eth_chainId", 0, 0},
		{"net_version", 0, 0},
		{"eth_blockNumber", 10, 10},
		{"eth_getBlockByNumber", 20, 20},
		{"eth_getTransactionReceipt", 20, 20},
		{"eth_call", 26, 26},
		{"eth_getLogs", 60, 60},
		{"eth_sendRawTransaction", 40, 250},
		{"eth_getBlockReceipts", 20, 500},
		{"debug_traceTransaction", 40, 1000},
		{"alchemy_getAssetTransfers", 120, 120},
		{"eth_CALL", 20, 20}, // names are case-sensitive, so this one is unknown
	}
	table := builtin(t, "alchemy")
	for _, tt := range tests {
		got, err := table.Cost(tt.method)
		if err != nil || !maps.Equal(got, Amounts{"cu": tt.cu, "throughput": tt.throughput}) {
			t.Errorf("%s: %v, %v; want %d cu, %d throughput", tt.method, got, err, tt.cu, tt.throughput)
		}
	}
	if n := table.UnknownCalls(); n != 1 {
		t.Errorf("%d unknown calls, want 1", n)
	}
}

func TestGenericCosts(t *testing.T) {
	table := builtin(t, "generic")
	for _, method := range []string{"eth_call", "x", "*"} {
		got, err := table.Cost(method)
		if err != nil || !maps.Equal(got, Amounts{"requests": 1}) {
			t.Errorf("%s: %v, %v", method, got, err)
		}
	}
	if n := table.UnknownCalls(); n != 0 {
		t.Errorf("%d unknown calls of a table that knows all methods", n)
	}
}

// The table of most tests. Its vendor charges the batch too and does not count failures.
const testTable = `{
	"name": "test", "version": 2, "date": "2026-01-31", "source": "a page",
	"units": {"b": "second", "a": "first"},
	"batch": {"sum_plus": {"a": 5, "b": 0}},
	"failed_requests": "free",
	"unknown": "refuse",
	"methods": {"m": {"a": 1, "b": 10}, "free": {"a": 0, "b": 0}}
}`

func TestParseTable(t *testing.T) {
	info := parse(t, testTable).Info()
	want := TableInfo{"test", 2, "2026-01-31", "a page", []UnitInfo{{"a", "first"}, {"b", "second"}}}
	if fmt.Sprint(info) != fmt.Sprint(want) {
		t.Errorf("got %+v, want %+v", info, want)
	}
}

func TestParseTableRefuses(t *testing.T) {
	tests := []struct{ name, old, new, want string }{
		{"no JSON", `{`, `x`, "budget: cost table: at byte 0: invalid character 'x' looking for beginning of value"},
		{"cut off", testTable, `{"name":`, "budget: cost table: at byte 8: unexpected EOF"},
		{"cut off after a value", testTable, `{"name":"x"`, "budget: cost table: at byte 11: unexpected EOF"},
		{"an array", testTable, `[]`, "budget: cost table: must be a JSON object"},
		{"two objects", testTable, testTable + "{}", "nothing may follow the object"},
		{"deep", `"a page"`, `[[[[[[[[[1]]]]]]]]]`, "more than 8 objects and arrays inside each other"},
		{"large", testTable, strings.Repeat(" ", 1<<20+1), "budget: a cost table has at most 1048576 bytes, not 1048577"},
		{"an unknown field", `"version"`, `"x": 1, "version"`, "budget: x: unknown field: a table has name, version, date, source, units, batch, failed_requests, unknown, methods"},
		{"another case", `"version"`, `"Version"`, "budget: Version: unknown field"},
		{"a field twice", `"version"`, `"name": "x", "version"`, `"name" is there twice`},
		{"a method twice", `"free": {`, `"m": {`, `"m" is there twice`},
		{"a unit twice", `"a": 1`, `"a": 1, "a": 1`, `"a" is there twice`},
		{"no name", `"test"`, `""`, "budget: name: must be a text that is not empty"},
		{"no source", `"a page"`, `1`, "budget: source: must be a text that is not empty"},
		{"no date", `"2026-01-31"`, `"2026-02-31"`, `budget: date: must be a date such as "2026-11-18"`},
		{"version 0", `"version": 2`, `"version": 0`, "budget: version: must be a whole number from 1 to 1000000"},
		{"version 1.5", `"version": 2`, `"version": 1.5`, "budget: version: must be a whole number from 1 to 1000000"},
		{"no units", `{"b": "second", "a": "first"}`, `{}`, "budget: units: must be an object with 1 to 16 units and their descriptions"},
		{"a unit's name", `"b": "second"`, `"b": "second", "B": "third"`, "budget: units.B: the name of a unit has 1 to 64 of a-z 0-9 . _ -"},
		{"no description", `"second"`, `null`, "budget: units.b: must be a text that is not empty"},
		{"batch", `{"sum_plus": {"a": 5, "b": 0}}`, `"max"`, `budget: batch: must be "sum", or {"sum_plus": amounts} if the batch itself costs too`},
		{"batch without a unit", `{"a": 5, "b": 0}`, `{"a": 5}`, "budget: batch.sum_plus.b: is missing: write 0 if it costs nothing"},
		{"failed requests", `"free",`, `true,`, `budget: failed_requests: must be "counted" or "free"`},
		{"unknown", `"refuse"`, `20`, `budget: unknown: must be "refuse" or the amounts that methods cost which are not listed`},
		{"no unknown", `"unknown": "refuse",`, ``, `budget: unknown: must be "refuse" or the amounts`},
		{"unknown without a unit", `"refuse"`, `{"a": 1}`, "budget: unknown.b: is missing"},
		{"unknown and all", `"m":`, `"*": {"a": 1, "b": 1}, "m":`, `budget: unknown: "methods" has a cost for "*", so no method is unknown: leave out one of the two`},
		{"no methods", `{"m": {"a": 1, "b": 10}, "free": {"a": 0, "b": 0}}`, `[]`, "budget: methods: must be an object with the costs of each method"},
		{"a method without a name", `"m":`, `"":`, `budget: methods."": the name of a method has 1 to 256 bytes`},
		{"a method without a unit", `"b": 10`, `"c": 10`, "budget: methods.m.b: is missing: write 0 if it costs nothing\nbudget: methods.m.c: unknown unit: the table has a, b"},
		{"a number as amounts", `{"a": 1, "b": 10}`, `20`, "budget: methods.m: must be an object with the amount of each unit"},
		{"a negative amount", `"a": 1,`, `"a": -1,`, "budget: methods.m.a -1: must not be negative"},
		{"a fraction", `"a": 1,`, `"a": 0.04,`, "budget: methods.m.a: must be a whole number"},
		{"a large amount", `"a": 1,`, `"a": 2147483648,`, "budget: methods.m.a 2147483648: must be at most 2147483647, the greatest cost of one charge"},
		{"a large amount of a batch", `"a": 5,`, `"a": 2147483648,`, "budget: batch.sum_plus.a 2147483648: must be at most 2147483647, the greatest cost of one charge"},
		{"an amount out of range", `"a": 1,`, `"a": 9223372036854775808,`, "budget: methods.m.a: must be a whole number"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(testTable, tt.old, tt.new, 1)
			if text == testTable {
				t.Fatal("nothing was replaced")
			}
			_, err := ParseTable([]byte(text))
			wantError(t, err, tt.want)
		})
	}
}

func TestParseTableBoundsProblems(t *testing.T) {
	var methods []string
	for i := range 100 {
		methods = append(methods, fmt.Sprintf(`"m%d": {"a": 1}`, i))
	}
	_, err := ParseTable([]byte(strings.Replace(testTable, `"m":`, strings.Join(methods, ",")+`,"m":`, 1)))
	if err == nil || strings.Count(err.Error(), "\n") != maxProblems-1 {
		t.Errorf("got %v", err)
	}
}

func TestCostIsACopy(t *testing.T) {
	table := builtin(t, "alchemy")
	for range 2 {
		for _, method := range []string{"eth_call", "no_such_method"} {
			cost, _ := table.Cost(method)
			if cost["cu"] == 0 {
				t.Fatalf("%s: the table was changed from outside", method)
			}
			cost["cu"] = 0
		}
		info := table.Info()
		if info.Units[0].Name != "cu" {
			t.Fatal("the units were changed from outside")
		}
		info.Units[0].Name = ""
	}
}

func TestUnknownRefused(t *testing.T) {
	table := parse(t, testTable)
	got, err := table.Cost("other")
	if !errors.Is(err, ErrUnknownMethod) || got != nil {
		t.Errorf("got %v, %v", got, err)
	}
	wantError(t, err, `budget: unknown method "other": add its cost to table "test" or give the table a default`)
	if n := table.UnknownCalls(); n != 1 {
		t.Errorf("%d unknown calls, want 1", n)
	}
}

func TestUnknownIsCounted(t *testing.T) {
	table := builtin(t, "alchemy")
	for i := range 150 {
		for range 2 {
			table.Cost(fmt.Sprint("m", i))
		}
	}
	names := table.UnknownMethods()
	if n := table.UnknownCalls(); n != 300 || len(names) != 100 || names["m0"] != 2 || names["m99"] != 2 {
		t.Errorf("%d calls, %d names, %v", n, len(names), names)
	}
	names["m0"] = 7
	if table.UnknownMethods()["m0"] != 2 {
		t.Error("the counters were changed from outside")
	}
}

// unknownLine is the warning of a method that a table does not list.
func unknownLine(method, table string, refused bool) string {
	return fmt.Sprintf(`level=WARN msg="budget: the table of costs does not list a method" account=main method=%s table=%s refused=%v`, method, table, refused)
}

// TestUnknownIsLogged: an account warns of each unknown method once, whether it has a default or is refused (F1.4).
func TestUnknownIsLogged(t *testing.T) {
	var log testLog
	config := testAccount(t)
	config.Logger = log.logger()
	refusing := controller(t, newAccount(t, config), "")
	for _, cost := range []Cost{Method("m"), Method("other"), Method("other"), Batch("m", "other")} {
		_, _ = refusing.Try(t.Context(), cost)
	}
	if got, want := log.lines(), []string{unknownLine("other", "test", true)}; !slices.Equal(got, want) {
		t.Errorf("refused: logged %q, want %q", got, want)
	}

	config = hourlyUnits(t)
	config.Logger = log.logger()
	c := controller(t, newAccount(t, config), "")
	charge(t, c, "eth_madeUp", "eth_call", "eth_madeUp", "a\nb")
	charge(t, c, "eth_madeUp")
	want := []string{unknownLine("eth_madeUp", "alchemy", false), unknownLine(`"a\nb"`, "alchemy", false)}
	if got := log.lines(); !slices.Equal(got, want) {
		t.Errorf("the default: logged %q, want %q", got, want)
	}
	for i := range 150 {
		charge(t, c, fmt.Sprint("m", i))
	}
	if n := len(log.lines()); n != maxUnknownMethods-2 {
		t.Errorf("150 more names are %d lines", n)
	}
}

// hourlyUnits is an account of a million compute units per hour.
func hourlyUnits(t *testing.T) Config {
	return Config{Name: "main", Classes: []Class{}, Costs: builtin(t, "alchemy"), Limits: []ruleset.Limit{
		{Unit: "cu", Limit: weir.Limit{Rate: 1_000_000, Per: weir.Every(time.Hour)}},
	}}
}

// charge charges a batch, which must be admitted.
func charge(t *testing.T, c *Controller, methods ...string) {
	t.Helper()
	if d, err := c.Try(t.Context(), Batch(methods...)); err != nil || !d.Allowed {
		t.Fatalf("%q: %v, %v", methods, d, err)
	}
}

// TestUnknownIsLoggedOnce: a method that was logged before a reload is not logged again.
func TestUnknownIsLoggedOnce(t *testing.T) {
	var log testLog
	config := hourlyUnits(t)
	config.Logger = log.logger()
	a := newAccount(t, config)
	c := controller(t, a, "")
	charge(t, c, "eth_madeUp")
	config.Costs = builtin(t, "alchemy")
	if err := a.Replace(config); err != nil {
		t.Fatal(err)
	}
	charge(t, c, "eth_madeUp")
	charge(t, c, "eth_another")
	want := []string{unknownLine("eth_madeUp", "alchemy", false), unknownLine("eth_another", "alchemy", false)}
	if got := log.lines(); !slices.Equal(got, want) {
		t.Errorf("logged %q, want %q", got, want)
	}
}

// TestUnknownIsBoundedAfterReloads: names that a table has from those that it replaces count to its bound.
func TestUnknownIsBoundedAfterReloads(t *testing.T) {
	next := builtin(t, "alchemy")
	for _, prefix := range []string{"a", "b"} {
		old := builtin(t, "alchemy")
		for i := range 80 {
			old.Cost(fmt.Sprint(prefix, i))
		}
		next.keepCounts(old)
	}
	for i := range 10 {
		next.Cost(fmt.Sprint("c", i))
	}
	if n := len(next.UnknownMethods()); n != maxUnknownMethods {
		t.Errorf("%d names are remembered", n)
	}
}

func TestUnknownNamesAreCut(t *testing.T) {
	table := builtin(t, "alchemy")
	table.Cost(strings.Repeat("x", 1000))
	table.Cost("\xff")
	for name := range table.UnknownMethods() {
		if name != strings.Repeat("x", 100) && name != "�" {
			t.Errorf("name %q", name)
		}
	}
}

func TestUnknownConcurrently(t *testing.T) {
	table := builtin(t, "alchemy")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 200 {
				table.Cost(fmt.Sprint(i % 120))
				table.UnknownMethods()
			}
		})
	}
	wg.Wait()
	if n := table.UnknownCalls(); n != 1600 {
		t.Errorf("%d calls, want 1600", n)
	}
}

func TestBatch(t *testing.T) {
	plus := parse(t, testTable)
	sum := builtin(t, "alchemy")
	tests := []struct {
		name    string
		table   *Table
		methods []string
		want    Amounts
	}{
		{"sum", sum, []string{"eth_blockNumber", "eth_getLogs", "eth_getLogs"}, Amounts{"cu": 130, "throughput": 130}},
		{"sum of two units", sum, []string{"eth_sendRawTransaction", "eth_getBlockReceipts"}, Amounts{"cu": 60, "throughput": 750}},
		{"sum of nothing", sum, []string{"eth_chainId"}, Amounts{"cu": 0, "throughput": 0}},
		{"sum with an unknown one", sum, []string{"eth_chainId", "other"}, Amounts{"cu": 20, "throughput": 20}},
		{"the batch itself", plus, []string{"m", "free", "m"}, Amounts{"a": 7, "b": 20}},
		{"the batch itself, of one", plus, []string{"free"}, Amounts{"a": 5, "b": 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for range 2 { // the second finds the table unchanged
				got, err := tt.table.Batch(tt.methods)
				if err != nil || !maps.Equal(got, tt.want) {
					t.Errorf("got %v, %v; want %v", got, err, tt.want)
				}
			}
		})
	}
}

func TestBatchRefuses(t *testing.T) {
	table := parse(t, testTable)
	_, err := table.Batch([]string{"m", "other"})
	wantError(t, err, `call 1 of the batch: budget: unknown method "other"`)
	if !errors.Is(err, ErrUnknownMethod) {
		t.Errorf("%v does not wrap ErrUnknownMethod", err)
	}
	_, err = table.Batch(nil)
	wantError(t, err, "budget: an empty batch has no cost")

	dear, err := table.With(Overrides{Methods: map[string]Amounts{"m": {"a": MaxAmount}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = dear.Batch([]string{"m", "free"})
	wantError(t, err, "the cost of a batch of 2 calls is too large for one charge") // with what the batch itself costs
}

func TestWith(t *testing.T) {
	base := builtin(t, "alchemy")
	base.Cost("other")
	// Document 001's costs of getLogs and of methods it does not list.
	changed, err := base.With(Overrides{
		Methods: map[string]Amounts{"eth_sendRawTransaction": {"cu": 41}, "new": {"cu": 0, "throughput": 1}},
		Unknown: &Unknown{Default: Amounts{"cu": 30, "throughput": 30}},
	})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		method string
		before Amounts
		after  Amounts
	}{
		{"eth_sendRawTransaction", Amounts{"cu": 40, "throughput": 250}, Amounts{"cu": 41, "throughput": 250}},
		{"new", Amounts{"cu": 20, "throughput": 20}, Amounts{"cu": 0, "throughput": 1}},
		{"other", Amounts{"cu": 20, "throughput": 20}, Amounts{"cu": 30, "throughput": 30}},
		{"eth_call", Amounts{"cu": 26, "throughput": 26}, Amounts{"cu": 26, "throughput": 26}},
	}
	for _, tt := range tests {
		before, _ := base.Cost(tt.method)
		after, _ := changed.Cost(tt.method)
		if !maps.Equal(before, tt.before) || !maps.Equal(after, tt.after) {
			t.Errorf("%s: %v, then %v; want %v, then %v", tt.method, before, after, tt.before, tt.after)
		}
	}
	if base.UnknownCalls() != 3 || changed.UnknownCalls() != 1 {
		t.Errorf("unknown calls %d and %d, want 3 and 1", base.UnknownCalls(), changed.UnknownCalls())
	}
}

func TestWithUnknown(t *testing.T) {
	base := builtin(t, "alchemy")
	refusing, err := base.With(Overrides{Unknown: &Unknown{Refuse: true}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := refusing.Cost("other"); !errors.Is(err, ErrUnknownMethod) {
		t.Errorf("got %v", err)
	}
	all, err := refusing.With(Overrides{Methods: map[string]Amounts{AnyMethod: {"cu": 1, "throughput": 2}}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := all.Cost("other"); err != nil || got["cu"] != 1 || all.UnknownCalls() != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestWithRefuses(t *testing.T) {
	alchemy, generic := builtin(t, "alchemy"), builtin(t, "generic")
	tests := []struct {
		name  string
		table *Table
		o     Overrides
		want  string
	}{
		{"negative", alchemy, Overrides{Methods: map[string]Amounts{"eth_call": {"cu": -1}}}, "budget: Methods.eth_call.cu -1: must not be negative"},
		{"large", alchemy, Overrides{Methods: map[string]Amounts{"eth_call": {"cu": 1 << 31}}}, "budget: Methods.eth_call.cu 2147483648: must be at most 2147483647, the greatest cost of one charge"},
		{"a unit", alchemy, Overrides{Methods: map[string]Amounts{"eth_call": {"CU": 1}}}, "budget: Methods.eth_call.CU: unknown unit: the table has cu, throughput"},
		{"a new method", alchemy, Overrides{Methods: map[string]Amounts{"new": {"cu": 1}}}, "budget: Methods.new.throughput: is missing: write 0 if it costs nothing"},
		{"a name", alchemy, Overrides{Methods: map[string]Amounts{"": {"cu": 1, "throughput": 1}}}, `budget: Methods."": the name of a method has 1 to 256 bytes`},
		{"no default", alchemy, Overrides{Unknown: &Unknown{}}, "budget: Unknown.Default.cu: is missing: write 0 if it costs nothing\nbudget: Unknown.Default.throughput: is missing"},
		{"both", alchemy, Overrides{Unknown: &Unknown{Refuse: true, Default: Amounts{"cu": 1}}}, "budget: Unknown: a default is not used if unknown methods are refused: leave out one of the two"},
		{"all are known", generic, Overrides{Unknown: &Unknown{Refuse: true}}, "budget: Unknown: the table has a cost for *, so no method is unknown: change that instead"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.table.With(tt.o)
			wantError(t, err, tt.want)
			if got != nil {
				t.Error("a table with wrong overrides")
			}
		})
	}
}

// TestJSONRPC: the cost of a request's calls, F1.4.
func TestJSONRPC(t *testing.T) {
	a := newAccount(t, testAccount(t))
	tests := []struct {
		name, body string
		want       Amounts
	}{
		{"a call", `{"jsonrpc":"2.0","id":1,"method":"m"}`, Amounts{"a": 1, "b": 10}},
		{"a notification", `{"jsonrpc":"2.0","method":"m"}`, Amounts{"a": 1, "b": 10}},
		{"a free call", `{"jsonrpc":"2.0","id":1,"method":"free"}`, Amounts{"a": 0, "b": 0}},
		{"a batch", `[{"id":1,"method":"m"},{"id":2,"method":"free"},{"method":"m"}]`, Amounts{"a": 7, "b": 20}},
		{"a batch of one", `[{"id":1,"method":"m"}]`, Amounts{"a": 6, "b": 10}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := JSONRPC(nil, []byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := a.amounts(c); err != nil || !maps.Equal(got, tt.want) {
				t.Errorf("got %v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

// testAccount is an account with the test's table.
func testAccount(t *testing.T) Config {
	return Config{Name: "main", Costs: parse(t, testTable), Classes: []Class{}, Limits: []ruleset.Limit{
		{Unit: "a", Limit: weir.Limit{Rate: 100, Per: weir.Every(time.Hour)}},
		{Unit: "b", Limit: weir.Limit{Name: "b", Rate: 1000, Per: weir.Every(time.Hour)}},
	}}
}

func TestJSONRPCRefuses(t *testing.T) {
	a := newAccount(t, testAccount(t))
	for _, body := range []string{``, `{"method":"m","method":"free"}`, `[[]]`, `{"id":1}`} {
		_, err := JSONRPC(nil, []byte(body))
		if _, malformed := errors.AsType[*jsonrpc.Error](err); !malformed {
			t.Errorf("%s: %v", body, err)
		}
	}
	for _, body := range []string{`{"method":"other"}`, `[{"method":"m"},{"method":"other"}]`} {
		c, err := JSONRPC(nil, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := a.amounts(c); !errors.Is(err, ErrUnknownMethod) || got != nil {
			t.Errorf("%s: %v, %v", body, got, err)
		}
	}
}

func TestFixedCost(t *testing.T) {
	a := Amounts{"requests": 1, "credits": 3}
	cost := FixedCost(In(a))
	a["requests"] = 7
	got, err := cost(nil, nil)
	if err != nil || !maps.Equal(got.units, Amounts{"requests": 1, "credits": 3}) {
		t.Errorf("got %v, %v", got, err)
	}
}

func builtin(t *testing.T, name string) *Table {
	t.Helper()
	table, err := BuiltinTable(name)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func parse(t *testing.T, text string) *Table {
	t.Helper()
	table, err := ParseTable([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// wantError wants a part of an error's text.
func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}
