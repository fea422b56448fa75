package server

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/server/internal/respapi"
	"github.com/weirlimit/weir/weirprom"
)

// newRESP makes the service of the Redis protocol's listener. CL.THROTTLE passes its limit
// parameters with each call; with a store in memory it has a table of its own.
func (s *Server) newRESP() (*respService, error) {
	c := respapi.Config{
		Engine: s.engine, State: func() *respapi.State { return s.state.Load().resp },
		Observe: s.observer.Decided, ObserveEach: s.observer.DecidedEach, ObserveAdmitted: s.observer.Admitted,
		Log: s.cfg.Log, Version: s.cfg.Version, Idle: respapi.DefaultIdle, Proven: markProven,
	}
	if s.cfg.Backend == "redis" {
		c.Throttler = respapi.NewShared(s.cfg.Limiter)
		return &respService{Server: respapi.New(c)}, nil
	}
	table, err := respapi.NewTable(0, nil)
	if err != nil {
		return nil, err
	}
	c.Throttler = table
	figures := weirprom.NewThrottle(func() weirprom.ThrottleStats { return weirprom.ThrottleStats(table.Stats()) })
	return &respService{Server: respapi.New(c), collectors: []prometheus.Collector{figures}}, nil
}

// respService is a respapi.Server as a service.
type respService struct {
	*respapi.Server
	collectors []prometheus.Collector // of CL.THROTTLE's table
}

// Close closes all connections at once.
func (r *respService) Close() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.Shutdown(ctx) // its error is that of ctx
	return nil
}
