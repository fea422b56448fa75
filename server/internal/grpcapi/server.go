package grpcapi

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/internal/tracing"
	"github.com/weirlimit/weir/server/internal/call"
)

// Config is what New needs. Services and Log are required.
type Config struct {
	Services []Service
	Log      *slog.Logger

	// Proven, if set, is called with a connection after its first authenticated call. It may be
	// called twice for a connection.
	Proven func(net.Conn)

	// Known, if set, reports whether a caller would be authenticated. Other callers may make
	// only a few calls at once on a connection without an authenticated call.
	Known func(credentials identity.Credentials) bool

	// Reflection enables server reflection. The default is off.
	Reflection bool

	// Tracer, if set, makes a span for each sampled call of a service.
	Tracer *tracing.Tracer
}

// Service is a gRPC service with its authentication.
type Service struct {
	Desc   *grpc.ServiceDesc
	Server any // a pointer to the service's implementation

	// Enter authenticates a caller and returns the context for the service's method. It is
	// called once for each call.
	Enter func(ctx context.Context, credentials identity.Credentials) (context.Context, *call.Error)
}

// Sizes and times: see the package comment.
const (
	maxMessage    = 64 << 10
	maxReply      = 1 << 20 // a batch of 1000 decisions has less than 100 KiB
	maxHeaderList = 16 << 10
	maxCalls      = 256
	maxUnproven   = 4 // calls at once on a connection without an authenticated one; each may hold a message
	streamWindow  = 64 << 10
	connWindow    = 1 << 20

	connectTime = 10 * time.Second
	idleTime    = 5 * time.Minute
	oldAge      = 30 * time.Minute
	graceTime   = 10 * time.Second
	probeAfter  = time.Minute // of silence
	probeTime   = 10 * time.Second
	minProbe    = 10 * time.Second // between the probes of a caller
)

// workers is the number of goroutines that are reused for calls: their stacks have grown already,
// which takes a new goroutine a tenth of a call's time. Further calls start new goroutines.
const workers = 64

// Server answers calls. Make one with New.
type Server struct {
	cfg      Config // with defaults; set once by New, like everything up to health
	grpc     *grpc.Server
	services map[any]*Service
	health   *health.Server

	// stopping is canceled when the server begins to stop. It ends streams.
	stopping  context.Context
	beginStop context.CancelFunc
	streams   atomic.Int64 // open streams
}

// New returns a server that is not ready.
func New(cfg Config) *Server {
	if cfg.Proven == nil {
		cfg.Proven = func(net.Conn) {}
	}
	if cfg.Known == nil {
		cfg.Known = func(identity.Credentials) bool { return true }
	}
	s := &Server{cfg: cfg, services: map[any]*Service{}, health: health.NewServer()}
	s.stopping, s.beginStop = context.WithCancel(context.Background())
	s.grpc = grpc.NewServer(s.options()...)
	for i := range cfg.Services {
		service := &cfg.Services[i]
		s.services[service.Server] = service
		s.grpc.RegisterService(service.Desc, service.Server)
	}
	grpc_health_v1.RegisterHealthServer(s.grpc, s.health)
	s.SetReady(false)
	if cfg.Reflection {
		reflection.Register(s.grpc)
	}
	return s
}

func (s *Server) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(handshake{}),
		grpc.InTapHandle(s.tap),
		grpc.UnaryInterceptor(s.unary),
		grpc.StreamInterceptor(s.stream),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(maxReply),
		grpc.MaxConcurrentStreams(maxCalls),
		grpc.MaxHeaderListSize(maxHeaderList),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.ConnectionTimeout(connectTime),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minProbe, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: idleTime, MaxConnectionAge: oldAge, MaxConnectionAgeGrace: graceTime,
			Time: probeAfter, Timeout: probeTime,
		}),
		grpc.WaitForHandlers(true),
		grpc.NumStreamWorkers(workers),
	}
}

// Serve serves a listener, whose connections may be those of crypto/tls. It returns nil after
// Shutdown or Close.
func (s *Server) Serve(l net.Listener) error { return s.grpc.Serve(l) }

// SetReady sets the status that the health service reports.
func (s *Server) SetReady(ready bool) {
	status := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if ready {
		status = grpc_health_v1.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", status)
	for _, service := range s.services {
		s.health.SetServingStatus(service.Desc.ServiceName, status)
	}
}

// Shutdown sends GOAWAY to all connections and waits until the calls in flight are answered. When
// ctx ends, the remaining calls are aborted, and ctx's error is returned.
func (s *Server) Shutdown(ctx context.Context) error {
	s.SetReady(false)
	s.beginStop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.grpc.GracefulStop()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.grpc.Stop()
		<-done
		return ctx.Err()
	}
}

// Close aborts all calls.
func (s *Server) Close() error {
	s.beginStop()
	s.grpc.Stop()
	return nil
}
