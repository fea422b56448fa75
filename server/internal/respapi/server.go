package respapi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/identity"
)

// Config is what New needs. All fields but Version and Idle are required.
type Config struct {
	Guard     *guard.Guard
	State     func() *State // what holds now; asked once for commands that come together
	Observe   func(*guard.Record)
	Throttler Throttler // for CL.THROTTLE
	Log       *slog.Logger
	Version   string // of the daemon, for INFO

	// ObserveEach is Observe for the decisions on several items, of which the first took
	// so long.
	ObserveEach func(items []guard.Item, verdicts []guard.Verdict, took time.Duration)

	// ObserveAdmitted is Observe for n decisions that admitted something and were not timed.
	// It returns false, and has done nothing, if each of them is to be observed.
	ObserveAdmitted func(v *guard.Variant, n int) bool

	// Idle is how long a connection may be silent. 0 means as long as it likes;
	// DefaultIdle is a good choice.
	Idle time.Duration
}

// DefaultIdle is longer than clients leave a pooled connection alone.
const DefaultIdle = 5 * time.Minute

// State is what can change while the daemon runs. A State is immutable; a change is
// another one.
type State struct {
	Rules         *guard.Rules
	Authenticator *identity.Authenticator
}

// ErrClosed is what Serve returns after Shutdown.
var ErrClosed = errors.New("respapi: closed")

// Server answers commands. Make one with New.
type Server struct {
	cfg   Config // set by New, like the next two
	began time.Time

	// ctx ends when connections are cut off, and with it commands that wait for a store.
	ctx    context.Context
	cancel context.CancelFunc

	// draining is set by Shutdown before it wakes the connections. A connection looks
	// at it after it has set a deadline and before it reads, so it is woken or sees it.
	draining atomic.Bool

	ids      atomic.Int64 // of connections
	commands atomic.Int64 // that were carried out; counted once per pipeline
	running  sync.WaitGroup

	mu        sync.Mutex // guards the fields below
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
}

// New returns a server that answers once Serve is called.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, began: time.Now(), listeners: map[net.Listener]struct{}{}, conns: map[*conn]struct{}{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Stats is how a server stands.
type Stats struct {
	Conns    int
	Commands int64 // since it began; some of each busy connection are missing
}

// Stats returns how the server stands.
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
	defer s.remove(l)
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
		default: // such as too many open files: it passes
			pause = min(max(5*time.Millisecond, 2*pause), time.Second)
			s.cfg.Log.Warn("cannot accept", "error", err, "again_in", pause)
			s.sleep(pause)
		}
	}
}

// sleep waits, but not for longer than the server lives.
func (s *Server) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.ctx.Done():
	}
}

func (s *Server) add(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Load() {
		return false
	}
	s.listeners[l] = struct{}{}
	return true
}

func (s *Server) remove(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
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

// Shutdown stops accepting. Commands that were received are carried out and answered, those
// that come in the next second are told that they are not, and connections closed.
// When ctx ends the rest is cut off, and its error returned.
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

// awaitWoken returns when beginDrain has woken all connections. One that sees that the server
// drains before it is woken would lose the deadline that it sets itself.
func (s *Server) awaitWoken() {
	s.mu.Lock()
	defer s.mu.Unlock()
}

// beginDrain closes the listeners and wakes the connections.
func (s *Server) beginDrain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining.Store(true)
	for l := range s.listeners {
		l.Close()
	}
	for c := range s.conns {
		c.net.SetReadDeadline(time.Unix(1, 0)) // an error means that it is closed
	}
}
