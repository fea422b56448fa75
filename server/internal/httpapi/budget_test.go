package httpapi

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/golden"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/store/memstore"
)

// budgets are "alchemy", the preset with a day of calls, and "calls", which counts requests, and "credits", an
// amount that was paid in advance.
func budgets() []budget.Config {
	return []budget.Config{
		{Name: "alchemy", Preset: "alchemy-free", Limits: []ruleset.Limit{{Unit: "requests", Limit: weir.Limit{Name: "daily", Rate: 1000, Per: weir.Calendar(weir.Day, nil)}}}},
		{Name: "calls", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 10, Per: weir.Every(time.Second)}}}, Classes: []budget.Class{}},
		{Name: "credits", Limits: []ruleset.Limit{budget.Prepaid("credits", 3)}, Classes: []budget.Class{}},
	}
}

// withBudgets adds the budgets to a fixture.
func (f *fixture) withBudgets(t *testing.T) {
	t.Helper()
	list := policies()
	for _, c := range budgets() {
		list = append(list, weir.Must(c.Policy()))
	}
	rules := weir.Must(ruleset.Compile(list, nil))
	f.engine = weir.Must(ruleset.New(weir.Must(memstore.New(memstore.Config{})), rules))
	f.state.State = &call.State{Rules: rules, Authenticator: f.state.Authenticator, Budgets: map[string]*budget.Account{}}
	for _, c := range budgets() {
		c.Logger = slog.New(slog.DiscardHandler)
		f.state.Budgets[c.Name] = weir.Must(budget.Attach(f.engine, c))
	}
}

// TestBudgets: what callers say to a budget, and what it answers.
func TestBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, weir.Must(memstore.New(memstore.Config{})))
		f.withBudgets(t)
		h := f.handler()
		id := ""
		var got bytes.Buffer
		for _, line := range []string{
			`/v1/check {"policy":"alchemy","method":"eth_getLogs"}`,
			`/v1/check {"policy":"alchemy","key":"-","methods":["eth_call","eth_sendRawTransaction"]}`,
			`/v1/check {"policy":"alchemy","cost":{"cu":26,"throughput":26},"peek":true}`,
			`/v1/check {"policy":"alchemy","method":"eth_call","class":"realtime","peek":true}`,
			`/v1/check {"policy":"alchemy","method":"eth_call","class":"gold"}`,
			`/v1/check {"policy":"alchemy","cost":26}`,
			`/v1/check {"policy":"alchemy"}`,
			`/v1/check {"policy":"alchemy","key":"alice","cost":26}`,
			`/v1/check {"policy":"alchemy","cost":26,"method":"eth_call"}`,
			`/v1/check {"policy":"alchemy","method":""}`,
			`/v1/check {"policy":"alchemy","cost":{"tokens":26}}`,
			`/v1/check {"policy":"calls","method":"eth_call"}`,
			`/v1/check {"policy":"calls"}`,
			`/v1/reserve {"policy":"alchemy","methods":["eth_call","eth_call"]}`,
			`/v1/renew {"id":"$ID","ttl_ms":7000}`,
			`/v1/commit {"id":"$ID","used":26}`,
			`/v1/commit {"id":"$ID","used":26}`,
			`/v1/reserve {"policy":"alchemy","method":"eth_getBlockReceipts"}`,
			`/v1/reserve {"policy":"alchemy","cost":{"cu":20,"throughput":50}}`,
			`/v1/commit {"id":"$ID","used":{"thruput":600}}`,
			`/v1/commit {"id":"$ID","used":{"throughput":600}}`,
			`/v1/reserve {"policy":"alchemy","cost":{"cu":1}}`,
			`/v1/cancel {"id":"$ID"}`,
			`/v1/check/batch {"checks":[{"policy":"alchemy","method":"eth_call"},{"policy":"default","key":"a"},{"policy":"calls","cost":2}]}`,
			`/v1/check/batch {"atomic":true,"checks":[{"policy":"alchemy","method":"eth_call"},{"policy":"calls","cost":11}]}`,
			`/v1/check/batch {"checks":[{"policy":"default","key":"a"},{"policy":"default","key":"a","method":"eth_call"}]}`,
			`/v1/check/batch {"checks":[{"policy":"default","key":"a"},{"policy":"alchemy","key":"a","method":"eth_call"}]}`,
			`/v1/check {"policy":"credits","cost":2}`,
			`/v1/check {"policy":"credits","cost":2}`,
			`/v1/check {"policy":"credits","cost":2,"max_wait_ms":5000}`,
			`/v1/reserve {"policy":"credits","cost":2}`,
			`/v1/check/batch {"checks":[{"policy":"credits","cost":2},{"policy":"credits","cost":2,"peek":true}]}`,
			`COOL`,
			`/v1/check {"policy":"calls"}`,
			`/v1/check {"policy":"calls","peek":true}`,
			`/v1/reserve {"policy":"calls"}`,
			`/v1/check/batch {"checks":[{"policy":"calls"},{"policy":"default","key":"b"},{"policy":"calls"}]}`,
			`/v1/check/batch {"checks":[{"policy":"calls"},{"policy":"default","key":"b"},{"policy":"slots","key":"b"}]}`,
			`/v1/check/batch {"atomic":true,"checks":[{"policy":"calls"},{"policy":"default","key":"b"}]}`,
			`/v1/check {"policy":"default","key":"b","peek":true}`,
		} {
			path, body, ok := strings.Cut(line, " ")
			if !ok {
				f.state.Budgets["calls"].Cool(5 * time.Second)
				continue
			}
			w := serve(h, "POST", path, strings.ReplaceAll(body, "$ID", id))
			if m := ticketID.FindSubmatch(w.Body.Bytes()); m != nil {
				id = string(m[1])
			}
			fmt.Fprintf(&got, "> %s\n%d %s", line, w.Code, ticketID.ReplaceAll(w.Body.Bytes(), []byte(`"id":"…"`)))
		}
		golden.Check(t, "testdata/budgets.golden", got.Bytes())

		u, err := f.state.Budgets["alchemy"].Usage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for unit, want := range map[string]budget.Ledger{
			"cu":         {Granted: 60 + 66 + 26 + 52 + 20 + 1, Used: 60 + 66 + 26 + 26 + 20, Returned: 26 + 1},
			"throughput": {Granted: 60 + 276 + 26 + 52 + 50, Used: 60 + 276 + 26 + 26 + 600, Returned: 26, Overrun: 550},
			"requests":   {Granted: 6, Used: 5, Returned: 1},
		} {
			if u.Ledgers[unit] != want {
				t.Errorf("ledger of %s: %+v, want %+v", unit, u.Ledgers[unit], want)
			}
		}
		if u.Methods["eth_call"] != 3 || u.Methods["eth_getLogs"] != 1 || len(u.Methods) != 3 {
			t.Errorf("methods: %v", u.Methods)
		}
	})
}

