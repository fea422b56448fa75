package call

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/store/memstore"
)

// newCore returns a core in memory with policies p (10 per hour) and slots, and what it records.
func newCore(t *testing.T) (*Core, *State, *[]ruleset.Record) {
	t.Helper()
	rules, err := ruleset.Compile([]ruleset.Policy{
		{Name: "p", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 10, Per: weir.Every(time.Hour)}}}},
		{Name: "slots", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 1, Algorithm: weir.Concurrency}}}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := ruleset.New(weir.Must(memstore.New(memstore.Config{})), rules)
	if err != nil {
		t.Fatal(err)
	}
	records := new([]ruleset.Record)
	core := &Core{
		Engine: engine, Log: slog.New(slog.DiscardHandler),
		Observe: func(r *ruleset.Record) { *records = append(*records, *r) },
		ObserveEach: func(items []ruleset.Item, verdicts []ruleset.Verdict, _ time.Duration) {
			for i := range items {
				*records = append(*records, ruleset.Record{Verdict: verdicts[i], Key: items[i].Query.Key})
			}
		},
	}
	return core, &State{Rules: rules, Authenticator: &identity.Authenticator{}}, records
}

func TestUndecided(t *testing.T) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	late, cancel := context.WithTimeout(context.Background(), -time.Second)
	defer cancel()
	ctx := context.Background()
	tests := []struct {
		ctx    context.Context
		err    error
		kind   Kind
		text   string
		status int
		code   codes.Code
		logged bool
	}{
		{ctx, &ruleset.InputError{Field: "cost", Problem: "is odd"}, BadInput, `"cost" is odd`, 400, 3, false},
		{ctx, &ruleset.ItemError{Index: 7, Err: &ruleset.InputError{Field: "key", Problem: "is missing"}}, BadInput, `checks[7]: "key" is missing`, 400, 3, false},
		{ctx, weir.ErrReserveOnly, BadInput, `policy "p" limits concurrency`, 400, 3, false},
		{ctx, compiled.CheckCost(-1), BadInput, "cost -1", 400, 3, false},
		{ctx, fmt.Errorf("x: %w", ruleset.ErrTicket), BadInput, `"id" is no reservation`, 400, 3, false},
		{ctx, ruleset.ErrGone, NotFound, "is not configured", 404, 5, false},
		{ctx, compiled.ErrLimits, Unavailable, "log says why", 503, 14, true},
		{ctx, weir.ErrBusy, Unavailable, "log says why", 503, 14, true},
		{ctx, weir.ErrUnavailable, Unavailable, "log says why", 503, 14, true},
		{ctx, weir.ErrUnknown, Unavailable, "log says why", 503, 14, true},
		{ctx, io.ErrUnexpectedEOF, Unavailable, "log says why", 503, 14, true},
		{gone, gone.Err(), Canceled, "was canceled", 503, 1, false},
		{late, late.Err(), DeadlineExceeded, "time was over", 503, 4, false},
	}
	for _, tt := range tests {
		var log bytes.Buffer
		core := &Core{Log: slog.New(slog.NewTextHandler(&log, nil))}
		got := core.Undecided(tt.ctx, "p", tt.err)
		if got.Kind != tt.kind || !strings.Contains(got.Error(), tt.text) || got.Status() != tt.status || got.Code() != tt.code || (log.Len() > 0) != tt.logged {
			t.Errorf("%v: kind %d, %q, status %d, code %d, logged %q", tt.err, got.Kind, got.Error(), got.Status(), got.Code(), log.String())
		}
		if tt.logged && strings.Contains(got.Error(), tt.err.Error()) {
			t.Errorf("%v is told to the caller", tt.err)
		}
	}
}

func TestRefused(t *testing.T) {
	for status, want := range map[int]struct {
		kind Kind
		code codes.Code
	}{401: {Unauthenticated, 16}, 403: {Forbidden, 7}, 429: {Throttled, 8}} {
		err := Refused(&identity.Refusal{Status: status, Problem: "no"})
		if err.Kind != want.kind || err.Status() != status || err.Code() != want.code || err.Error() != "no" || err.Refusal == nil {
			t.Errorf("%d: %+v", status, err)
		}
	}
}

// Text fits a header field, in whole characters.
func TestLongTexts(t *testing.T) {
	long := strings.Repeat("ä", 1000)
	if text := Invalid("%s", long).Text(); len(text) > maxText+len("…") || !strings.HasSuffix(text, "ä…") {
		t.Errorf("%d bytes, %.10q", len(text), text)
	}
}

