package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/weirlimit/weir"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/gen/weir/v1/weirv1connect"
	"github.com/weirlimit/weir/internal/tracetest"
	"github.com/weirlimit/weir/secret"
)

const (
	tracedTrace = "aaaa1111aaaa1111aaaa1111aaaa1111"
	tracedSpan  = "bbbb1111bbbb1111"
	tracedBy    = "00-" + tracedTrace + "-" + tracedSpan + "-01"
	untracedBy  = "00-cccc1111cccc1111cccc1111cccc1111-dddd1111dddd1111-00"
)

// caller sends the same call by each protocol, with headers.
type caller struct {
	t        *testing.T
	url      string
	http     *http.Client
	connect  weirv1connect.LimiterServiceClient
	overHTTP weirv1connect.LimiterServiceClient // gRPC on the HTTP listener
	grpc     weirv1.LimiterServiceClient
	health   grpc_health_v1.HealthClient
}

func newCaller(t *testing.T, r *running) *caller {
	t.Helper()
	conn := dialGRPC(t, r, nil)
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(h2.CloseIdleConnections)
	plain := newClient(t)
	return &caller{
		t: t, url: r.url, http: plain,
		connect:  weirv1connect.NewLimiterServiceClient(plain, r.url, connect.WithProtoJSON()),
		overHTTP: weirv1connect.NewLimiterServiceClient(&http.Client{Transport: h2}, r.url, connect.WithGRPC()),
		grpc:     weirv1.NewLimiterServiceClient(conn), health: grpc_health_v1.NewHealthClient(conn),
	}
}

// check checks a key by each protocol, and asks for the health. It does not look at the answers.
func (c *caller) check(policy, key string, headers ...string) {
	c.t.Helper()
	c.post("/v1/check", fmt.Sprintf(`{"policy":%q,"key":%q}`, policy, key), headers...)
	c.post("/healthz", "", headers...)
	request := &weirv1.CheckRequest{Policy: policy, Key: key}
	ctx, info := connect.NewClientContext(c.t.Context())
	for i := 0; i < len(headers); i += 2 {
		info.RequestHeader().Add(headers[i], headers[i+1])
	}
	_, _ = c.connect.Check(ctx, request)
	_, _ = c.overHTTP.Check(ctx, request)
	ctx = metadata.AppendToOutgoingContext(c.t.Context(), headers...)
	_, _ = c.grpc.Check(ctx, request)
	_, _ = c.health.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
}

// post sends a body. The handler may panic, so there may be no answer.
func (c *caller) post(path, body string, headers ...string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	if answer, err := c.http.Do(req); err == nil {
		_ = answer.Body.Close()
	}
}

// stopped stops a server, which sends the spans that are left.
func stopped(t *testing.T, r *running) {
	t.Helper()
	r.stop()
	if err := <-r.done; err != nil {
		t.Fatal(err)
	}
}

