package server

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/server/internal/respapi"
)

// newRESP makes the service of the Redis protocol's listener.
func (s *Server) newRESP() *respService {
	return &respService{respapi.New(respapi.Config{
		Core: s.core, State: func() *call.State { return s.state.Load().call },
		ObserveAdmitted: s.observer.Admitted, Version: s.cfg.Version, Idle: respapi.DefaultIdle,
	})}
}

// respService is a respapi.Server as a service.
type respService struct{ *respapi.Server }

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
