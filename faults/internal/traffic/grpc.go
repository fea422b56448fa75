package traffic

import (
	"context"
	"net"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
)

// GRPC is checks by grpc-go's client. It sends again what a GOAWAY says was not looked at,
// and nothing else.
func GRPC(request func() *weirv1.CheckRequest) Kind {
	return func(f *Traffic) caller {
		conn := f.dialGRPC()
		client := weirv1.NewLimiterServiceClient(conn)
		return &grpcCaller{conn, func(ctx context.Context) (bool, error) {
			reply, err := client.Check(ctx, request(), grpc.WaitForReady(true))
			return reply.GetAllowed(), err
		}}
	}
}

// Envoy is calls of Envoy's rate limit service, with one descriptor.
func Envoy(domain, key string, value func() string) Kind {
	return func(f *Traffic) caller {
		conn := f.dialGRPC()
		client := rlsv3.NewRateLimitServiceClient(conn)
		return &grpcCaller{conn, func(ctx context.Context) (bool, error) {
			reply, err := client.ShouldRateLimit(ctx, EnvoyRequest(domain, key, value()), grpc.WaitForReady(true))
			return reply.GetOverallCode() == rlsv3.RateLimitResponse_OK, err
		}}
	}
}

// EnvoyRequest asks for one hit.
func EnvoyRequest(domain, key, value string) *rlsv3.RateLimitRequest {
	return &rlsv3.RateLimitRequest{Domain: domain, Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}}},
	}}
}

// dialGRPC returns a connection that is made again, to where callers are to go then, when
// it has ended.
func (f *Traffic) dialGRPC() *grpc.ClientConn {
	conn, err := grpc.NewClient("passthrough:///weir", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return f.dial(ctx, onGRPC) }))
	if err != nil { // about the options, which are those above
		panic(err)
	}
	return conn
}

type grpcCaller struct {
	conn *grpc.ClientConn
	ask  func(ctx context.Context) (admitted bool, err error)
}

func (c *grpcCaller) call(n *Tally) {
	ctx, cancel := context.WithDeadline(context.Background(), deadline())
	defer cancel()
	admitted, err := c.ask(ctx)
	if err != nil {
		n.drop(1, err)
		return
	}
	n.decided(admitted)
}

func (c *grpcCaller) close() { c.conn.Close() }

func deadline() time.Time { return time.Now().Add(callLimit) }
