package call

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
)

// classed returns a core with the policy jobs, of 2 an hour for each of three classes, and plain,
// which has none.
func classed(t *testing.T) (*Core, *State, *[]ruleset.Record) {
	t.Helper()
	limit := ruleset.Limit{Limit: weir.Limit{Rate: 6, Per: weir.Every(time.Hour), Classes: weir.ClassesOf(
		weir.Class{Name: "realtime", Guaranteed: 2, NoBorrow: true}, weir.Class{Name: "batch", Guaranteed: 2, NoBorrow: true}, weir.Class{Name: "backfill", Guaranteed: 2, NoBorrow: true},
	)}}
	rules, err := ruleset.Compile([]ruleset.Policy{
		{Name: "jobs", Limits: []ruleset.Limit{limit}},
		{Name: "plain", Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 2, Per: weir.Every(time.Hour)}}}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := ruleset.New(weir.Must(memstore.New(memstore.Config{})), rules)
	if err != nil {
		t.Fatal(err)
	}
	records := new([]ruleset.Record)
	core := &Core{Engine: engine, Log: slog.New(slog.DiscardHandler), Observe: func(r *ruleset.Record) { *records = append(*records, *r) }}
	return core, &State{Rules: rules, Authenticator: &identity.Authenticator{Failures: &identity.Failures{}}}, records
}

// A client may use the classes that it was granted. A request that names none is of the default class
// or, if that was not granted, of the only one that was.
func TestClasses(t *testing.T) {
	all := identity.Patterns(nil)
	for _, tt := range []struct {
		grants        identity.Patterns
		policy, named string
		charged       string // the class, if the call is admitted
		forbidden     string // part of the error if not
	}{
		{all, "jobs", "realtime", "realtime", ""},
		{all, "jobs", "", "backfill", ""},
		{all, "plain", "", "", ""},
		{identity.Patterns{"realtime"}, "jobs", "realtime", "realtime", ""},
		{identity.Patterns{"realtime"}, "jobs", "", "realtime", ""},
		{identity.Patterns{"realtime", "nothing"}, "jobs", "", "realtime", ""},
		{identity.Patterns{"real*"}, "jobs", "", "realtime", ""},
		{identity.Patterns{"realtime", "backfill"}, "jobs", "", "backfill", ""},
		{identity.Patterns{"realtime"}, "plain", "", "", ""},
		{identity.Patterns{"realtime"}, "jobs", "backfill", "", `the client shop may not use the class "backfill"`},
		{identity.Patterns{"realtime"}, "jobs", "nothing", "", `the client shop may not use the class "nothing"`}, // whether it exists is not told
		{identity.Patterns{"realtime"}, "plain", "backfill", "", `the client shop may not use the class "backfill"`},
		{identity.Patterns{"realtime", "batch"}, "jobs", "", "", `the client shop may not use the class "backfill", which a request without a class is of: name one of realtime, batch`},
		{identity.Patterns{"other"}, "jobs", "", "", `the client shop may not use any class of the policy "jobs"`},
	} {
		core, state, records := classed(t)
		caller := Caller{State: state, Client: &identity.Client{Name: "shop", Grants: identity.Grants{Classes: tt.grants}}}
		ctx, q := context.Background(), ruleset.Query{Key: "a", Cost: 1, Class: tt.named}
		items := func() []ruleset.Item {
			return []ruleset.Item{{Rule: state.Rules.Rule("plain"), Query: ruleset.Query{Key: "b", Cost: 1}}, {Rule: state.Rules.Rule(tt.policy), Query: q}}
		}
		core.ObserveEach = func(items []ruleset.Item, verdicts []ruleset.Verdict, _ time.Duration) {
			*records = append(*records, ruleset.Record{Verdict: verdicts[1], Class: items[1].Rule.ClassOf(&items[1].Query)})
		}
		calls := map[string]func() *Error{
			"check": func() *Error { q := q; _, err := core.Check(ctx, caller, []byte(tt.policy), &q, false); return err },
			"peek":  func() *Error { q := q; _, err := core.Check(ctx, caller, []byte(tt.policy), &q, true); return err },
			"reserve": func() *Error {
				q := q
				_, _, err := core.Reserve(ctx, caller, []byte(tt.policy), &q, time.Minute)
				return err
			},
			"each":  func() *Error { _, err := core.CheckBatch(ctx, caller, Each, items(), nil); return err },
			"all":   func() *Error { _, err := core.CheckBatch(ctx, caller, All, items(), nil); return err },
			"debit": func() *Error { _, err := core.CheckBatch(ctx, caller, Debit, items(), nil); return err },
		}
		for name, call := range calls {
			*records = nil
			err := call()
			switch {
			case tt.forbidden == "" && err != nil:
				t.Errorf("%q, %s of %s as %q: %v", tt.grants, name, tt.policy, tt.named, err)
			case tt.forbidden == "" && (len(*records) != 1 || (*records)[0].Class != tt.charged):
				t.Errorf("%q, %s of %s as %q: recorded as %+v, want the class %q", tt.grants, name, tt.policy, tt.named, *records, tt.charged)
			case tt.forbidden != "" && (err == nil || err.Kind != Forbidden || !strings.HasSuffix(err.Problem, tt.forbidden) || len(*records) != 0):
				t.Errorf("%q, %s of %s as %q: %v, want %s", tt.grants, name, tt.policy, tt.named, err, tt.forbidden)
			}
			if batch := name == "each" || name == "all" || name == "debit"; err != nil && (err.Item == 1) != batch {
				t.Errorf("%s: of item %d", name, err.Item)
			}
		}
	}
}

// Calls of classes that are not granted are counted, as those of policies are.
func TestForbiddenClassesAreCounted(t *testing.T) {
	core, state, _ := classed(t)
	caller := Caller{State: state, Client: &identity.Client{Name: "shop", Grants: identity.Grants{Classes: identity.Patterns{"realtime", "batch"}}}}
	for _, class := range []string{"backfill", "", "realtime"} {
		_, _ = core.Check(context.Background(), caller, []byte("jobs"), &ruleset.Query{Key: "a", Cost: 1, Class: class}, false)
	}
	state.Authenticator.Failures.Each(func(kind, reason string, count uint64) {
		if want := kind == "client" && reason == "forbidden"; (count == 2) != want {
			t.Errorf("%s, %s: %d", kind, reason, count)
		}
	})
}
