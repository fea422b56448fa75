package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/internal/realip"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/adminapi"
	"github.com/weirlimit/weir/server/internal/connectapi"
	"github.com/weirlimit/weir/server/internal/envoyapi"
	"github.com/weirlimit/weir/server/internal/httpapi"
	"github.com/weirlimit/weir/server/internal/respapi"
)

// state is everything that can change while a server runs. It is immutable; a change replaces
// it. A request loads it once and uses it until it is answered.
type state struct {
	live    Live
	rules   *ruleset.Rules
	http    *httpapi.State
	connect *connectapi.State
	envoy   *envoyapi.Rules
	resp    *respapi.State
	admin   *adminapi.State
	tls     map[string]*tls.Config // by the listener's name
}

// compile makes a state from live and the overrides that operators have set. Parts that did
// not change since old, which may be nil, are reused.
func (s *Server) compile(live Live, set []Override, old *state) (*state, error) {
	live = live.normal()
	if err := live.Validate(); err != nil {
		return nil, err
	}
	if err := s.cfg.checkReach(&live); err != nil {
		return nil, err
	}
	var previous *ruleset.Rules
	var previousEnvoy *envoyapi.Rules
	if old != nil {
		previous, previousEnvoy = old.rules, old.envoy
	}
	rules, err := s.compileRules(live.Policies, set, previous)
	if err != nil {
		return nil, err
	}
	domains, err := envoyapi.Compile(live.Envoy, previousEnvoy)
	if err != nil {
		return nil, err
	}
	st := &state{live: live, rules: rules, envoy: domains, tls: map[string]*tls.Config{}}
	if err := st.readTLS(map[string]Listener{"http": s.cfg.HTTP, "grpc": s.cfg.GRPC, "resp": s.cfg.RESP, "admin": s.cfg.Admin}); err != nil {
		return nil, err
	}
	authenticator, err := s.authenticator(&live)
	if err != nil {
		return nil, err
	}
	proxies, err := live.ForwardAuth.resolver()
	if err != nil {
		return nil, err
	}
	st.http = &httpapi.State{
		Rules: rules, Quotas: httpapi.NewQuotas(rules), Authenticator: authenticator, Proxies: proxies,
		KeyFrom: live.ForwardAuth.KeyHeader, Legacy: live.LegacyHeaders,
	}
	st.connect = &connectapi.State{Rules: rules, Authenticator: authenticator}
	st.resp = &respapi.State{Rules: rules, Authenticator: authenticator}
	st.admin = &adminapi.State{Rules: rules, Authenticator: authenticator, Effective: live.Effective}
	return st, nil
}

// compileRules appends the operators' overrides to those of the file. An override that does
// not fit the policies any more is logged and left out: it was valid when it was set, and must
// not prevent the daemon from starting.
func (s *Server) compileRules(policies []ruleset.Policy, set []Override, previous *ruleset.Rules) (*ruleset.Rules, error) {
	policies = slices.Clone(policies)
	for _, o := range set {
		i := slices.IndexFunc(policies, func(p ruleset.Policy) bool { return p.Name == o.Policy })
		if i < 0 {
			s.cfg.Log.Warn("ignored an override of an unknown policy", "policy", o.Policy)
			continue
		}
		alone := policies[i]
		alone.Overrides = []ruleset.Override{o.Override}
		if _, err := ruleset.Compile([]ruleset.Policy{alone}, nil); err != nil {
			s.cfg.Log.Warn("ignored an override that does not fit its policy any more", "policy", o.Policy, "error", err)
			continue
		}
		policies[i].Overrides = append(slices.Clip(policies[i].Overrides), o.Override)
	}
	return ruleset.Compile(policies, previous)
}

func (s *Server) authenticator(live *Live) (*identity.Authenticator, error) {
	clients, err := identity.NewClients(live.Clients)
	if err != nil {
		return nil, err
	}
	operators, err := identity.NewOperators(live.Operators)
	if err != nil {
		return nil, err
	}
	return &identity.Authenticator{Clients: clients, Open: live.Open, Operators: operators, Throttle: s.throttle}, nil
}

// resolver returns the resolver of client addresses.
func (f ForwardAuth) resolver() (*realip.Resolver, error) {
	c := realip.Config{Trusted: f.Trusted, TrustUnix: f.TrustUnix, IPv6Prefix: f.IPv6Prefix}
	if len(f.Trusted) > 0 || f.TrustUnix { // headers of untrusted callers are ignored
		c.Header = "x-forwarded-for"
		if f.AddressHeader != "" {
			c.Header = f.AddressHeader
		}
	}
	r, err := realip.New(c)
	if err != nil {
		return nil, fmt.Errorf("server: ForwardAuth: %w", err)
	}
	return r, nil
}

