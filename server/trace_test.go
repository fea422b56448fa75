package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/weirlimit/weir"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/secret"
)

// A collector takes spans and describes each by one line.
type collector struct {
	*httptest.Server

	mu    sync.Mutex // guards the field below
	lines []string
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var got struct {
		ResourceSpans []struct {
			ScopeSpans []struct {
				Spans []struct {
					TraceID, ParentSpanID, Name string
					Status                      struct{ Message string }
					Attributes                  []struct {
						Key   string
						Value struct{ StringValue, IntValue string }
					}
				}
			}
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range got.ResourceSpans[0].ScopeSpans[0].Spans {
		line := fmt.Sprintf("%s in %s of %s", s.Name, s.TraceID[:4], s.ParentSpanID[:4])
		for _, a := range s.Attributes {
			line += fmt.Sprintf(" %s=%s", a.Key, a.Value.StringValue+a.Value.IntValue)
		}
		if s.Status.Message != "" {
			line += " failed: " + s.Status.Message
		}
		c.lines = append(c.lines, line)
	}
	fmt.Fprint(w, "{}")
}

// all returns what was sent, in the order of the alphabet. The server must have stopped.
func (c *collector) all(t *testing.T) string {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.lines)
	return strings.Join(c.lines, "\n")
}

const (
	tracedBy   = "00-aaaa1111aaaa1111aaaa1111aaaa1111-bbbb1111bbbb1111-01"
	untracedBy = "00-cccc1111cccc1111cccc1111cccc1111-dddd1111dddd1111-00"
)

// TestTraces: what a caller traces has a span over HTTP and over gRPC, whatever the answer;
// what it does not has none, and neither has health.
func TestTraces(t *testing.T) {
	c := newCollector(t)
	r := run(t, Config{Limiter: frozenTable(t), GRPC: Listener{Address: "127.0.0.1:0"}, Tracing: &Tracing{Endpoint: secret.New(c.URL)}})
	conn := dialGRPC(t, r, nil)
	limiter, health := weirv1.NewLimiterServiceClient(conn), grpc_health_v1.NewHealthClient(conn)
	for _, parent := range []string{tracedBy, untracedBy} {
		for _, policy := range []string{"default", "none"} {
			if err := post(t, r.url+"/v1/check", parent, fmt.Sprintf(`{"policy":%q,"key":"alice"}`, policy)); err != nil {
				t.Fatal(err)
			}
			ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", parent)
			_, _ = limiter.Check(ctx, &weirv1.CheckRequest{Policy: policy, Key: "alice"}) // its span says how it ended
			if _, err := health.Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.stop()
	if err := <-r.done; err != nil {
		t.Fatal(err)
	}
	const want = `/v1/check in aaaa of bbbb http.request.method=POST http.response.status_code=200
/v1/check in aaaa of bbbb http.request.method=POST http.response.status_code=404
weir.v1.LimiterService/Check in aaaa of bbbb rpc.system.name=grpc rpc.method=weir.v1.LimiterService/Check rpc.response.status_code=NOT_FOUND
weir.v1.LimiterService/Check in aaaa of bbbb rpc.system.name=grpc rpc.method=weir.v1.LimiterService/Check rpc.response.status_code=OK`
	if got := c.all(t); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestFailuresAreTraced: the span of a call that is the daemon's failure says so, also if
// it was a panic.
func TestFailuresAreTraced(t *testing.T) {
	c := newCollector(t)
	r := run(t, Config{Limiter: broken{}, GRPC: Listener{Address: "127.0.0.1:0"}, Tracing: &Tracing{Endpoint: secret.New(c.URL)}})
	conn := dialGRPC(t, r, nil)
	for _, key := range []string{"fails", "panics"} {
		_ = post(t, r.url+"/v1/check", tracedBy, fmt.Sprintf(`{"policy":"default","key":%q}`, key))
		ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", tracedBy)
		_, _ = weirv1.NewLimiterServiceClient(conn).Check(ctx, &weirv1.CheckRequest{Policy: "default", Key: key})
	}
	r.stop()
	if err := <-r.done; err != nil {
		t.Fatal(err)
	}
	const want = `/v1/check in aaaa of bbbb http.request.method=POST failed: panic
/v1/check in aaaa of bbbb http.request.method=POST http.response.status_code=503 failed: Service Unavailable
weir.v1.LimiterService/Check in aaaa of bbbb rpc.system.name=grpc rpc.method=weir.v1.LimiterService/Check rpc.response.status_code=INTERNAL failed: INTERNAL
weir.v1.LimiterService/Check in aaaa of bbbb rpc.system.name=grpc rpc.method=weir.v1.LimiterService/Check rpc.response.status_code=UNAVAILABLE failed: UNAVAILABLE`
	if got := c.all(t); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// post sends a body with a traceparent. It returns an error if there is no answer, and does
// not look at that.
func post(t *testing.T, url, traceparent, body string) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Traceparent", traceparent)
	answer, err := newClient(t).Do(req)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// broken is a limiter that fails or panics, as the key says.
type broken struct{ weir.Limiter }

func (broken) Take(_ context.Context, _ *weir.Policy, key string, _ int64) (weir.Decision, error) {
	if key == "panics" {
		panic("it is broken")
	}
	return weir.Decision{}, errors.New("it is broken")
}
