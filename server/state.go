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

	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/internal/realip"
	"github.com/weirlimit/weir/server/internal/adminapi"
	"github.com/weirlimit/weir/server/internal/connectapi"
	"github.com/weirlimit/weir/server/internal/envoyapi"
	"github.com/weirlimit/weir/server/internal/httpapi"
	"github.com/weirlimit/weir/server/internal/respapi"
)

// state is everything that can change while a server runs. It is immutable; a change is
// another state. A request loads it once and is answered by it, whatever changes
// meanwhile.
type state struct {
	live    Live
	rules   *guard.Rules
	http    *httpapi.State
	connect *connectapi.State
	envoy   *envoyapi.Rules
	resp    *respapi.State
	admin   *adminapi.State
	tls     map[string]*tls.Config // by the listener's address
}

// compile makes the state that follows from live and the overrides that operators have
// set. What did not change since old, which may be nil, is taken over.
func (s *Server) compile(live Live, set []Override, old *state) (*state, error) {
	live = live.normal()
	if err := live.Validate(); err != nil {
		return nil, err
	}
	if err := s.cfg.checkReach(&live); err != nil {
		return nil, err
	}
	var previous *guard.Rules
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
	if err := st.readTLS(s.cfg.HTTP, s.cfg.GRPC, s.cfg.RESP, s.cfg.Admin); err != nil {
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

// compileRules puts the overrides of operators after those of the file. One that does not
// fit the policies any more is left out: it was right when it was set, and must not keep
// a daemon from starting.
func (s *Server) compileRules(policies []guard.Policy, set []Override, previous *guard.Rules) (*guard.Rules, error) {
	policies = slices.Clone(policies)
	for _, o := range set {
		i := slices.IndexFunc(policies, func(p guard.Policy) bool { return p.Name == o.Policy })
		if i < 0 {
			s.cfg.Log.Warn("an override is for a policy that there is not", "policy", o.Policy)
			continue
		}
		alone := policies[i]
		alone.Overrides = []guard.Override{o.Override}
		if _, err := guard.Compile([]guard.Policy{alone}, nil); err != nil {
			s.cfg.Log.Warn("an override does not fit its policy any more", "policy", o.Policy, "error", err)
			continue
		}
		policies[i].Overrides = append(slices.Clip(policies[i].Overrides), o.Override)
	}
	return guard.Compile(policies, previous)
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

// resolver returns what finds out whose request a proxy asks about.
func (f ForwardAuth) resolver() (*realip.Resolver, error) {
	c := realip.Config{Trusted: f.Trusted, TrustUnix: f.TrustUnix, IPv6Prefix: f.IPv6Prefix}
	if len(f.Trusted) > 0 || f.TrustUnix { // nobody else's header counts
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

func (st *state) readTLS(listeners ...Listener) error {
	for _, l := range listeners {
		if l.TLS == nil {
			continue
		}
		c, err := l.TLS.config()
		if err != nil {
			return err
		}
		st.tls[l.Address] = c
	}
	return nil
}

// Reload puts another configuration in force: policies, clients, operators and the rest of
// Live; certificates are read again. Requests that are being answered are answered by the
// old one, and every key's units in use are kept. Limits of live that are not in force, because
// another process has replaced them, are put in force again. If it returns an error, this server
// decides as before, and metrics and /readyz say so until the next Reload.
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

// ReloadFailed notes that a configuration could not even be read.
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
		s.cfg.Log.Warn("the overrides that operators set cannot be read; those that were known hold", "error", err)
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

// putInForce puts the limits of a state in force as they are, also where the limiter has
// replaced them. Where it has not, nothing changes.
func (s *Server) putInForce(ctx context.Context, st *state) error {
	for _, p := range slices.Concat(st.rules.Policies(), st.envoy.Policies()) {
		if err := s.cfg.Limiter.Set(ctx, p, p); err != nil {
			return fmt.Errorf("server: policy %q: %w", p.Name(), err)
		}
	}
	return nil
}

// changeLocked puts a state with these overrides in force, and changes the limits that were others
// in the state before. It requires s.changing.
func (s *Server) changeLocked(ctx context.Context, st *state, set []Override) error {
	old := s.state.Load()
	if err := s.envoy.Set(ctx, st.envoy); err != nil {
		return err
	}
	if err := s.guard.Set(ctx, st.rules); err != nil {
		return errors.Join(err, s.envoy.Set(context.WithoutCancel(ctx), old.envoy))
	}
	s.state.Store(st)
	s.known = set
	return nil
}

// refresh takes over the overrides that operators have set, here or on another node.
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

// sameOverrides says whether two lists have the same in them. It sorts them.
func sameOverrides(a, b []Override) bool {
	order := func(a, b Override) int {
		return cmp.Or(strings.Compare(a.Policy, b.Policy), strings.Compare(a.Key, b.Key))
	}
	slices.SortFunc(a, order)
	slices.SortFunc(b, order)
	return len(a) == len(b) && (len(a) == 0 || reflect.DeepEqual(a, b))
}

// putOverride keeps an override and puts it in force.
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

// troubleText says what went wrong with the last reload, "" if nothing did.
func (s *Server) troubleText() string {
	if t := s.trouble.Load(); t != nil {
		return *t
	}
	return ""
}

// adminState is the admin API's part, with what went wrong lately.
func (s *Server) adminState() *adminapi.State {
	st := *s.state.Load().admin
	st.Reload = s.troubleText()
	return &st
}
