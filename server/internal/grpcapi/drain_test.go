package grpcapi

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
)

// A call that is being answered has its answer, also if the server stops.
func TestShutdownWaits(t *testing.T) {
	g := newGated()
	w := newWorld(t, g)
	client := w.limiter(t)
	answered, stopped := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := client.Check(context.Background(), &weirv1.CheckRequest{Policy: "default", Key: "k"})
		answered <- err
	}()
	<-g.entered
	go func() { stopped <- w.server.Shutdown(context.Background()) }()
	select {
	case err := <-stopped:
		t.Fatalf("stopped before the answer: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	g.release <- struct{}{}
	must(t, <-answered)
	must(t, <-stopped)
}

// A call that takes too long is cut off.
func TestShutdownEnds(t *testing.T) {
	g := newGated()
	w := newWorld(t, g)
	client := w.limiter(t)
	answered := make(chan error, 1)
	go func() {
		_, err := client.Check(context.Background(), &weirv1.CheckRequest{Policy: "default", Key: "k"})
		answered <- err
	}()
	<-g.entered
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := w.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown = %v", err)
	}
	wantCode(t, <-answered, codes.Unavailable, "")
}

// Streams would be held forever; they end when the server stops.
func TestShutdownEndsStreams(t *testing.T) {
	w := newWorld(t, nil)
	w.cfg.Reflection = true
	conn := dial(t, w.start(t))
	watch, err := grpc_health_v1.NewHealthClient(conn).Watch(context.Background(), &grpc_health_v1.HealthCheckRequest{})
	must(t, err)
	_, err = watch.Recv()
	must(t, err)
	look, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(context.Background())
	must(t, err)
	must(t, look.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}}))
	_, err = look.Recv()
	must(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(t, w.server.Shutdown(ctx))
}

// While callers are busy, one server takes over from another, and no call is lost.
func TestDrainLosesNothing(t *testing.T) {
	first, second := newWorld(t, nil), newWorld(t, nil)
	addresses := []string{first.start(t), second.start(t)}
	var now atomic.Int64
	client := weirv1.NewLimiterServiceClient(dial(t, "either", grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addresses[now.Load()])
	})))
	var wg sync.WaitGroup
	var calls atomic.Int64
	var enough atomic.Bool
	for range 16 {
		wg.Go(func() {
			for !enough.Load() {
				calls.Add(1)
				if _, err := client.Check(context.Background(), &weirv1.CheckRequest{Policy: "default", Key: "k"}, grpc.WaitForReady(true)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	first.await(t, 1000)
	now.Store(1)
	must(t, first.server.Shutdown(context.Background()))
	second.await(t, 1000)
	enough.Store(true)
	wg.Wait()
	if a, b := first.answered(), second.answered(); int64(a+b) != calls.Load() {
		t.Errorf("%d calls were answered by the first server and %d by the second, of %d", a, b, calls.Load())
	}
}

// answered returns how many decisions were made.
func (w *world) answered() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.records)
}

// await returns when so many decisions were made, or callers have failed.
func (w *world) await(t *testing.T, n int) {
	t.Helper()
	for ; w.answered() < n && !t.Failed(); time.Sleep(time.Millisecond) {
	}
}
