package weirgrpc_test

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/weirgrpc"
	"github.com/weirlimit/weir/weirhttp"
)

// stopped is a clock that stands still, so that the output is the same every time.
func stopped() weir.Instant { return 1_800_000_000_000_000_000 }

// show starts a server, calls it twice, unary or with streams, and prints what a client gets.
func show(streams bool, options ...grpc.ServerOption) {
	server := grpc.NewServer(options...)
	healthpb.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go server.Serve(listener)
	defer server.Stop()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	for range 2 {
		var header, trailer metadata.MD
		if err := call(conn, streams, &header, &trailer); err != nil {
			s := status.Convert(err)
			fmt.Println(s.Code(), "-", s.Message())
			for _, d := range s.Details() {
				if info, ok := d.(*errdetails.RetryInfo); ok {
					fmt.Println("retry after", info.RetryDelay.AsDuration(), trailer["grpc-retry-pushback-ms"])
				}
			}
			continue
		}
		fmt.Println("OK", header["ratelimit"])
	}
}

func call(conn *grpc.ClientConn, streams bool, header, trailer *metadata.MD) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := healthpb.NewHealthClient(conn)
	if !streams {
		_, err := client.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Header(header), grpc.Trailer(trailer))
		return err
	}
	s, err := client.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		return err
	}
	_, err = s.Recv()
	*header, _ = s.Header()
	*trailer = s.Trailer()
	return err
}

// chargeProbes charges health probes, which are the service of these examples, and free by default.
var chargeProbes = weirgrpc.With(weirhttp.ChargeAll())

func newGuard() *guard.Guard {
	table := weir.Must(memstore.New(memstore.Config{Now: stopped}))
	return weir.Must(guard.New(table, guard.Config{
		BeforeAuth: guard.BeforeAuth{PerIP: []ruleset.Limit{{Limit: weir.PerMinute(300)}}},
		Endpoints: []guard.Endpoint{
			{Pattern: "/grpc.health.v1.Health/*", Name: "health", Limits: []ruleset.Limit{{Limit: weir.PerMinute(1)}}},
		},
	}))
}

func ExampleUnaryServer() {
	show(false, grpc.ChainUnaryInterceptor(weirgrpc.UnaryServer(newGuard(), chargeProbes)))
	// Output:
	// OK ["health";r=0;t=60]
	// ResourceExhausted - policy health is used up; retry after 1m0s
	// retry after 1m0s [60000]
}

func ExampleStreamServer() {
	show(true, grpc.ChainStreamInterceptor(weirgrpc.StreamServer(newGuard(), weirgrpc.PerMessage(), chargeProbes)))
	// Output:
	// OK ["health";r=0;t=60]
	// ResourceExhausted - policy health is used up; retry after 1m0s
	// retry after 1m0s [60000]
}

func ExampleLimitUnaryServer() {
	perIP := weir.Must(weir.NewPolicy("per-ip", weir.PerMinute(1)))
	table := weir.Must(memstore.New(memstore.Config{Now: stopped}))
	show(false, grpc.ChainUnaryInterceptor(weirgrpc.LimitUnaryServer(table, weirgrpc.By(perIP, weirhttp.ClientIP()), chargeProbes)))
	// Output:
	// OK ["per-ip";r=0;t=60]
	// ResourceExhausted - policy per-ip is used up; retry after 1m0s
	// retry after 1m0s [60000]
}

func ExampleLimitStreamServer() {
	perIP := weir.Must(weir.NewPolicy("per-ip", weir.PerMinute(1)))
	table := weir.Must(memstore.New(memstore.Config{Now: stopped}))
	show(true, grpc.ChainStreamInterceptor(weirgrpc.LimitStreamServer(table, weirgrpc.By(perIP, weirhttp.ClientIP()), chargeProbes)))
	// Output:
	// OK ["per-ip";r=0;t=60]
	// ResourceExhausted - policy per-ip is used up; retry after 1m0s
	// retry after 1m0s [60000]
}