// A client may use what it was granted, in whatever it calls.
func TestAuthorization(t *testing.T) {
	core, state, records := newCore(t)
	token := strings.Repeat("t", identity.MinToken)
	clients, err := identity.NewClients([]identity.Client{{Name: "shop", Tokens: []secret.Secret{secret.New(token)}, Grants: identity.Grants{Policies: identity.Patterns{"p"}}}})
	if err != nil {
		t.Fatal(err)
	}
	state.Authenticator = &identity.Authenticator{Clients: clients}
	if _, bad := core.Authenticate(state, identity.Credentials{Address: "192.0.2.1:1"}); bad == nil || bad.Kind != Unauthenticated {
		t.Errorf("without a token: %v", bad)
	}
	r, _ := http.NewRequest("POST", "/", nil)
	r.RemoteAddr = "192.0.2.1:1"
	r.Header.Set("Authorization", "Bearer "+token)
	caller, bad := core.HTTP(state, r)
	if bad != nil || caller.Name() != "shop" {
		t.Fatal(bad)
	}
	if _, bad := caller.Rule([]byte("slots")); bad == nil || bad.Kind != Forbidden {
		t.Errorf("a policy that was not granted: %v", bad)
	}
	if _, bad := caller.Rule([]byte("nope")); bad == nil || bad.Kind != Forbidden {
		t.Errorf("whether a policy exists is told: %v", bad)
	}
	if bad := caller.MayUseDomain("x"); bad == nil || bad.Kind != Forbidden {
		t.Errorf("%v", bad)
	}
	if _, bad := core.Check(context.Background(), caller, []byte("p"), &ruleset.Query{Key: "a", Cost: 1}, false); bad != nil {
		t.Fatal(bad)
	}
	if len(*records) != 1 || (*records)[0].Client != "shop" {
		t.Errorf("%+v", *records)
	}
}

// Every kind of call is decided and recorded once; one that is wrong is neither.
func TestCalls(t *testing.T) {
	core, state, records := newCore(t)
	ctx, caller := context.Background(), Caller{State: state}
	rule := state.Rules.Rule("p")
	recorded := func(what string, want int) {
		t.Helper()
		if len(*records) != want {
			t.Errorf("%s: %d records, want %d", what, len(*records), want)
		}
		*records = nil
	}
	if v, bad := core.Check(ctx, caller, []byte("p"), &ruleset.Query{Key: "a", Cost: 2}, false); bad != nil || v.Remaining != 8 {
		t.Error(v, bad)
	}
	recorded("check", 1)
	if v, bad := core.Check(ctx, caller, []byte("p"), &ruleset.Query{Key: "a", Cost: 1}, true); bad != nil || v.Remaining != 8 || !(*records)[0].Peek {
		t.Error(v, bad)
	}
	recorded("peek", 1)
	v, ticket, bad := core.Reserve(ctx, caller, []byte("p"), &ruleset.Query{Key: "a", Cost: 3}, time.Minute)
	if bad != nil || v.Remaining != 5 {
		t.Fatal(v, bad)
	}
	recorded("reserve", 1)
	if renewed, bad := core.Renew(ctx, caller, ticket.String(), time.Minute); bad != nil || !renewed {
		t.Error(renewed, bad)
	}
	if settled, bad := core.Settle(ctx, caller, ticket.String(), ruleset.Used{HaveCost: true, Cost: 1}); bad != nil || settled.Refunded != 2 {
		t.Error(settled, bad)
	}
	if _, bad := core.Settle(ctx, caller, "nonsense", ruleset.Used{}); bad == nil || bad.Kind != BadInput {
		t.Error(bad)
	}
	recorded("settle", 0)
	item := func(key string, cost int64) ruleset.Item {
		return ruleset.Item{Rule: rule, Query: ruleset.Query{Key: key, Cost: cost}}
	}
	for kind, want := range map[Batch][]bool{Each: {true, false}, All: {false, false}, Debit: {true, true}} {
		key := fmt.Sprint("batch", kind)
		verdicts, bad := core.CheckBatch(ctx, caller, kind, []ruleset.Item{item(key, 6), item(key, 6)}, nil)
		if bad != nil || verdicts[0].Allowed != want[0] || verdicts[1].Allowed != want[1] {
			t.Errorf("%d: %+v, %v", kind, verdicts, bad)
		}
		recorded(key, 2)
		if _, bad := core.CheckBatch(ctx, caller, kind, []ruleset.Item{item(key, 1), item("", 1)}, nil); bad == nil || bad.Item != 1 || bad.Kind != BadInput {
			t.Errorf("%d: %v", kind, bad)
		}
		recorded(key, 0)
	}
	if _, bad := core.Check(ctx, caller, []byte("slots"), &ruleset.Query{Key: "a", Cost: 1}, false); bad == nil || !strings.Contains(bad.Problem, "slots") {
		t.Error(bad)
	}
	recorded("bad input", 0)
	if _, bad := core.Check(ctx, caller, []byte("nope"), &ruleset.Query{Key: "a", Cost: 1}, false); bad == nil || bad.Kind != NotFound {
		t.Error(bad)
	}
	if _, _, bad := core.Reserve(ctx, caller, []byte("nope"), &ruleset.Query{Key: "a", Cost: 1}, time.Minute); bad == nil || bad.Kind != NotFound {
		t.Error(bad)
	}
	recorded("unknown policy", 0)
}