func wantSpans(t *testing.T, c *tracetest.Collector, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := c.String(); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// The spans of calls, without status.
const (
	spanHTTP    = "SERVER POST /v1/check%s http.request.method=POST http.response.status_code=%d http.route=/v1/check network.protocol.version=1.1 url.path=/v1/check url.scheme=http"
	spanConnect = "SERVER weir.v1.LimiterService/Check%s http.response.status_code=%d rpc.method=weir.v1.LimiterService/Check%s rpc.system.name=connectrpc"
	spanH2      = "SERVER weir.v1.LimiterService/Check%s http.response.status_code=200 rpc.method=weir.v1.LimiterService/Check rpc.response.status_code=%s rpc.system.name=grpc"
	spanGRPC    = "SERVER weir.v1.LimiterService/Check%s rpc.method=weir.v1.LimiterService/Check rpc.response.status_code=%s rpc.system.name=grpc"
	decided     = "INTERNAL weir.check weir.allowed=true weir.policy=default weir.reason=admitted"
)

// TestTraces: what a caller traces has a span by each protocol, whatever the answer, with its trace and its
// tracestate, and a span of the decision in it; what it does not trace has none, and neither has
// health.
func TestTraces(t *testing.T) {
	c := tracetest.New(t)
	r := run(t, Config{Limiter: frozenTable(t), GRPC: Listener{Address: "127.0.0.1:0"}, Tracing: &Tracing{Endpoint: secret.New(c.URL)}})
	calls := newCaller(t, r)
	for _, parent := range []string{tracedBy, untracedBy} {
		for _, policy := range []string{"default", "none"} {
			calls.check(policy, "alice", "traceparent", parent, "tracestate", "congo=t61rcWkgMzE", "tracestate", "rojo=1")
		}
	}
	stopped(t, r)
	wantSpans(t, c,
		fmt.Sprintf(spanHTTP, "", 200), decided,
		fmt.Sprintf(spanHTTP, "", 404),
		fmt.Sprintf(spanConnect, "", 200, ""), decided,
		fmt.Sprintf(spanConnect, "", 404, " rpc.response.status_code=not_found"),
		fmt.Sprintf(spanH2, "", "OK"), decided,
		fmt.Sprintf(spanH2, "", "NOT_FOUND"),
		fmt.Sprintf(spanGRPC, "", "OK"), decided,
		fmt.Sprintf(spanGRPC, "", "NOT_FOUND"))
	servers := map[string]tracetest.Span{}
	for _, s := range c.Spans() {
		if s.Trace != tracedTrace || s.State != "congo=t61rcWkgMzE,rojo=1" || s.Resource["service.name"] != "weir" {
			t.Errorf("%+v", s)
		}
		if s.Kind == "SERVER" {
			servers[s.ID] = s
		}
	}
	for _, s := range c.Spans() {
		if _, isChild := servers[s.Parent]; isChild != (s.Kind == "INTERNAL") || !isChild && s.Parent != tracedSpan {
			t.Errorf("the parent of %v is %s", s, s.Parent)
		}
	}
}

// TestSampledTraces: without a caller's decision, the configured part is traced.
func TestSampledTraces(t *testing.T) {
	for _, sample := range []float64{0, 1} {
		c := tracetest.New(t)
		r := run(t, Config{Limiter: frozenTable(t), GRPC: Listener{Address: "127.0.0.1:0"}, Tracing: &Tracing{Endpoint: secret.New(c.URL), Sample: &sample}})
		newCaller(t, r).check("default", "alice")
		stopped(t, r)
		if got := strings.Count(c.String(), decided); got != 4*int(sample) {
			t.Errorf("sample %v: %d decisions of 4\n%s", sample, got, c)
		}
	}
}

// TestFailuresAreTraced: the span of a call that is the daemon's failure says so, also if it was a panic.
func TestFailuresAreTraced(t *testing.T) {
	c := tracetest.New(t)
	r := run(t, Config{Limiter: broken{}, GRPC: Listener{Address: "127.0.0.1:0"}, Tracing: &Tracing{Endpoint: secret.New(c.URL)}})
	calls := newCaller(t, r)
	for _, key := range []string{"fails", "panics"} {
		calls.check("default", key, "traceparent", tracedBy)
	}
	stopped(t, r)
	const failed, undecided = " failed", "INTERNAL weir.check error.type=unavailable weir.policy=default failed"
	wantSpans(t, c,
		fmt.Sprintf(spanHTTP, " error.type=503", 503)+failed, undecided,
		"SERVER POST /v1/check error.type=panic http.request.method=POST http.route=/v1/check network.protocol.version=1.1 url.path=/v1/check url.scheme=http failed",
		fmt.Sprintf(spanConnect, " error.type=unavailable", 503, " rpc.response.status_code=unavailable")+failed, undecided,
		fmt.Sprintf(spanConnect, " error.type=internal", 500, " rpc.response.status_code=internal")+failed,
		fmt.Sprintf(spanH2, " error.type=UNAVAILABLE", "UNAVAILABLE")+failed, undecided,
		fmt.Sprintf(spanH2, " error.type=INTERNAL", "INTERNAL")+failed,
		fmt.Sprintf(spanGRPC, " error.type=UNAVAILABLE", "UNAVAILABLE")+failed, undecided,
		fmt.Sprintf(spanGRPC, " error.type=INTERNAL", "INTERNAL")+failed)
}

// broken is a limiter that fails or panics, as the key says.
type broken struct{ weir.Limiter }

func (broken) Take(_ context.Context, _ *weir.Policy, key string, _ int64) (weir.Decision, error) {
	if key == "panics" {
		panic("it is broken")
	}
	return weir.Decision{}, errors.New("it is broken")
}

// TestStreamsAndEnvoyAreTraced: reflection is a stream; Envoy's decisions are those of a configured domain,
// or of one that the caller chose, whose name is not in the span.
func TestStreamsAndEnvoyAreTraced(t *testing.T) {
	c := tracetest.New(t)
	edge := EnvoyDomain{Name: "edge", Descriptors: []EnvoyDescriptor{{Key: "user", Limit: &EnvoyLimit{Unit: 3, RequestsPerUnit: 1}}}}
	r := run(t, Config{
		Limiter: frozenTable(t), GRPC: Listener{Address: "127.0.0.1:0"}, Reflection: true, Live: Live{Envoy: []EnvoyDomain{edge}},
		Tracing: &Tracing{Endpoint: secret.New(c.URL)},
	})
	conn := dialGRPC(t, r, nil)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", tracedBy)
	look, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(look.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}}), look.CloseSend()); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = look.Recv()
	}
	for _, domain := range []string{"edge", "edge", "CANARY"} {
		if _, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Domain: domain, Descriptors: []*rlcommon.RateLimitDescriptor{
			{Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: "user", Value: "CANARY"}}},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	stopped(t, r)
	const envoy = "SERVER envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit rpc.method=envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit rpc.response.status_code=OK rpc.system.name=grpc"
	wantSpans(t, c,
		"SERVER grpc.reflection.v1.ServerReflection/ServerReflectionInfo rpc.method=grpc.reflection.v1.ServerReflection/ServerReflectionInfo rpc.response.status_code=OK rpc.system.name=grpc",
		envoy, "INTERNAL weir.check weir.allowed=true weir.policy=envoy.edge",
		envoy, "INTERNAL weir.check weir.allowed=false weir.policy=envoy.edge",
		envoy, "INTERNAL weir.check weir.allowed=true")
	if c.Contains("CANARY") {
		t.Error("what the caller sent is in a span")
	}
}

