package respapi

import (
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/golden"
	"github.com/weirlimit/weir/ruleset"
)

// newBudgets returns a fixture with the budgets "alchemy" and "calls".
func newBudgets(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t)
	list := []budget.Config{
		{Name: "alchemy", Preset: "alchemy-free"},
		{Name: "idle", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 10, Per: weir.Every(time.Second)}}}, Thresholds: budget.Thresholds{Warning: new(0), Pause: new(0)}},
		{Name: "calls", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 10, Per: weir.Every(time.Second)}}}, Thresholds: budget.Thresholds{Pause: new(budget.Off)}},
	}
	all := append(policies(), ruleset.Policy{
		Name: "tiers", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 10, Per: weir.Every(time.Second)}}},
		Plans: []ruleset.Plan{{Name: "paused", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 1, Per: weir.Every(time.Second)}}}}},
	})
	for _, c := range list {
		all = append(all, weir.Must(c.Policy()))
	}
	state := *f.state.Load()
	state.Rules, state.Budgets = weir.Must(ruleset.Compile(all, nil)), map[string]*budget.Account{}
	f.state.Store(&state)
	f.decideBy(t, f.store)
	for _, c := range list {
		c.Clock, c.Logger = f.clock.Now, slog.New(slog.DiscardHandler)
		state.Budgets[c.Name] = weir.Must(budget.Attach(f.cfg.Core.Engine, c))
	}
	return f
}

func TestBudgets(t *testing.T) {
	text, err := os.ReadFile("testdata/budgets.txt")
	if err != nil {
		t.Fatal(err)
	}
	f := newBudgets(t)
	golden.Check(t, "testdata/budgets.golden", []byte(play(f, string(text))))
	u, err := f.state.Load().Budgets["alchemy"].Usage(t.Context())
	want := budget.Ledger{Granted: 60 + 2*26 + 26 + 26 + 60 + 86 + 30 + 26, Overrun: 4, Used: 60 + 2*26 + 26 + 26 + 60 + 20 + 30, Returned: 66 + 30}
	if got := u.Ledgers["throughput"]; err != nil || got != want {
		t.Errorf("the ledger is %+v, %v, want %+v", got, err, want)
	}
}

// The plan of a paused budget does not stay for the next command, nor do its methods.
func TestPlanOfABudget(t *testing.T) {
	f := newBudgets(t)
	s := &script{inputs: []string{"WEIR.CHECK idle -\r\n", "WEIR.PEEK idle -\r\n", "WEIR.PEEK tiers a\r\n", "WEIR.PEEK alchemy - METHOD eth_call\r\n", "WEIR.PEEK tiers a\r\n"}}
	c := newConn(f.Server, s)
	c.serve()
	if level := f.state.Load().Budgets["idle"].Level(); level != budget.Critical && level != budget.Paused {
		t.Errorf("level %v", level)
	}
	for _, i := range []int{2, 4} {
		if !strings.HasPrefix(s.replies[i], "*5\r\n:1\r\n:10\r\n") {
			t.Errorf("%s %q", s.inputs[i], s.replies[i])
		}
	}
}

// A budget in a pipeline is decided with the others, and a wrong command does not concern them.
func TestBudgetsInAPipeline(t *testing.T) {
	f := newBudgets(t)
	s := &script{inputs: []string{"WEIR.CHECK calls -\r\nWEIR.CHECK default a\r\nWEIR.CHECK calls - 3\r\nWEIR.CHECK calls bob\r\nWEIR.CHECK default a\r\n"}}
	c := newConn(f.Server, s)
	c.serve()
	const want = "*5\r\n:1\r\n:4\r\n:3\r\n:0\r\n:250\r\n" + "*5\r\n:1\r\n:100\r\n:99\r\n:0\r\n:10\r\n" + "*5\r\n:1\r\n:4\r\n:0\r\n:0\r\n:1000\r\n" +
		"-ERR the key is not for \"calls\", which is a budget and has one key: leave it out, or write -\r\n" + "*5\r\n:1\r\n:100\r\n:98\r\n:0\r\n:20\r\n"
	if s.replies[0] != want {
		t.Errorf("got  %q\nwant %q", s.replies[0], want)
	}
	if u, err := f.state.Load().Budgets["calls"].Usage(t.Context()); err != nil || u.Ledgers["requests"].Used != 4 {
		t.Errorf("%+v, %v", u, err)
	}
}
