package respapi

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
)

// Config is what New needs. All fields but Version, Proven and Idle are required.
type Config struct {
	Core    *call.Core
	State   func() *call.State // the current state; called once per round of commands
	Version string             // of the daemon, for INFO

	// ObserveAdmitted is Core.Observe for n admitted decisions that were not timed. If each of them
	// must be observed by itself, it does nothing and returns false.
	ObserveAdmitted func(v *ruleset.Variant, n int) bool

	// Proven, if set, is called once for each connection, with the first reply after it was
	// authenticated, or with the first reply at all where no authentication is needed.
	Proven func(net.Conn)

	// Idle is how long a connection may be idle. 0 means no limit; DefaultIdle is a good
	// choice.
	Idle time.Duration
}

// DefaultIdle is longer than the usual idle timeout of clients' connection pools.
const DefaultIdle = 5 * time.Minute

// ErrClosed is what Serve returns after Shutdown.
var ErrClosed = errors.New("respapi: closed")

// Server answers commands. Make one with New.
type Server struct {
	cfg       Config // set by New, like the next three
	throttler *throttler
	began     time.Time

	// ctx is canceled when connections are force-closed. It ends commands that wait for a
	// store.
	ctx    context.Context
	cancel context.CancelFunc

	// draining is set by Shutdown before it wakes the connections with a read deadline. A
	// connection checks it after it has set its own deadline and before it reads, so it is
	// woken or sees draining.
	draining atomic.Bool

	ids      atomic.Int64 // of connections
	commands atomic.Int64 // that were answered; see conn.count
	running  sync.WaitGroup

	mu        sync.Mutex // guards the fields below
	listeners []net.Listener
	conns     map[*conn]struct{}
}

// New returns a server that answers once Serve is called.
func New(cfg Config) *Server {
	if cfg.Proven == nil {
		cfg.Proven = func(net.Conn) {}
	}
	s := &Server{cfg: cfg, throttler: newThrottler(cfg.Core.Engine.Limiter()), began: time.Now(), conns: map[*conn]struct{}{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Stats are statistics of a server.
type Stats struct {
	Conns    int
	Commands int64 // since the start; up to 63 of each connection are not counted yet
}

// Stats returns the server's statistics.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{Conns: len(s.conns), Commands: s.commands.Load()}
}

// Serve accepts connections until Shutdown, and then returns ErrClosed. It closes l. Each
// connection is served by a goroutine, for which Shutdown waits.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	if !s.add(l) {
		return ErrClosed
	}
	var pause time.Duration
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.start(c)
		case s.draining.Load():
			return ErrClosed
		case errors.Is(err, net.ErrClosed):
			return err
		default: // a temporary error, such as too many open files
			pause = min(max(5*time.Millisecond, 2*pause), time.Second)
			s.cfg.Core.Log.Warn("cannot accept", "error", err, "again_in", pause)
			select {
			case <-time.After(pause):
			case <-s.ctx.Done():
			}
		}
	}
}

func (s *Server) add(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Load() {
		return false
	}
	s.listeners = append(s.listeners, l)
	return true
}

// start serves a connection.
func (s *Server) start(nc net.Conn) {
	c := newConn(s, nc)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Load() {
		nc.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.running.Go(func() {
		defer s.forget(c)
		c.serve()
	})
}

func (s *Server) forget(c *conn) {
	c.net.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// Shutdown stops accepting. Commands that were received are answered, those that arrive in the
// next second get the shutdown reply, and connections are closed. When ctx ends, the remaining
// connections are force-closed, and ctx's error is returned.
func (s *Server) Shutdown(ctx context.Context) error {
	s.beginDrain()
	defer s.cancel()
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	s.cancel()
	s.mu.Lock()
	for c := range s.conns {
		c.net.Close()
	}
	s.mu.Unlock()
	<-done
	return ctx.Err()
}

// Close closes all connections at once.
func (s *Server) Close() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Shutdown(ctx) // its error is that of ctx
	return nil
}

// awaitWoken returns when beginDrain has woken all connections. A connection that sees draining
// before it is woken calls it, since the wake-up would overwrite its next deadline.
func (s *Server) awaitWoken() {
	s.mu.Lock()
	defer s.mu.Unlock()
}

// beginDrain closes the listeners and wakes the connections.
func (s *Server) beginDrain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining.Store(true)
	for _, l := range s.listeners {
		l.Close() // it may be closed already
	}
	for c := range s.conns {
		c.net.SetReadDeadline(time.Unix(1, 0)) // it fails only on a closed connection
	}
}