// TestSpansHaveNoSecrets: whatever a caller sends, by whatever protocol, nothing of it is in a span.
func TestSpansHaveNoSecrets(t *testing.T) {
	c := tracetest.New(t)
	r := run(t, Config{
		Limiter: frozenTable(t), GRPC: Listener{Address: "127.0.0.1:0"},
		Live:    Live{Clients: []Client{{Name: "app", Tokens: []secret.Secret{secret.New("CANARY-0123456789abcdef0123456789abcdef")}}}},
		Tracing: &Tracing{Endpoint: secret.New(c.URL), Headers: map[string]secret.Secret{"x-collector": secret.New("CANARY-collector")}},
	})
	calls := newCaller(t, r)
	for _, token := range []string{"CANARY-0123456789abcdef0123456789abcdef", "CANARY-wrong"} {
		for _, policy := range []string{"default", "CANARY-policy"} {
			headers := []string{"traceparent", tracedBy, "authorization", "Bearer " + token, "x-api-key", "CANARY", "user-agent", "CANARY", "x-forwarded-for", "CANARY"}
			calls.check(policy, "CANARY-key", headers...)
			for path, body := range map[string]string{
				"/v1/auth/CANARY-policy?key=CANARY": "",
				"/v1/auth/default?deny=CANARY":      "",
				"/CANARY":                           "",
				"/weir.v1.LimiterService/CANARY":    "{}",
				"/v1/check/CANARY":                  "{}",
				"/v1/check/batch":                   `{"checks":[{"policy":"default","key":"CANARY"}]}`,
				"/v1/reserve":                       `{"policy":"default","key":"CANARY","ttl_ms":1000}`,
				"/v1/commit":                        `{"id":"CANARY"}`,
				"/v1/renew":                         `{"id":"CANARY","ttl_ms":1000}`,
				"/v1/guard":                         `{"path":"/CANARY","principal":"CANARY","api_key":"CANARY"}`,
				"/v1/guard/finish":                  `{"ticket":"CANARY"}`,
			} {
				calls.post(path, body, headers...)
			}
		}
	}
	stopped(t, r)
	if len(c.Spans()) < 40 {
		t.Errorf("%d spans", len(c.Spans()))
	}
	if c.Contains("CANARY") {
		t.Errorf("a secret is in\n%s", c)
	}
}

