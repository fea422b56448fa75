package grpcapi

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
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
