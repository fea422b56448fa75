package server

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/gateway"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/adminapi"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/server/internal/envoyapi"
	"github.com/weirlimit/weir/server/internal/httpapi"
)

// state is everything that can change while a server runs. It is immutable but for operators'
// overrides; a change replaces it. A request loads it once and uses it until it is answered.
type state struct {
	live  Live
	call  *call.State            // the policies, and who may use them
	http  *httpapi.State         // the same, and what only HTTP needs
	envoy *envoyapi.Rules        // the domains of Envoy's service
	guard *guard.Rules           // nil if none is configured
	tls   map[string]*tls.Config // by the listener's name

	routes map[string]*gateway.Route // of the gateway, by name
}

// sections are the parts of Live, in the order in which they are prepared and committed.
var sections = []section{
	{name: "reach", prepare: checkReach},
	{name: "policies", prepare: preparePolicies, commit: commitPolicies},
	{name: "budgets", prepare: prepareBudgets, commit: commitBudgets},
	{name: "routes", prepare: prepareRoutes, commit: commitRoutes, finish: finishRoutes},
	{name: "envoy", prepare: prepareEnvoy, commit: commitEnvoy},
	{name: "guard", prepare: prepareGuard, commit: commitGuard},
	{name: "clients", prepare: prepareClients},
	{name: "forward_auth", prepare: prepareForwardAuth},
	{name: "certificates", prepare: prepareCertificates},
}

// checkReach refuses clients and operators that the listeners need and do not get.
func checkReach(s *Server, next, _ *state) error {
	return Config{HTTP: s.cfg.HTTP, GRPC: s.cfg.GRPC, RESP: s.cfg.RESP, Admin: s.cfg.Admin, Live: next.live}.ValidateListeners()
}

// preparePolicies compiles the policies, and the operators' overrides.
func preparePolicies(s *Server, next, old *state) (err error) {
	next.call = &call.State{}
	if next.call.Rules, err = ruleset.Compile(next.live.policies(), old.rules()); err != nil {
		return err
	}
	s.applyOverrides(next.call.Rules, s.known)
	return nil
}

// rules returns the policies, nil if there is no state.
func (st *state) rules() *ruleset.Rules {
	if st == nil {
		return nil
	}
	return st.call.Rules
}

// commitPolicies puts the limits of the policies in force, in place of those of another state.
func commitPolicies(s *Server, t *transaction, st *state) error {
	return s.core.Engine.Set(t.ctx, st.call.Rules)
}

func prepareEnvoy(_ *Server, next, old *state) (err error) {
	var previous *envoyapi.Rules
	if old != nil {
		previous = old.envoy
	}
	next.envoy, err = envoyapi.Compile(next.live.Envoy, previous)
	return err
}

// commitEnvoy puts the limits of Envoy's domains in force.
func commitEnvoy(s *Server, t *transaction, st *state) error {
	return s.core.Engine.Apply(t.ctx, st.envoy.Policies()...)
}

func prepareClients(s *Server, next, _ *state) error {
	clients, clientsErr := identity.NewClients(next.live.Clients)
	operators, operatorsErr := identity.NewOperators(next.live.Operators)
	next.call.Authenticator = &identity.Authenticator{Clients: clients, Open: next.live.Open, Operators: operators, Failures: s.failures}
	return errors.Join(clientsErr, operatorsErr)
}

func prepareForwardAuth(_ *Server, next, _ *state) error {
	proxies, err := next.live.ForwardAuth.resolver()
	next.http = &httpapi.State{State: next.call, Proxies: proxies, KeyFrom: next.live.ForwardAuth.KeyHeader, Legacy: next.live.LegacyHeaders}
	return err
}

// resolver returns the resolver of client addresses.
func (f ForwardAuth) resolver() (*clientip.Resolver, error) {
	c := clientip.Config{Trusted: f.Trusted, TrustUnix: f.TrustUnix, IPv6Prefix: f.IPv6Prefix}
	if len(f.Trusted) > 0 || f.TrustUnix { // headers of untrusted callers are ignored
		c.Header = cmp.Or(f.AddressHeader, "x-forwarded-for")
	}
	r, err := clientip.New(c)
	if err != nil {
		return nil, fmt.Errorf("server: ForwardAuth: %w", err)
	}
	return r, nil
}

// prepareCertificates reads the listeners' certificates.
func prepareCertificates(s *Server, next, _ *state) error {
	next.tls = map[string]*tls.Config{}
	for name, l := range map[string]Listener{"http": s.cfg.HTTP, "grpc": s.cfg.GRPC, "resp": s.cfg.RESP, "admin": s.cfg.Admin} {
		if l.TLS == nil {
			continue
		}
		c, err := l.TLS.config()
		if err != nil {
			return err
		}
		next.tls[name] = c
	}
	return nil
}

// adminState returns the admin API's state, with the error of the last reload and the address of the
// HTTP listener.
func (s *Server) adminState() *adminapi.State {
	st := s.state.Load()
	return &adminapi.State{
		Rules: st.call.Rules, Authenticator: st.call.Authenticator, Effective: st.live.Effective,
		Reload: s.troubleText(), API: s.api(len(st.live.Clients) > 0),
	}
}

// api returns where /v1 is served. Token is whether callers need one.
func (s *Server) api(token bool) adminapi.API {
	api := adminapi.API{Token: token}
	where := s.where.Load()
	if where == nil { // it does not listen yet
		return api
	}
	host, scheme := where.HTTP.String(), "http"
	if where.HTTP.Network() == "unix" {
		api.Socket, host = host, "localhost"
	}
	if s.cfg.HTTP.TLS != nil {
		scheme = "https"
	}
	if where.Admin != nil {
		api.URL = scheme + "://" + host
	}
	return api
}
