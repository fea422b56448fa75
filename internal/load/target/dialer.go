package target

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
)

// A dialer makes connections to one address and remembers them, so that closing it
// ends those that a pool has lost sight of: a request that was abandoned may keep
// its connection a little longer than its caller waits.
type dialer struct {
	plan *plan // set by newDialer, like net, ctx and stop
	net  net.Dialer
	ctx  context.Context // ends with the dialer
	stop context.CancelFunc

	mu    sync.Mutex // guards conns
	conns map[*conn]struct{}
}

// A conn is a connection that its dialer knows.
type conn struct {
	net.Conn
	dialer *dialer
}

func newDialer(p *plan) *dialer {
	d := &dialer{plan: p, conns: map[*conn]struct{}{}}
	d.net.Timeout = p.Timeout
	d.ctx, d.stop = context.WithCancel(context.Background())
	return d
}

// dial connects. Nobody can send it elsewhere: the address is the plan's.
func (d *dialer) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	raw, err := d.net.DialContext(ctx, "tcp", d.plan.address.hostPort())
	switch {
	case err != nil && d.ctx.Err() != nil:
		return nil, net.ErrClosed
	case err != nil:
		return nil, err
	}
	return d.keep(raw)
}

// keep remembers a connection, unless the dialer was closed meanwhile.
func (d *dialer) keep(raw net.Conn) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil {
		_ = raw.Close()
		return nil, net.ErrClosed
	}
	c := &conn{Conn: raw, dialer: d}
	d.conns[c] = struct{}{}
	return c, nil
}

// Close also makes the dialer forget the connection.
func (c *conn) Close() error {
	c.dialer.mu.Lock()
	delete(c.dialer.conns, c)
	c.dialer.mu.Unlock()
	return c.Conn.Close()
}

// close ends all connections and those that are being made.
func (d *dialer) close() {
	d.mu.Lock()
	d.stop()
	rest := d.conns
	d.conns = map[*conn]struct{}{}
	d.mu.Unlock()
	for c := range rest {
		_ = c.Conn.Close()
	}
}

// connect is dial, and the handshake of TLS if the URL asks for it.
func (d *dialer) connect(ctx context.Context) (net.Conn, error) {
	raw, err := d.dial(ctx)
	if err != nil || !d.plan.address.isTLS() {
		return raw, err
	}
	secure := tls.Client(raw, d.plan.tlsConfig())
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, explain(err)
	}
	if got := secure.ConnectionState().NegotiatedProtocol; d.plan.Protocol.needsHTTP2() && got != "h2" {
		_ = raw.Close()
		return nil, errNoHTTP2
	}
	return secure, nil
}

var errNoHTTP2 = errors.New("the server does not speak HTTP/2")

// explain says what the alert of a server without HTTP/2 means. crypto/tls has no
// type for alerts that come from the other side.
func explain(err error) error {
	if strings.Contains(err.Error(), "no application protocol") {
		return fmt.Errorf("%w: %w", errNoHTTP2, err)
	}
	return err
}

// tlsConfig is the same for probing and for calling.
func (p *plan) tlsConfig() *tls.Config {
	c := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         p.address.host,
		InsecureSkipVerify: p.Insecure, //nolint:gosec // only if the user asks for it
	}
	if p.Protocol.needsHTTP2() {
		c.NextProtos = []string{"h2"}
	}
	return c
}