// TestBudgetWaits: a reservation of a budget's class waits until the class has room; another class does not wait.
func TestBudgetWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, weir.Must(memstore.New(memstore.Config{})))
		f.withBudgets(t)
		h := f.handler()
		id := ""
		for _, step := range []struct {
			path, body string
			want       []string
		}{
			{"check", `{"policy":"alchemy","cost":500,"class":"backfill"}`, []string{`"allowed":true`, `"limit":500`, `"remaining":0,`}},
			{"reserve", `{"policy":"alchemy","method":"eth_getLogs","class":"backfill","max_wait_ms":100}`, []string{`"allowed":false`, `"reason":"too_late","id":""`}},
			{"reserve", `{"policy":"alchemy","method":"eth_getLogs","class":"backfill","max_wait_ms":5000}`, []string{`"allowed":true`, `"delay_ms":124,`}},
			{"check", `{"policy":"alchemy","method":"eth_call","class":"realtime","max_wait_ms":5000}`, []string{`"allowed":true`, `"limit":750`, `"remaining":724,`, `"reason":"admitted"}`}},
		} {
			w := serve(h, "POST", "/v1/"+step.path, step.body)
			for _, want := range step.want {
				if w.Code != 200 || !strings.Contains(w.Body.String(), want) {
					t.Errorf("%s: %d %s, want %s", step.body, w.Code, w.Body, want)
				}
			}
			if m := ticketID.FindSubmatch(w.Body.Bytes()); m != nil {
				id = string(m[1])
			}
		}
		wantLedger := func(want budget.Ledger) {
			t.Helper()
			if u, err := f.state.Budgets["alchemy"].Usage(t.Context()); err != nil || u.Ledgers["throughput"] != want {
				t.Errorf("ledger %+v, %v, want %+v", u.Ledgers, err, want)
			}
		}
		wantLedger(budget.Ledger{Granted: 500 + 60 + 26, Used: 500 + 26, Open: 60})
		serve(h, "POST", "/v1/commit", `{"id":"`+id+`","used":20}`)
		wantLedger(budget.Ledger{Granted: 500 + 60 + 26, Used: 500 + 26 + 20, Returned: 40})
	})
}
