package server

import (
	"context"
	"crypto/tls"
	"net"

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
	collectors []prometheus.Collector // of CL.THROTTLE's table
}

// Serve marks each connection as proven with its first reply. See capped.
func (r *respService) Serve(l net.Listener) error { return r.Server.Serve(provingListener{l}) }

// Close closes all connections at once.
func (r *respService) Close() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.Shutdown(ctx) // its error is that of ctx
	return nil
}

// provingListener is a listener whose connections are marked as proven with their first reply.
type provingListener struct{ net.Listener }

func (l provingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if t, ok := conn.(*tls.Conn); ok { // the handshake is written to the underlying connection, and does not count
		return &provingTLS{Conn: t, below: t.NetConn()}, nil
	}
	return &provingConn{Conn: conn}, nil
}

// provingConn is a connection without TLS.
type provingConn struct{ net.Conn }

func (c *provingConn) Write(b []byte) (int, error) {
	markProven(c.Conn)
	return c.Conn.Write(b)
}

// CloseWrite closes the write side of the connection.
func (c *provingConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}

// provingTLS is a connection with TLS. It embeds the *tls.Conn, from which respapi reads the
// client's certificate.
type provingTLS struct {
	*tls.Conn
	below net.Conn
}

func (c *provingTLS) Write(b []byte) (int, error) {
	markProven(c.below)
	return c.Conn.Write(b)
}