// Batches of budgets and other policies: each kind is counted as it is charged, and a provider that wants
// no calls refuses what was not used already.
func TestBudgetsInBatches(t *testing.T) {
	core, state, _ := newCore(t)
	c := budget.Config{Name: "b", Limits: []ruleset.Limit{{Unit: "cu", Limit: weir.Limit{Rate: 10, Per: weir.Every(time.Hour)}}}, Classes: []budget.Class{}, Logger: core.Log}
	p, err := c.Policy()
	if err != nil {
		t.Fatal(err)
	}
	rules, err := ruleset.Compile(append([]ruleset.Policy{p}, *state.Rules.Rule("p").Policy()), state.Rules)
	if err != nil {
		t.Fatal(err)
	}
	if err := core.Engine.Set(t.Context(), rules); err != nil {
		t.Fatal(err)
	}
	account, err := budget.Attach(core.Engine, c)
	if err != nil {
		t.Fatal(err)
	}
	state.Rules, state.Budgets = rules, map[string]*budget.Account{"b": account}
	caller := Caller{State: state}
	charge := func(kind Batch, costs ...int64) (allowed []bool, reasons []weir.Reason) {
		t.Helper()
		items := []ruleset.Item{{Rule: rules.Rule("p"), Query: ruleset.Query{Key: "a", Cost: 1}}}
		for _, n := range costs {
			items = append(items, ruleset.Item{Rule: rules.Rule("b"), Query: ruleset.Query{Cost: n}})
		}
		out, bad := core.CheckBatch(t.Context(), caller, kind, items, nil)
		if bad != nil {
			t.Fatal(bad)
		}
		for i := range out {
			allowed, reasons = append(allowed, out[i].Allowed), append(reasons, out[i].Reason)
		}
		return allowed, reasons
	}
	want := func(step string, l budget.Ledger) {
		t.Helper()
		u, err := account.Usage(t.Context())
		if err != nil || u.Ledgers["cu"] != l {
			t.Errorf("%s: %+v, %v; want %+v", step, u.Ledgers["cu"], err, l)
		}
	}
	if got, _ := charge(Each, 4, 7, 2); fmt.Sprint(got) != "[true true false true]" {
		t.Errorf("each: %v", got)
	}
	want("each", budget.Ledger{Granted: 6, Used: 6})
	if got, _ := charge(All, 4, 1); fmt.Sprint(got) != "[false false false]" {
		t.Errorf("all: %v", got)
	}
	if got, _ := charge(All, 3, 1); fmt.Sprint(got) != "[true true true]" {
		t.Errorf("all: %v", got)
	}
	want("all", budget.Ledger{Granted: 10, Used: 10})
	if got, _ := charge(Debit, 5); fmt.Sprint(got) != "[true true]" {
		t.Errorf("debit: %v", got)
	}
	want("debit", budget.Ledger{Granted: 10, Used: 15, Overrun: 5})
	account.Cool(time.Hour)
	if _, got := charge(Each, 0); fmt.Sprint(got) != "[admitted exhausted]" {
		t.Errorf("each while cooling: %v", got)
	}
	if _, got := charge(All, 0); fmt.Sprint(got) != "[not_charged exhausted]" {
		t.Errorf("all while cooling: %v", got)
	}
	if _, got := charge(Debit, 2); fmt.Sprint(got) != "[admitted admitted]" {
		t.Errorf("debit while cooling: %v", got)
	}
	want("cooling", budget.Ledger{Granted: 10, Used: 17, Overrun: 7})
}
