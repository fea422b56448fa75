package server

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/server/internal/respapi"
	"github.com/weirlimit/weir/weirprom"
)

// newRESP makes what serves the listener of the Redis protocol. CL.THROTTLE brings its
// numbers along; a store in memory has a table of their own for them.
func (s *Server) newRESP() (*respService, error) {
	c := respapi.Config{
		Guard: s.guard, State: func() *respapi.State { return s.state.Load().resp },
		Observe: s.observer.Decided, ObserveEach: s.observer.DecidedEach, ObserveAdmitted: s.observer.Admitted,
		Log: s.cfg.Log, Version: s.cfg.Version, Idle: respapi.DefaultIdle,
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
	collectors []prometheus.Collector // of what it alone has
}

// Serve has connections keep their place among others once they have had a reply.
func (r *respService) Serve(l net.Listener) error { return r.Server.Serve(settling{l}) }

// Close cuts connections off.
func (r *respService) Close() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.Shutdown(ctx) // whose error is that of ctx
	return nil
}

// settling is a listener whose connections settle with the first reply.
type settling struct{ net.Listener }

func (l settling) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if t, ok := conn.(*tls.Conn); ok { // whose handshake is written to the connection below
		return &settlingTLS{Conn: t, below: t.NetConn()}, nil
	}
	return &settlingConn{Conn: conn}, nil
}

// settlingConn is a connection without TLS.
type settlingConn struct{ net.Conn }

func (c *settlingConn) Write(b []byte) (int, error) {
	markProven(c.Conn)
	return c.Conn.Write(b)
}

// CloseWrite tells the other end that nothing follows.
func (c *settlingConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}

// settlingTLS is a connection with TLS. It stays a *tls.Conn for those who look for a
// certificate.
type settlingTLS struct {
	*tls.Conn
	below net.Conn
}

func (c *settlingTLS) Write(b []byte) (int, error) {
	markProven(c.below)
	return c.Conn.Write(b)
}
