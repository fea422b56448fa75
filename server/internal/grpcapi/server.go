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
	"github.com/weirlimit/weir/internal/otlp"
)

// Config is what New needs. Services and Log are required.
type Config struct {
	Services []Service
	Log      *slog.Logger

	// Settled, if set, is told a connection when its first call was let in. It may be
	// told twice.
	Proven func(net.Conn)

	// Reflection lets callers ask what there is to call. The default is off.
	Reflection bool

	// Tracer, if set, gets a span for each call of a service that is sampled.
	Tracer *otlp.Exporter
}

// Service is something to call.
type Service struct {
	Desc   *grpc.ServiceDesc
	Server any // a pointer to what has the service's methods

	// Enter lets a caller in and returns the context of the call, in which the service
	// finds what it needs. It is asked once for each call.
	Enter func(ctx context.Context, credentials identity.Credentials) (context.Context, *identity.Refusal)
}

// Sizes and times: see the package comment.
const (
	maxMessage    = 64 << 10
	maxReply      = 1 << 20 // a batch of 1000 decisions has less than 100 KiB
	maxHeaderList = 16 << 10
	maxCalls      = 256
	streamWindow  = 64 << 10
	connWindow    = 1 << 20

	connectTime = 10 * time.Second
	idleTime    = 5 * time.Minute
	oldAge      = 30 * time.Minute
	graceTime   = 10 * time.Second
	probeAfter  = time.Minute // of silence
	probeTime   = 10 * time.Second
	minProbe    = 10 * time.Second // between those of a caller
)

// workers is how many goroutines stay, from call to call: their stacks have grown, which takes
// a new one a tenth of a call's time. Calls beyond that have goroutines of their own.
const workers = 64

// Server answers calls. Make one with New.
type Server struct {
	grpc     *grpc.Server // set once by New, like everything up to health
	services map[any]*Service
	first    *Service
	log      *slog.Logger
	tracer   *otlp.Exporter
	proven   func(net.Conn)
	health   *health.Server

	// stopping ends when the server begins to stop, and with it streams.
	stopping  context.Context
	beginStop context.CancelFunc
	streams   atomic.Int64 // that are open
}

// New returns a server that is not ready.
func New(cfg Config) *Server {
	s := &Server{
		services: map[any]*Service{}, log: cfg.Log, tracer: cfg.Tracer, proven: cfg.Proven, health: health.NewServer(),
	}
	if s.proven == nil {
		s.proven = func(net.Conn) {}
	}
	s.stopping, s.beginStop = context.WithCancel(context.Background())
	s.grpc = grpc.NewServer(s.options()...)
	for i := range cfg.Services {
		service := &cfg.Services[i]
		s.services[service.Server] = service
		s.grpc.RegisterService(service.Desc, service.Server)
	}
	s.first = &cfg.Services[0]
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

// Serve answers what comes to a listener, whose connections may be those of crypto/tls. It
// returns nil once the server was told to stop.
func (s *Server) Serve(l net.Listener) error { return s.grpc.Serve(l) }

// SetReady has the health service say whether the server is ready.
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

// Shutdown tells callers to go elsewhere and waits until the calls that came before have
// their answers. When ctx ends, the rest is cut off, and ctx's error returned.
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

// Close cuts all calls off.
func (s *Server) Close() error {
	s.beginStop()
	s.grpc.Stop()
	return nil
}
