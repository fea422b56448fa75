package client_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/client"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/server"
)

// ofClass returns the policy for charges of a class.
func ofClass(t testing.TB, p *weir.Policy, class string) *weir.Policy {
	t.Helper()
	out, err := p.Class(class)
	must(t, err)
	return out
}

// jobs is 10 an hour, of which realtime has 6 and backfill 4.
func jobs(t testing.TB) *weir.Policy {
	t.Helper()
	return newPolicy(t, "jobs", weir.Limit{Rate: 10, Per: weir.Every(time.Hour), Classes: weir.ClassesOf(
		weir.Class{Name: "realtime", Guaranteed: 6, NoBorrow: true}, weir.Class{Name: "backfill", Guaranteed: 4, NoBorrow: true})})
}

// TestClasses: a charge is of the class of its policy, in every call.
func TestClasses(t *testing.T) {
	p := jobs(t)
	address, _ := daemon(t, server.Config{Limiter: apitest.Table(t, apitest.NewClock().Now), Live: server.Live{Policies: rules(p)}})
	c := dial(t, client.Config{Address: address})
	realtime, backfill := ofClass(t, p, "realtime"), ofClass(t, p, "backfill")
	remain := func(what string, wantRealtime, wantBackfill int64) {
		t.Helper()
		for class, want := range map[string]int64{"realtime": wantRealtime, "backfill": wantBackfill, "": wantBackfill} {
			if a, err := c.Check(ctx, client.Query{Policy: "jobs", Key: "k", Class: class, Peek: true}); err != nil || a.Remaining != want {
				t.Errorf("after %s, %d remain of %q, want %d: %v", what, a.Remaining, class, want, err)
			}
		}
	}
	_, err := c.Take(ctx, realtime, "k", 2)
	must(t, err)
	remain("Take", 4, 4)
	_, err = c.Take(ctx, p, "k", 1) // the class with the least share
	must(t, err)
	remain("Take without a class", 4, 3)
	must(t, c.Do(ctx, &weir.Batch{Op: weir.TakeAll, Charges: []weir.Charge{{Policy: realtime, Key: "k", Cost: 1}, {Policy: backfill, Key: "k", Cost: 2}}}))
	remain("a batch", 3, 1)
	held, err := weir.Reserve(ctx, c, time.Minute, weir.Charge{Policy: realtime, Key: "k", Cost: 3})
	must(t, err)
	remain("Reserve", 0, 1)
	if settled, err := held.Commit(ctx, 1); err != nil || settled[0].Refunded != 2 {
		t.Errorf("%+v, %v", settled, err)
	}
	remain("Commit", 2, 1)
	must(t, c.Do(ctx, &weir.Batch{Op: weir.DebitEach, Charges: []weir.Charge{{Policy: realtime, Key: "k", Cost: 2}}}))
	remain("a debit", 0, 1)
	_, err = c.Check(ctx, client.Query{Policy: "jobs", Key: "k", Class: "urgent"})
	if _, ok := errors.AsType[*client.AnswerError](err); !ok || !strings.HasSuffix(err.Error(), `"class" is "urgent", which the policy does not have; it has realtime, backfill`) {
		t.Error(err)
	}
}

// TestBudgetClasses: a reservation is of the class of its policy also under a budget of the daemon, whose only key need
// not be named. What it costs is a number, of every unit that the budget counts.
func TestBudgetClasses(t *testing.T) {
	p := newPolicy(t, "main", jobs(t).Limits()...) // the daemon decides by its own limits: the name and the classes count
	limits := []ruleset.Limit{{Unit: "cu", Limit: weir.Limit{Rate: 1000, Per: weir.Every(time.Hour)}}}
	address, _ := daemon(t, server.Config{Limiter: apitest.Table(t, apitest.NewClock().Now), Live: server.Live{Budgets: []budget.Config{
		{Name: "main", Limits: limits, Classes: []budget.Class{{Name: "realtime", Share: 60, NoBorrow: true}, {Name: "backfill", Share: 40, NoBorrow: true}}},
	}}})
	c := dial(t, client.Config{Address: address})
	remain := func(what string, wantRealtime, wantBackfill int64) {
		t.Helper()
		for class, want := range map[string]int64{"realtime": wantRealtime, "backfill": wantBackfill, "": wantBackfill} {
			q := client.Query{Policy: "main", Class: class, Costs: map[string]int64{"cu": 1}, Peek: true}
			if a, err := c.Check(ctx, q); err != nil || a.Remaining != want {
				t.Errorf("after %s, %d remain of %q, want %d: %v", what, a.Remaining, class, want, err)
			}
		}
	}
	used := func(what string, of weir.Charge, used int64, want weir.Settled) {
		t.Helper()
		held, err := weir.Reserve(ctx, c, time.Minute, of)
		must(t, err)
		if !held.Decision.Allowed {
			t.Fatalf("%s: %+v", what, held.Decision)
		}
		if got, err := held.Commit(ctx, used); err != nil || got[0] != want {
			t.Errorf("%s: settled as %+v, %v, want %+v", what, got, err, want)
		}
	}
	used("less than was reserved", weir.Charge{Policy: ofClass(t, p, "realtime"), Cost: 500}, 200, weir.Settled{Refunded: 300})
	remain("less", 400, 400)
	used("more than was reserved", weir.Charge{Policy: ofClass(t, p, "backfill"), Key: "-", Cost: 100}, 150, weir.Settled{Overrun: 50})
	remain("more", 400, 250)
	held, err := weir.Reserve(ctx, c, time.Minute, weir.Charge{Policy: ofClass(t, p, "backfill"), Cost: 251})
	must(t, err)
	if held.Decision.Allowed || held.Decision.Limit != 400 || held.Decision.Remaining != 250 {
		t.Errorf("more than backfill has: %+v", held.Decision)
	}
	if _, err := weir.Reserve(ctx, c, time.Minute, weir.Charge{Policy: p, Key: "alice", Cost: 1}); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("another key: %v", err)
	}
}

