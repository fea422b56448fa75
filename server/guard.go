package server

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
)

// Guard configures the guard of services: who may call which endpoint. Config.Shared and Config.Hooks are the
// server's and ignored.
type Guard struct {
	guard.Config

	// PrincipalHeader is the header in which trusted proxies, those of Identity.ClientIP, pass who is
	// authenticated, for example "x-user". By default nobody is.
	PrincipalHeader string

	// PlanHeader is the header in which they pass the plan of the principal. The default is none.
	PlanHeader string
}

// guarding is the guard of a server.
type guarding struct {
	guard *guard.Guard           // made with the first configuration that has a guard
	log   *guard.ViolationLogger // made with it
}

// policies returns all policies: those that callers may name, with the budgets, and the guard's.
func (l *Live) policies() []ruleset.Policy {
	list := append(l.Policies[:len(l.Policies):len(l.Policies)], l.budgetPolicies()...)
	if l.Guard == nil {
		return list
	}
	return append(list, l.Guard.Policies()...)
}

// validatePolicies returns what is wrong with the policies and the guard.
func (l *Live) validatePolicies() error {
	rules, err := ruleset.Compile(l.policies(), nil)
	if err != nil || l.Guard == nil {
		return err
	}
	_, err = guard.Compile(l.Guard.Config, rules)
	return err
}

// prepareGuard compiles the guard with the policies that preparePolicies has compiled.
func prepareGuard(s *Server, next, _ *state) error {
	g := next.live.Guard
	if g == nil {
		return nil
	}
	config := g.Config
	config.Shared = s.cfg.Backend == "redis"
	rules, err := guard.Compile(config, next.call.Rules)
	if err != nil {
		return err
	}
	proxies, err := clientip.New(g.Identity.ClientIP)
	if err != nil {
		return fmt.Errorf("server: Guard: %w", err)
	}
	next.guard = rules
	next.call.Guard = &call.Guard{
		Guard: s.guarding.guard, Proxies: proxies, Policies: map[string]bool{},
		PrincipalHeader: http.CanonicalHeaderKey(g.PrincipalHeader), PlanHeader: http.CanonicalHeaderKey(g.PlanHeader),
		KeyHeader: http.CanonicalHeaderKey(cmp.Or(g.Identity.KeyHeader, "X-Api-Key")),
	}
	for _, p := range g.Policies() {
		next.call.Guard.Policies[p.Name] = true
	}
	return nil
}

// commitGuard puts the rules of the guard in force. The guard itself is made once, so that it keeps
// what it knows of subjects.
func commitGuard(s *Server, t *transaction, st *state) error {
	g := &s.guarding
	switch {
	case st.guard == nil:
		return nil // no request reaches the guard any more
	case g.guard == nil:
		log := guard.NewLogger(s.cfg.Log, 0)
		made, err := guard.NewWith(s.core.Engine, st.guard, guard.Hooks{OnViolation: s.violated(log)})
		if err != nil {
			return err
		}
		g.guard, g.log = made, log
	default:
		if err := g.guard.Apply(t.ctx, st.guard); err != nil {
			return err
		}
		g.guard.Replace(st.guard)
	}
	st.call.Guard.Guard = g.guard
	return nil
}

// violated returns what is done with violations.
func (s *Server) violated(log *guard.ViolationLogger) func(guard.Violation) {
	return func(v guard.Violation) {
		log.Log(v)
		s.observer.Violated(v)
	}
}

// privatePolicies returns the limits of the guard that are no policies of the rules.
func (st *state) privatePolicies() []*weir.Policy {
	if st.guard == nil {
		return nil
	}
	return st.guard.Private()
}

// closeGuard ends what the guard has begun.
func (s *Server) closeGuard() {
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.guarding.guard != nil {
		s.guarding.guard.Close()
		s.guarding.log.Close()
	}
}

// currentGuard returns the guard, nil if none is configured.
func (s *Server) currentGuard() *guard.Guard {
	if g := s.state.Load().call.Guard; g != nil {
		return g.Guard
	}
	return nil
}

// guardStats returns the counts of the guard for metrics, the zero Stats if there is none.
func (s *Server) guardStats() guard.Stats {
	if g := s.currentGuard(); g != nil {
		return g.Stats()
	}
	return guard.Stats{}
}
