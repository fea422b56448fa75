package redisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A dialer makes the connections of a client. Until it is let loose, they end with ctx,
// and so does the making of new ones: rueidis has functions without a context, and these
// have to end all the same.
type dialer struct {
	ctx    context.Context
	plain  dialFunc      // Config.Dial, set by Config.options; nil = package net's
	polite bool          // yield before reading; set where one goroutine sends and receives
	most   time.Duration // of silence while a reply is due; 0 = the client sees to that
	closed func()        // called when a connection is closed; may be nil
	loose  atomic.Bool   // set once, when the client is open; never reset
}

// dial is rueidis's ClientOption.DialCtxFn. It leaves settings.KeepAlive alone: for rueidis
// that is the time between its own pings.
func (d *dialer) dial(ctx context.Context, addr string, settings *net.Dialer, secure *tls.Config) (net.Conn, error) {
	bound := !d.loose.Load()
	if bound {
		ctx = d.ctx
	}
	conn, err := dial(ctx, addr, d.plain, settings.Timeout, secure)
	if err != nil {
		return nil, &dialError{addr, err}
	}
	conn = &guardedConn{Conn: conn}
	if d.most > 0 {
		conn = &silenceConn{Conn: conn, most: d.most}
	}
	if d.polite {
		conn = politeConn{conn}
	}
	if !bound {
		return conn, nil
	}
	stop := context.AfterFunc(d.ctx, func() {
		if !d.loose.Load() {
			conn.Close()
		}
	})
	return &boundConn{Conn: conn, release: sync.OnceFunc(func() {
		stop()
		if d.closed != nil {
			d.closed()
		}
	})}, nil
}

// A dialFunc is a Config.Dial.
type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// errNoConn is for a Config.Dial that returns nil and nil.
var errNoConn = errors.New("no connection and no error from Dial")

// dial connects by plain, TLS included, within the time-out unless that is 0.
func dial(ctx context.Context, addr string, plain dialFunc, timeout time.Duration, secure *tls.Config) (net.Conn, error) {
	if plain == nil {
		plain = (&net.Dialer{}).DialContext
	}
	network := "tcp"
	if isSocket(addr) {
		network = "unix"
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	conn, err := plain(ctx, network, addr)
	switch {
	case err != nil:
		return nil, err
	case conn == nil:
		return nil, errNoConn
	}
	if secure == nil {
		return conn, nil
	}
	if secure.ServerName == "" {
		secure = secure.Clone()
		secure.ServerName, _, _ = net.SplitHostPort(addr)
	}
	client := tls.Client(conn, secure)
	if err := client.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return client, nil
}

// politeConn yields to other goroutines before it reads. After a write the reply takes a while,
// and other goroutines may have something to send meanwhile; afterwards the reply has often
// arrived, and the read does not block.
type politeConn struct{ net.Conn }

func (c politeConn) Read(b []byte) (int, error) {
	runtime.Gosched()
	return c.Conn.Read(b)
}

// boundConn is a connection that a dialer would like to know the end of.
type boundConn struct {
	net.Conn
	release func()
}

func (c *boundConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// dialError says that no connection was made, so that nothing was sent.
type dialError struct {
	addr string
	err  error
}

func (e *dialError) Error() string { return fmt.Sprintf("redisconn: %s: %v", e.addr, e.reason()) }
func (e *dialError) Unwrap() error { return e.err }

// reason returns the error without what net adds to it, which is the address again. An
// error of Config.Dial that only wraps one of net's stays as it is.
func (e *dialError) reason() error {
	op, ok := e.err.(*net.OpError)
	if !ok {
		return e.err
	}
	var call *os.SyscallError
	if errors.As(op.Err, &call) {
		return call.Err
	}
	return op.Err
}
