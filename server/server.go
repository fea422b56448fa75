package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/server/internal/httpapi"
)

// How long a caller may take, and how much it may send, before it is cut off.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 8 * time.Second // less than stopTimeout, so that a slow caller cannot spoil a stop
	writeTimeout      = 15 * time.Second
	idleTimeout       = 60 * time.Second
	maxHeaderBytes    = 64 << 10
)

// stopTimeout is how long requests that are being answered may take to finish
// once the server stops.
const stopTimeout = 10 * time.Second

// drainDelay is how long a server that stops goes on to accept, not ready, so that
// those who watch /readyz send their calls elsewhere and those with an open
// connection are asked to close it.
const drainDelay = 500 * time.Millisecond

// Server is a daemon. Make one with New.
type Server struct {
	cfg     Config       // with defaults, set once by New
	handler http.Handler // set once by New
	ready   atomic.Bool  // written by Run, read by GET /readyz
	drain   atomic.Bool  // written by Run, read by serve: callers are to close
}

// New returns a server that listens once Run is called. Its error joins every
// problem with the configuration.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg.normal()}
	s.handler = httpapi.New(httpapi.Config{
		Limiter:  s.cfg.Limiter,
		Policies: s.cfg.Policies,
		Log:      s.cfg.Log,
		Ready:    s.ready.Load,
		Version:  s.cfg.Version,
	})
	return s, nil
}

// Run listens and serves until ctx ends, then lets the requests that are being
// answered finish. It returns nil after a clean stop, and an error if it could
// not listen or if requests were cut off after 10 s. One Run at a time.
func (s *Server) Run(ctx context.Context) error {
	l, err := listen(ctx, s.cfg.HTTP, s.cfg.MaxConns)
	if err != nil {
		return err
	}
	hs := s.httpServer()
	failed := make(chan error, 1)
	s.ready.Store(true)
	defer s.ready.Store(false)
	s.cfg.Log.Info("listening", "http", l.Addr().String())
	s.cfg.OnListen(l.Addr())
	go func() { failed <- hs.Serve(l) }()
	select {
	case err := <-failed:
		return errors.Join(fmt.Errorf("server: stopped serving %v: %w", l.Addr(), err), hs.Close())
	case <-ctx.Done():
	}
	err = s.stop(hs)
	<-failed // the goroutine is gone when Run is
	return err
}

func (s *Server) httpServer() *http.Server {
	return &http.Server{
		Handler:                      http.HandlerFunc(s.serve),
		ReadHeaderTimeout:            readHeaderTimeout,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		DisableGeneralOptionsHandler: true, // OPTIONS passes the gate like the rest
		ErrorLog:                     slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelWarn),
	}
}

// serve answers and, once the server stops, asks the caller to close.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if s.drain.Load() {
		w.Header().Set("Connection", "close")
	}
	s.handler.ServeHTTP(w, r)
}

// stop ends hs: not ready for drainDelay, gently for stopTimeout, then at once.
func (s *Server) stop(hs *http.Server) error {
	s.ready.Store(false)
	s.drain.Store(true)
	defer s.drain.Store(false)
	s.cfg.Log.Info("stopping", "at_most", drainDelay+stopTimeout)
	time.Sleep(drainDelay)
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	err := hs.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.Join(fmt.Errorf("server: requests were still running after %v and were cut off", stopTimeout), hs.Close())
	}
	if err != nil {
		return fmt.Errorf("server: stop: %w", err)
	}
	s.cfg.Log.Info("stopped")
	return nil
}