// TestRefusalsAreTraced: a caller without a token learns from its trace that it was refused.
func TestRefusalsAreTraced(t *testing.T) {
	c := tracetest.New(t)
	r := run(t, Config{
		Limiter: frozenTable(t), GRPC: Listener{Address: "127.0.0.1:0"},
		Live:    Live{Clients: []Client{{Name: "app", Tokens: []secret.Secret{secret.New("0123456789abcdef0123456789abcdef")}}}},
		Tracing: &Tracing{Endpoint: secret.New(c.URL)},
	})
	newCaller(t, r).check("default", "alice", "traceparent", tracedBy)
	stopped(t, r)
	wantSpans(t, c,
		fmt.Sprintf(spanHTTP, "", 401),
		fmt.Sprintf(spanConnect, "", 401, " rpc.response.status_code=unauthenticated"),
		fmt.Sprintf(spanH2, "", "UNAUTHENTICATED"),
		fmt.Sprintf(spanGRPC, "", "UNAUTHENTICATED"))
}

// TestTracingIsOff: without Tracing nothing is sent, whatever the environment says: it is for the program
// to look at it.
func TestTracingIsOff(t *testing.T) {
	c := tracetest.New(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	t.Setenv("OTEL_TRACES_SAMPLER", "always_on")
	r := run(t, Config{Limiter: frozenTable(t), GRPC: Listener{Address: "127.0.0.1:0"}})
	newCaller(t, r).check("default", "alice", "traceparent", tracedBy)
	stopped(t, r)
	if r.tracer != nil || len(c.Requests()) != 0 {
		t.Errorf("%d requests", len(c.Requests()))
	}
}

// TestTracingByTheEnvironment: what Tracing leaves open.
func TestTracingByTheEnvironment(t *testing.T) {
	c := tracetest.New(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	t.Setenv("OTEL_TRACES_SAMPLER", "always_on")
	r := run(t, Config{Limiter: frozenTable(t), GRPC: Listener{Address: "127.0.0.1:0"}, Tracing: &Tracing{}})
	newCaller(t, r).check("default", "alice")
	stopped(t, r)
	if got := strings.Count(c.String(), decided); got != 4 {
		t.Errorf("%d decisions\n%s", got, c)
	}
}

// TestAWrongEnvironment: it turns tracing off, with a warning. Limits work.
func TestAWrongEnvironment(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "CANARY")
	c := tracetest.New(t)
	log := &syncBuffer{}
	r := run(t, Config{Limiter: frozenTable(t), Tracing: &Tracing{Endpoint: secret.New(c.URL)}, Log: slog.New(slog.NewTextHandler(log, nil))})
	if a, _ := check(t, newClient(t), r.url, `{"policy":"default","key":"alice"}`); !a.Allowed {
		t.Errorf("%+v", a)
	}
	stopped(t, r)
	if text := log.String(); !strings.Contains(text, "OTEL_EXPORTER_OTLP_HEADERS: must be") || strings.Contains(text, "CANARY") || len(c.Requests()) != 0 {
		t.Errorf("logged %s", text)
	}
}

// TestAnUnreachableCollector: it costs a line of the log, and no decision.
func TestAnUnreachableCollector(t *testing.T) {
	c := tracetest.New(t)
	c.Close()
	log, always := &syncBuffer{}, 1.0
	r := run(t, Config{Limiter: frozenTable(t), Tracing: &Tracing{Endpoint: secret.New(c.URL), Sample: &always}, Log: slog.New(slog.NewTextHandler(log, nil))})
	client := newClient(t)
	for i := range 100 {
		if a, _ := check(t, client, r.url, `{"policy":"default","key":"alice"}`); !a.Allowed || a.Remaining != int64(99-i) {
			t.Fatalf("%d: %+v", i, a)
		}
	}
	stopped(t, r)
	if n := strings.Count(log.String(), "spans are lost"); n < 1 || n > 2 {
		t.Errorf("logged %s", log.String())
	}
}
