package server

import (
	"context"

	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/server/internal/respapi"
)

// newRESP makes the service of the Redis protocol's listener.
func (s *Server) newRESP() *respService {
	return &respService{respapi.New(respapi.Config{
		Core: s.core, State: func() *call.State { return s.state.Load().call },
		ObserveAdmitted: s.observer.Admitted, Version: s.cfg.Version, Idle: respapi.DefaultIdle, Proven: markProven,
	})}
}

// respService is a respapi.Server as a service.
type respService struct{ *respapi.Server }

// Close closes all connections at once.
func (r *respService) Close() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.Shutdown(ctx) // its error is that of ctx
	return nil
}