func (st *state) readTLS(listeners map[string]Listener) error {
	for name, l := range listeners {
		if l.TLS == nil {
			continue
		}
		c, err := l.TLS.config()
		if err != nil {
			return err
		}
		st.tls[name] = c
	}
	return nil
}

// Reload applies another configuration: policies, clients, operators and the rest of Live;
// certificates are read again. Requests in flight finish with the old configuration, and every
// key's units in use are kept. Limits of live that another process has replaced in the store are
// applied again. If Reload returns an error, the server keeps the old configuration, and metrics
// and /readyz report the failure until the next Reload.
func (s *Server) Reload(ctx context.Context, live Live) error {
	err := s.reload(ctx, live)
	if err != nil {
		s.ReloadFailed(err)
		return err
	}
	s.reloads.Succeeded(time.Now())
	s.trouble.Store(nil)
	return nil
}

// ReloadFailed reports, in metrics and /readyz, that a configuration could not be read.
func (s *Server) ReloadFailed(err error) {
	s.reloads.Failed()
	text := fmt.Sprintf("the last reload, at %s, failed, and the configuration before it is in force: %v",
		time.Now().UTC().Format(time.RFC3339), err)
	s.trouble.Store(&text)
}

func (s *Server) reload(ctx context.Context, live Live) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	set, err := s.overrides.List(ctx)
	if err != nil {
		s.cfg.Log.Warn(overridesUnreadable, "error", err)
		set = s.known
	}
	st, err := s.compile(live, set, s.state.Load())
	if err != nil {
		return err
	}
	if err := s.putInForce(ctx, st); err != nil {
		return err
	}
	return s.changeLocked(ctx, st, set)
}

// putInForce applies the limits of a state, also those that another process has replaced in the
// store. Setting a policy to itself changes nothing if it is in force.
func (s *Server) putInForce(ctx context.Context, st *state) error {
	for _, p := range slices.Concat(st.rules.Policies(), st.envoy.Policies()) {
		if err := s.cfg.Limiter.Set(ctx, p, p); err != nil {
			return fmt.Errorf("server: policy %q: %w", p.Name(), err)
		}
	}
	return nil
}

// changeLocked applies a state with these overrides, and sets the limits that differ from those
// of the previous state. It requires s.changing.
func (s *Server) changeLocked(ctx context.Context, st *state, set []Override) error {
	old := s.state.Load()
	if err := s.envoy.Set(ctx, st.envoy); err != nil {
		return err
	}
	if err := s.engine.Set(ctx, st.rules); err != nil {
		return errors.Join(err, s.envoy.Set(context.WithoutCancel(ctx), old.envoy))
	}
	s.state.Store(st)
	s.known = set
	return nil
}

// refresh rereads the overrides that operators have set, here or on another node, and applies
// changes.
func (s *Server) refresh(ctx context.Context) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	set, err := s.overrides.List(ctx)
	if err != nil || sameOverrides(set, s.known) {
		return err
	}
	old := s.state.Load()
	st, err := s.compile(old.live, set, old)
	if err != nil {
		return err
	}
	return s.changeLocked(ctx, st, set)
}

// sameOverrides reports whether two lists have the same elements. It sorts them.
func sameOverrides(a, b []Override) bool {
	order := func(a, b Override) int {
		return cmp.Or(strings.Compare(a.Policy, b.Policy), strings.Compare(a.Key, b.Key))
	}
	slices.SortFunc(a, order)
	slices.SortFunc(b, order)
	return len(a) == len(b) && (len(a) == 0 || reflect.DeepEqual(a, b))
}

// putOverride stores an override and applies it.
func (s *Server) putOverride(ctx context.Context, o Override) error {
	set, err := s.overrides.List(ctx)
	if err != nil {
		return err
	}
	isNew := !slices.ContainsFunc(set, func(x Override) bool { return x.Policy == o.Policy && x.Key == o.Key })
	if isNew && len(set) >= maxOverrides {
		return adminapi.ErrTooMany
	}
	if err := s.overrides.Put(ctx, o); err != nil {
		return err
	}
	return s.refresh(ctx)
}

func (s *Server) removeOverride(ctx context.Context, policy, key string) (bool, error) {
	was, err := s.overrides.Remove(ctx, policy, key)
	if err != nil {
		return false, err
	}
	return was, s.refresh(ctx)
}

// troubleText returns the error of the last reload, "" if it succeeded.
func (s *Server) troubleText() string {
	if t := s.trouble.Load(); t != nil {
		return *t
	}
	return ""
}

// adminState returns the admin API's state, with the error of the last reload.
func (s *Server) adminState() *adminapi.State {
	st := *s.state.Load().admin
	st.Reload = s.troubleText()
	return &st
}
