package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/internal/tracing"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/server/internal/envoyapi"
	"github.com/weirlimit/weir/server/internal/grpcapi"
	"github.com/weirlimit/weir/server/internal/observe"
	"github.com/weirlimit/weir/server/internal/respapi"
	"github.com/weirlimit/weir/weirprom"
)

// Timeouts and sizes of HTTP requests.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 8 * time.Second // less than stopTimeout, so that a slow caller does not delay a stop
	writeTimeout      = 15 * time.Second
	idleTimeout       = 60 * time.Second // more than package client keeps idle connections, so that the client closes them first
	maxHeaderBytes    = 64 << 10
	maxAdminHeader    = 16 << 10
)

// stopTimeout is how long requests in flight may take to finish once the server accepts no
// more. It is longer than ruleset.MaxWait, so that a request that waits in a queue is answered.
const stopTimeout = ruleset.MaxWait + time.Second

// drainDelay is how long a stopping server still accepts connections while it is not ready, so
// that load balancers which poll /readyz send requests elsewhere, and callers with an open
// connection receive Connection: close.
const drainDelay = 500 * time.Millisecond

// Server is a daemon. Make one with New.
type Server struct {
	cfg       Config // with defaults; set once by New, like everything up to began
	core      *call.Core
	sections  []section // the package's, but for tests
	observer  *observe.Observer
	failures  *identity.Failures
	overrides Overrides
	reloads   *weirprom.Reload
	handlers  handlers
	envoy     *envoyapi.Service
	grpc      *grpcapi.Server // made by Run if it listens; else nil
	resp      *respapi.Server
	tracer    *tracing.Tracer // nil if there is no tracing
	gateway   gateways
	drainFor  time.Duration // drainDelay, but for tests that stop many servers
	flushFor  time.Duration // flushTimeout, but for tests that want all spans of a busy machine
	began     time.Time

	// state is the current state. It is written under changing, and read without it.
	state    atomic.Pointer[state]
	changing sync.Mutex // guards the fields up to the blank line
	known    []Override // the operators' overrides, as last read
	guarding guarding

	trouble atomic.Pointer[string] // the error of the last reload, nil if it succeeded
	where   atomic.Pointer[Bound]  // written by Run when it listens
	ready   atomic.Bool            // written by Run, read by GET /readyz
	drain   atomic.Bool            // written by Run, read by serve: responses say Connection: close

	// stopping is canceled when the server begins to stop. It ends streams.
	stopping  context.Context
	beginStop context.CancelFunc
}

// New returns a server that listens once Run is called. Its error joins every
// problem with the configuration.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg.normal(), sections: sections, overrides: cfg.Overrides, reloads: weirprom.NewReload(), drainFor: drainDelay, flushFor: flushTimeout, began: time.Now()}
	s.stopping, s.beginStop = context.WithCancel(context.Background())
	if s.overrides == nil {
		s.overrides = &memoryOverrides{}
	}
	s.observer = observe.New(backend(s.cfg.Backend), s.cfg.Log)
	s.failures = &identity.Failures{Log: s.cfg.Log}
	var err error
	if s.tracer, err = s.newTracer(); err != nil {
		return nil, err
	}
	s.gateway.transport, s.gateway.base = newUpstreamTransport(s.tracer)
	s.gateway.stall = defaultStall
	if s.known, err = s.overrides.List(context.Background()); err != nil { // Watch calls overridesChanged when they may be readable
		s.cfg.Log.Warn("cannot read the operators' overrides; none are in force until they can be read", "error", err)
	}
	st, err := s.prepareAll(s.cfg.Live, nil)
	if err != nil {
		return nil, err
	}
	engine, err := ruleset.New(s.cfg.Limiter, st.call.Rules)
	if err != nil {
		return nil, err
	}
	s.core = &call.Core{Engine: engine, Log: s.cfg.Log, Observe: s.observer.Decided, ObserveEach: s.observer.DecidedEach, Tracer: s.tracer}
	s.envoy = envoyapi.New(s.core)
	if err := (&transaction{ctx: context.Background(), next: st}).run(s); err != nil {
		return nil, err
	}
	if s.cfg.Exclusive {
		if err := s.putInForce(context.Background(), st); err != nil {
			return nil, err
		}
	}
	s.reloads.Succeeded(s.began)
	s.resp = s.newRESP()
	s.handlers, err = s.newHandlers()
	return s, err
}

