package server

import (
	"context"
	"net"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/server/internal/connectapi"
	"github.com/weirlimit/weir/server/internal/envoyapi"
	"github.com/weirlimit/weir/server/internal/grpcapi"
	"github.com/weirlimit/weir/server/internal/respapi"
)

// newGRPC makes what serves the gRPC listener.
func (s *Server) newGRPC() *grpcapi.Server {
	return grpcapi.New(grpcapi.Config{
		Services: []grpcapi.Service{
			{Desc: &weirv1.LimiterService_ServiceDesc, Server: connectapi.NewService(s.core), Enter: s.enterLimiter},
			{Desc: &weirv1.GuardService_ServiceDesc, Server: connectapi.NewGuardService(s.core), Enter: s.enterLimiter},
			{Desc: &rlsv3.RateLimitService_ServiceDesc, Server: s.envoy, Enter: s.enterEnvoy},
		},
		Proven: markProven,
		Known: func(c identity.Credentials) bool {
			auth := s.state.Load().call.Authenticator
			return acceptsAnonymous(auth) || isKnown(auth, c)
		},
		Reflection: s.cfg.Reflection,
		Tracer:     s.tracer,
		Log:        s.cfg.Log,
	})
}

// enterLimiter authenticates a caller of the limiter service.
func (s *Server) enterLimiter(ctx context.Context, credentials identity.Credentials) (context.Context, *call.Error) {
	caller, err := s.core.Authenticate(s.state.Load().call, credentials)
	if err != nil {
		return nil, err
	}
	return call.WithCaller(ctx, caller), nil
}

// enterEnvoy authenticates a caller of Envoy's rate limit service.
func (s *Server) enterEnvoy(ctx context.Context, credentials identity.Credentials) (context.Context, *call.Error) {
	st := s.state.Load()
	caller, err := s.core.Authenticate(st.call, credentials)
	if err != nil {
		return nil, err
	}
	return envoyapi.WithRules(call.WithCaller(ctx, caller), st.envoy), nil
}

// markProven marks a connection of a capped listener as proven.
func markProven(conn net.Conn) {
	if c := below(conn); c != nil {
		c.markProven()
	}
}

// newRESP makes the service of the Redis protocol's listener.
func (s *Server) newRESP() *respapi.Server {
	return respapi.New(respapi.Config{
		Core: s.core, State: func() *call.State { return s.state.Load().call },
		ObserveAdmitted: s.observer.Admitted, Version: s.cfg.Version, Idle: respapi.DefaultIdle, Proven: markProven,
	})
}
