package server

import (
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/server/internal/respapi"
)

// newRESP makes the service of the Redis protocol's listener.
func (s *Server) newRESP() *respapi.Server {
	return respapi.New(respapi.Config{
		Core: s.core, State: func() *call.State { return s.state.Load().call },
		ObserveAdmitted: s.observer.Admitted, Version: s.cfg.Version, Idle: respapi.DefaultIdle, Proven: markProven,
	})
}