func backend(name string) weirprom.Backend {
	if name == "redis" {
		return weirprom.Redis
	}
	return weirprom.Memory
}

// Run listens and serves until ctx ends, then lets the requests that are being
// answered finish. It returns nil after a clean stop, and an error if it could
// not listen or if requests were aborted after 11 s. Call Run once.
func (s *Server) Run(ctx context.Context) error {
	where, listeners, err := s.listen(ctx)
	if err != nil {
		return err
	}
	background, end := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer s.closeGuard()
	defer wg.Wait()
	defer end()
	wg.Go(func() { s.observer.Run(background) })
	s.gateway.probes.start()
	defer s.gateway.stop()
	s.tracer.Start()
	defer s.flush()
	wg.Go(func() { s.overrides.Watch(background, func() { s.overridesChanged(background) }) })

	failed := make(chan error, len(listeners))
	s.setReady(true)
	defer s.setReady(false)
	s.announce(where, listeners)
	for _, l := range listeners {
		wg.Go(func() { failed <- l.serve() })
	}
	select {
	case err := <-failed:
		return errors.Join(fmt.Errorf("server: stopped serving: %w", err), closeAll(listeners))
	case <-ctx.Done():
	}
	return s.stop(listeners)
}

// flush sends the spans that are left.
func (s *Server) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), s.flushFor)
	defer cancel()
	s.tracer.Shutdown(ctx)
}

// setReady sets the readiness that /readyz and the gRPC health service report.
func (s *Server) setReady(ready bool) {
	s.ready.Store(ready)
	if s.grpc != nil {
		s.grpc.SetReady(ready)
	}
}

func (s *Server) httpServer(handler http.Handler, maxHeader int) *httpService {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true) // for gRPC clients of the Connect service
	return newHTTPService(&http.Server{
		Handler:                      http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(handler, w, r) }),
		Protocols:                    protocols,
		ReadHeaderTimeout:            readHeaderTimeout,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeader,
		ConnContext:                  withConn,
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: 256, MaxReadFrameSize: 64 << 10},
		DisableGeneralOptionsHandler: true, // OPTIONS passes the gate like the rest
		ErrorLog:                     newErrorLog(s.cfg.Log),
	})
}

// serve answers a request and, once the server stops, asks the caller to close the connection.
func (s *Server) serve(handler http.Handler, w http.ResponseWriter, r *http.Request) {
	if s.drain.Load() {
		w.Header().Set("Connection", "close")
	}
	c := connOf(r)
	if c == nil {
		handler.ServeHTTP(w, r)
		return
	}
	c.enter(r)
	if c.unproven() {
		defer s.prove(c, r)()
	}
	handler.ServeHTTP(w, r)
}

// stop stops all listeners: it waits for drainFor while the server is not ready, accepts the
// connections that have arrived, lets requests finish for stopTimeout, and then closes the
// remaining connections.
func (s *Server) stop(all []*bound) error {
	s.setReady(false)
	s.drain.Store(true)
	s.beginStop()
	s.cfg.Log.Info("stopping", "at_most", s.drainFor+finishTimeout+stopTimeout+s.flushFor)
	time.Sleep(s.drainFor)
	var finished sync.WaitGroup
	for _, b := range all {
		finished.Go(b.accepts.finish)
	}
	finished.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	ended := make(chan error, len(all))
	for _, b := range all {
		go func() { ended <- b.service.Shutdown(ctx) }()
	}
	var err error
	for range all {
		err = errors.Join(err, <-ended)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.Join(fmt.Errorf("server: requests were still running after %v and were cut off", stopTimeout), closeAll(all))
	}
	if err != nil {
		return fmt.Errorf("server: stop: %w", err)
	}
	s.cfg.Log.Info("stopped")
	return nil
}