// TestUnknownClassOfTake: a class that the daemon's policy does not have is an error, and no charge
// of another class.
func TestUnknownClassOfTake(t *testing.T) {
	there := newPolicy(t, "jobs", weir.Limit{Rate: 10, Per: weir.Every(time.Hour)})
	address, _ := daemon(t, server.Config{Limiter: apitest.Table(t, apitest.NewClock().Now), Live: server.Live{Policies: rules(there)}})
	c := dial(t, client.Config{Address: address})
	if _, err := c.Take(ctx, ofClass(t, jobs(t), "realtime"), "k", 1); !errors.Is(err, weir.ErrInvalid) || errors.Is(err, weir.ErrUnknown) || !strings.Contains(err.Error(), "the policy has no classes") {
		t.Error(err)
	}
	if a, err := c.Check(ctx, client.Query{Policy: "jobs", Key: "k", Peek: true}); err != nil || a.Remaining != 10 {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestCombineClasses: calls of different classes share a request, each with its own class.
func TestCombineClasses(t *testing.T) {
	g := newGate()
	c := dial(t, client.Config{Address: g.start(t), Conns: 1})
	plain, p := newPolicy(t, "good", weir.Limit{Rate: 1, Per: weir.Every(time.Second)}), jobs(t)
	var group sync.WaitGroup
	waiting := 0
	take := func(p *weir.Policy, key string) {
		group.Go(func() {
			if _, err := c.Take(ctx, p, key, 1); err != nil {
				t.Error(err)
			}
		})
		c.AwaitWaiting(t, waiting)
		waiting++
	}
	take(plain, "first")
	if first := <-g.came; len(first.GetClass()) != 0 || len(first.GetClassIndex()) != 0 {
		t.Errorf("a call without a class names one: %v", first)
	}
	waiting = 1
	take(plain, "none")
	take(ofClass(t, p, "realtime"), "realtime")
	take(ofClass(t, p, "backfill"), "backfill")
	take(plain, "none")
	take(ofClass(t, p, "realtime"), "realtime")
	close(g.release)
	group.Wait()
	second := <-g.came
	classes := []string{}
	for _, i := range second.GetClassIndex() {
		classes = append(classes, second.GetClass()[i])
	}
	if want := []string{"", "realtime", "backfill", "", "realtime"}; !slices.Equal(classes, want) || len(second.GetClass()) != 3 || len(second.GetKey()) != 5 {
		t.Errorf("classes %q of %v, want %q", classes, second, want)
	}
}

// TestRefusedClass: a class that the client may not use does not concern calls of other classes.
func TestRefusedClass(t *testing.T) {
	g := newGate()
	g.refuse = func(r *weirv1.CheckBatchRequest) error {
		if slices.Contains(r.GetClass(), "backfill") {
			return connect.NewError(connect.CodePermissionDenied, errors.New("may not use the class"))
		}
		return nil
	}
	c := dial(t, client.Config{Address: g.start(t), Conns: 1})
	p := jobs(t)
	var group sync.WaitGroup
	take := func(class string) {
		group.Go(func() {
			if _, err := c.Take(ctx, ofClass(t, p, class), "k", 1); (err != nil) != (class == "backfill") {
				t.Errorf("%s: %v", class, err)
			}
		})
	}
	take("realtime")
	<-g.came
	for range 10 {
		take("realtime")
		take("backfill")
	}
	c.AwaitWaiting(t, 20)
	close(g.release)
	group.Wait()
	if exchanges := len(g.came); exchanges != 3 { // all, then those of each class
		t.Errorf("%d more exchanges, want 3", exchanges)
	}
}

// TestGrantedClass: a daemon grants classes to clients, and the only one need not be named.
func TestGrantedClass(t *testing.T) {
	token := strings.Repeat("t", 32)
	p := jobs(t)
	address, _ := daemon(t, server.Config{Limiter: apitest.Table(t, apitest.NewClock().Now), Live: server.Live{Policies: rules(p), Clients: []server.Client{
		{Name: "shop", Tokens: []secret.Secret{secret.New(token)}, Grants: server.Grants{Classes: server.Patterns{"realtime"}}},
	}}})
	c := dial(t, client.Config{Address: address, Token: func() string { return token }})
	for class, want := range map[string]string{"": "", "realtime": "", "backfill": `the client shop may not use the class "backfill"`} {
		a, err := c.Check(ctx, client.Query{Policy: "jobs", Key: "check" + class, Class: class})
		if got := fmt.Sprint(err); want == "" && (err != nil || a.Limit != 6) || want != "" && !strings.HasSuffix(got, want) {
			t.Errorf("Check as %q: %+v, %v", class, a, err)
		}
	}
	if d, err := c.Take(ctx, ofClass(t, p, "realtime"), "k", 6); err != nil || !d.Allowed {
		t.Error(d, err)
	}
	_, err := c.Take(ctx, ofClass(t, p, "backfill"), "k", 1)
	if refused, ok := errors.AsType[*client.AnswerError](err); !ok || !refused.Access {
		t.Error(err)
	}
}
