package grpcapi

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/internal/identity"
)

func TestSizes(t *testing.T) {
	client := newWorld(t, nil).limiter(t)
	ctx := context.Background()
	fits := &weirv1.CheckBatchRequest{Policy: []string{"default"}, Key: make([]string, 1000)}
	for i := range fits.Key {
		fits.Key[i] = strings.Repeat("k", 60)
	}
	if _, err := client.CheckBatch(ctx, fits); err != nil {
		t.Error(err)
	}
	_, err := client.Check(ctx, &weirv1.CheckRequest{Policy: "default", Key: strings.Repeat("k", maxMessage)})
	wantCode(t, err, codes.ResourceExhausted, "larger than max")
	_, err = client.Check(with("x-long", strings.Repeat("x", 2*maxHeaderList)), &weirv1.CheckRequest{Policy: "default", Key: "k"})
	if err == nil {
		t.Error("a header list of 32 KiB was taken")
	}
	if _, err = client.Check(ctx, &weirv1.CheckRequest{Policy: "default", Key: "k"}); err != nil {
		t.Errorf("after what was too long: %v", err)
	}
	if encoding.GetCompressor("gzip") != nil {
		t.Error("gzip is linked: small messages could become large")
	}
}

// Calls beyond 256 wait their turn at the client: the server has announced the number.
func TestConcurrentCalls(t *testing.T) {
	g := newGated()
	client := newWorld(t, g).limiter(t)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range maxCalls + 10 {
		wg.Go(func() { _, _ = client.Check(ctx, &weirv1.CheckRequest{Policy: "default", Key: "k"}) })
	}
	for range maxCalls {
		<-g.entered
	}
	select {
	case <-g.entered:
		t.Errorf("more than %d calls at a time", maxCalls)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	wg.Wait()
}

func TestSettled(t *testing.T) {
	w := newWorld(t, nil)
	conns := make(chan net.Conn, 10)
	w.cfg.Proven = func(c net.Conn) { conns <- c }
	client := w.limiter(t)
	for range 3 {
		_, err := client.Check(context.Background(), &weirv1.CheckRequest{Policy: "default", Key: "k"})
		must(t, err)
	}
	if len(conns) != 1 {
		t.Errorf("Proven was called %d times", len(conns))
	}
}

// Health is for everybody, and follows readiness.
func TestHealth(t *testing.T) {
	w := newWorld(t, nil)
	w.state.Authenticator = apitest.Authenticator(t)
	client := grpc_health_v1.NewHealthClient(dial(t, w.start(t)))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	watch, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	must(t, err)
	for _, ready := range []bool{true, false, true} {
		w.server.SetReady(ready)
		want := grpc_health_v1.HealthCheckResponse_NOT_SERVING
		if ready {
			want = grpc_health_v1.HealthCheckResponse_SERVING
		}
		for _, service := range []string{"", "weir.v1.LimiterService"} {
			got, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
			must(t, err)
			if got.Status != want {
				t.Errorf("%q is %v, want %v", service, got.Status, want)
			}
		}
		got, err := watch.Recv()
		must(t, err)
		if got.Status != want {
			t.Errorf("who watches sees %v, want %v", got.Status, want)
		}
	}
	_, err = client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "nobody's"})
	wantCode(t, err, codes.NotFound, "")
}

func TestStreamsAreFew(t *testing.T) {
	w := newWorld(t, nil)
	address := w.start(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	watch := func(conn *grpc.ClientConn) error {
		s, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		must(t, err)
		_, err = s.Recv()
		return err
	}
	conns := []*grpc.ClientConn{dial(t, address), dial(t, address)}
	for i := range maxStreams { // of all connections together
		must(t, watch(conns[i%2]))
	}
	wantCode(t, watch(conns[0]), codes.ResourceExhausted, "256 streams are open")
}

// A connection without an authenticated call has few calls at once, unless their callers are known.
func TestUnprovenCallsAreFew(t *testing.T) {
	w := newWorld(t, nil)
	w.cfg.Known = func(c identity.Credentials) bool { return c.Token == "known" }
	health := grpc_health_v1.NewHealthClient(dial(t, w.start(t)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := func(ctx context.Context) error {
		stream, err := health.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		must(t, err)
		_, err = stream.Recv()
		return err
	}
	for range maxUnproven {
		must(t, watch(ctx))
	}
	if err := watch(ctx); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more: %v", err)
	}
	must(t, watch(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer known")))
	cancel()
	for watch(t.Context()) != nil { // the server hears of the canceled ones in a moment
	}
}

func TestReflection(t *testing.T) {
	ask := func(w *world, ctx context.Context) (*grpc_reflection_v1.ServerReflectionResponse, error) {
		s, err := grpc_reflection_v1.NewServerReflectionClient(dial(t, w.start(t))).ServerReflectionInfo(ctx)
		must(t, err)
		_ = s.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}})
		return s.Recv()
	}
	ctx, cancel := context.WithCancel(with("authorization", "Bearer "+apitest.Alice))
	defer cancel()
	_, err := ask(newWorld(t, nil), ctx)
	wantCode(t, err, codes.Unimplemented, "")

	w := newWorld(t, nil)
	w.state.Authenticator = apitest.Authenticator(t)
	w.cfg.Reflection = true
	_, err = ask(w, context.Background())
	wantCode(t, err, codes.Unauthenticated, "missing client token")
	got, err := ask(w, ctx)
	must(t, err)
	if n := len(got.GetListServicesResponse().GetService()); n < 2 {
		t.Errorf("%d services", n)
	}
}

func TestUnknownMethod(t *testing.T) {
	conn := dial(t, newWorld(t, nil).start(t))
	err := conn.Invoke(context.Background(), "/weir.v1.LimiterService/Nothing", &weirv1.CheckRequest{}, &weirv1.CheckResponse{}, grpc.StaticMethod())
	wantCode(t, err, codes.Unimplemented, "Nothing")
}
