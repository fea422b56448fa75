package grpcapi

import (
	"context"
	"net"
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/server/internal/envoyapi"
)

// empty is a service that does nothing, on a server with no options: the floor.
type empty struct {
	weirv1.UnimplementedLimiterServiceServer
	reply weirv1.CheckResponse
}

func (e *empty) Check(context.Context, *weirv1.CheckRequest) (*weirv1.CheckResponse, error) {
	return &e.reply, nil
}

// BenchmarkCheck is one call over a socket, with many callers: of an empty grpc-go server,
// and of this one. They differ by what weir adds.
func BenchmarkCheck(b *testing.B) {
	for _, bb := range []struct {
		name  string
		start func(*testing.B) string
	}{
		{"empty", startEmpty},
		{"weir", func(b *testing.B) string { return quiet(b).start(b) }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			client := weirv1.NewLimiterServiceClient(dial(b, bb.start(b)))
			b.ReportAllocs()
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				request := &weirv1.CheckRequest{Policy: "default", Key: "alice", Cost: proto.Int64(0)}
				for pb.Next() {
					if _, err := client.Check(context.Background(), request); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkEnvoy is one request of Envoy over a socket, beside BenchmarkCheck/empty.
func BenchmarkEnvoy(b *testing.B) {
	w := quiet(b)
	rules, err := envoyapi.Compile([]envoyapi.Domain{{Name: "edge", Descriptors: []envoyapi.Descriptor{
		{Key: "user", Limit: &envoyapi.Limit{Unit: envoyapi.Hour, RequestsPerUnit: 1 << 31}},
	}}}, nil)
	must(b, err)
	w.cfg.Services = append(w.cfg.Services, Service{
		Desc: &rlsv3.RateLimitService_ServiceDesc, Server: envoyapi.New(envoyapi.Config{Limiter: apitest.Table(b, nil), Observe: w.observe, Log: w.cfg.Log}),
		Enter: func(ctx context.Context, _ identity.Credentials) (context.Context, *identity.Refusal) {
			return envoyapi.WithCaller(ctx, rules, &identity.Authenticator{}, nil), nil
		},
	})
	client := rlsv3.NewRateLimitServiceClient(dial(b, w.start(b)))
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		request := &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: []*rlcommon.RateLimitDescriptor{
			{Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: "user", Value: "alice"}}},
		}}
		for pb.Next() {
			if _, err := client.ShouldRateLimit(context.Background(), request); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// quiet is a world that keeps no records.
func quiet(b *testing.B) *world {
	w := newWorld(b, nil)
	w.forget = true
	return w
}

func startEmpty(b *testing.B) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	s := grpc.NewServer()
	weirv1.RegisterLimiterServiceServer(s, &empty{reply: weirv1.CheckResponse{Allowed: true, Policy: "default", Limit: 100, Remaining: 100, Reason: "admitted"}})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	b.Cleanup(func() {
		s.Stop()
		must(b, <-served)
	})
	return l.Addr().String()
}
