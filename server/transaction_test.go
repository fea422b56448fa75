package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/store/memstore"
)

// newTransactions returns a server that does not listen, with a last section that fails while fail
// is set.
func newTransactions(t *testing.T, fail *atomic.Bool) (*Server, *[]string) {
	t.Helper()
	s, err := New(Config{Limiter: weir.Must(memstore.New(memstore.Config{})), Log: slog.New(slog.DiscardHandler), Live: Live{Policies: []ruleset.Policy{onePolicy("api", 10), onePolicy("web", 10)}}})
	if err != nil {
		t.Fatal(err)
	}
	committed := new([]string)
	for i, x := range s.sections {
		if x.commit != nil {
			s.sections = slices.Clone(s.sections)
			s.sections[i].commit = func(s *Server, tx *transaction, st *state) error {
				*committed = append(*committed, x.name)
				return x.commit(s, tx, st)
			}
		}
	}
	s.sections = append(s.sections, section{
		name:    "last",
		prepare: func(*Server, *state, *state) error { return nil },
		commit: func(*Server, *transaction, *state) error {
			if fail.Load() {
				return errors.New("no")
			}
			return nil
		},
	})
	return s, committed
}

// check takes one unit as every protocol does, and returns the limit that decided.
func (s *Server) check(t *testing.T, policy, key string) int64 {
	t.Helper()
	caller := call.Caller{State: s.state.Load().call}
	v, bad := s.core.Check(context.Background(), caller, []byte(policy), &ruleset.Query{Key: key, Cost: 1}, false)
	if bad != nil {
		t.Fatal(bad)
	}
	return v.Decision.Limit
}

// A commit that fails restores the sections before it, in reverse order, and their limits.
func TestFailedCommit(t *testing.T) {
	var fail atomic.Bool
	s, committed := newTransactions(t, &fail)
	for range 3 {
		s.check(t, "api", "alice")
	}
	old := s.state.Load()
	fail.Store(true)
	next := Live{Policies: []ruleset.Policy{onePolicy("api", 20), onePolicy("new", 5)}, Hosts: []string{"new"}}
	if err := s.Reload(context.Background(), next); err == nil || !strings.Contains(err.Error(), "server: last: no") {
		t.Fatal(err)
	}
	if want := []string{"policies", "budgets", "routes", "envoy", "guard", "guard", "envoy", "routes", "budgets", "policies"}; !slices.Equal(*committed, want) {
		t.Errorf("committed %v, want %v", *committed, want)
	}
	if s.state.Load() != old || s.troubleText() == "" {
		t.Error("the state was replaced, or the failure is not reported")
	}
	if got := s.check(t, "api", "alice"); got != 10 {
		t.Errorf("alice is decided by a limit of %d, want 10", got)
	}
	fail.Store(false)
	if err := s.Reload(context.Background(), next); err != nil {
		t.Fatal(err)
	}
	if got := s.check(t, "api", "alice"); got != 20 {
		t.Errorf("alice is decided by a limit of %d, want 20", got)
	}
	v, err := s.core.Engine.Peek(context.Background(), s.state.Load().call.Rules.Rule("api"), &ruleset.Query{Key: "alice", Cost: 1})
	if err != nil || v.Remaining != 20-5 {
		t.Errorf("%d units remain of 20 after 5, %v", v.Remaining, err)
	}
}

// Under load, failing and succeeding reloads change the limits of both policies together: a request
// is decided by the limits of its own state, and nothing fails.
func TestTransactionsUnderLoad(t *testing.T) {
	var fail, done atomic.Bool
	s, _ := newTransactions(t, &fail)
	var wg sync.WaitGroup
	var decided atomic.Int64
	defer wg.Wait()
	defer done.Store(true)
	for w := range 4 {
		wg.Go(func() {
			for i := 0; !done.Load(); i++ {
				caller := call.Caller{State: s.state.Load().call}
				for _, name := range []string{"api", "web"} {
					if _, bad := s.core.Check(context.Background(), caller, []byte(name), &ruleset.Query{Key: fmt.Sprint(w, i%100), Cost: 1}, false); bad != nil {
						t.Error(bad)
						return
					}
					decided.Add(1)
				}
			}
		})
	}
	for n := range 50 {
		fail.Store(n%2 == 1)
		rate := int64(10 + n)
		err := s.Reload(context.Background(), Live{Policies: []ruleset.Policy{onePolicy("api", rate), onePolicy("web", rate)}})
		if (err != nil) != fail.Load() {
			t.Fatalf("reload %d: %v", n, err)
		}
		want := rate
		if fail.Load() {
			want--
		}
		for _, name := range []string{"api", "web"} {
			if got := s.check(t, name, fmt.Sprint("probe", n)); got != want {
				t.Errorf("after reload %d, %s is decided by a limit of %d, want %d", n, name, got, want)
			}
		}
	}
	if decided.Load() == 0 {
		t.Error("nothing was decided meanwhile")
	}
}

// An override that another node sets is applied also if a reload that read it has failed.
func TestOverrideBesideAFailedReload(t *testing.T) {
	var fail atomic.Bool
	s, _ := newTransactions(t, &fail)
	o := Override{Policy: "api", Override: ruleset.Override{Key: "alice", Limits: onePolicy("api", 99).Limits}}
	if err := s.overrides.Put(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	fail.Store(true)
	if err := s.Reload(context.Background(), Live{Policies: []ruleset.Policy{onePolicy("api", 20)}}); err == nil {
		t.Fatal("the reload did not fail")
	}
	s.overridesChanged(context.Background())
	if got := s.check(t, "api", "alice"); got != 99 {
		t.Errorf("alice is decided by a limit of %d, want 99", got)
	}
}
