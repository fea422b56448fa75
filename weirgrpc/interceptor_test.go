package weirgrpc

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/weirhttp"
)

// TestUnary: what callers get.
func TestUnary(t *testing.T) {
	g := newGuard(t, guard.Config{Endpoints: []guard.Endpoint{{Pattern: prefix + "Unary", Name: "unary", Limits: limits(2)}}})
	conn, s := guarded(t, g)
	for _, want := range []string{`"unary";r=1`, `"unary";r=0;t=`} {
		r := call(t, conn, "hello")
		if r.err != nil || !strings.HasPrefix(get(r.header, "ratelimit"), want) || get(r.header, "ratelimit-policy") != `"unary";q=2;w=3600` || len(r.trailer) != 0 {
			t.Errorf("%+v, want %s", r, want)
		}
	}
	r := call(t, conn, "hello")
	if r.code != codes.ResourceExhausted || r.retry <= 0 || r.retry > 30*time.Minute {
		t.Errorf("%v, retry after %v", r.err, r.retry)
	}
	if q := r.quota; q == nil || q.QuotaId != "unary" || q.QuotaValue != 2 || q.Subject != "ip" {
		t.Errorf("quota %v", r.quota)
	}
	if !strings.HasPrefix(get(r.trailer, "ratelimit"), `"unary";r=0;t=`) || get(r.trailer, "ratelimit-policy") == "" || get(r.trailer, "retry-after") == "" || get(r.trailer, "grpc-retry-pushback-ms") == "" {
		t.Errorf("%v", r.trailer)
	}
	if get(r.header, "ratelimit") != "" {
		t.Errorf("clients retry only if there is no header: %v", r.header)
	}
	if n := s.calls.Load(); n != 2 {
		t.Errorf("%d calls reached the service, want 2", n)
	}
}

// TestCodes: the code for each cause.
func TestCodes(t *testing.T) {
	forever := guard.Hooks{Blocked: func(guard.Subject) (time.Time, bool) { return time.Time{}, true }}
	hidden := []ruleset.Limit{{Limit: perHour(1), Hidden: true}}
	for name, tt := range map[string]struct {
		config  guard.Config
		code    codes.Code
		retries bool // there is a RetryInfo
		quota   bool // there is a QuotaFailure
	}{
		"limit":   {guard.Config{Default: guard.Endpoint{Limits: limits(1)}}, codes.ResourceExhausted, true, true},
		"hidden":  {guard.Config{Default: guard.Endpoint{Limits: hidden}}, codes.ResourceExhausted, true, false},
		"address": {guard.Config{BeforeAuth: guard.BeforeAuth{PerIP: limits(1)}}, codes.ResourceExhausted, true, false},
		"costly":  {guard.Config{Default: guard.Endpoint{Limits: limits(1), Cost: 2}}, codes.ResourceExhausted, false, true},
		"blocked": {guard.Config{Hooks: forever}, codes.PermissionDenied, false, false},
	} {
		conn, _ := guarded(t, newGuard(t, tt.config))
		call(t, conn, "")
		for kind, r := range map[string]reply{"unary": call(t, conn, ""), "stream": open(t, conn, "Server", "", 1)} {
			if r.code != tt.code || r.retry > 0 != tt.retries || (r.quota != nil) != tt.quota {
				t.Errorf("%s, %s: %v, retry after %v, quota %v", name, kind, r.err, r.retry, r.quota)
			}
			if pushback := get(r.trailer, "grpc-retry-pushback-ms"); pushback == "" || (pushback == "-1") == tt.retries {
				t.Errorf("%s, %s: pushback %s", name, kind, pushback)
			}
			if (get(r.trailer, "retry-after") != "") != tt.retries {
				t.Errorf("%s, %s: %v", name, kind, r.trailer)
			}
		}
	}
}

// TestOverload: a stream that is in flight makes the next call unavailable, and its end releases it.
func TestOverload(t *testing.T) {
	g := newGuard(t, guard.Config{BeforeAuth: guard.BeforeAuth{InFlight: 1}})
	conn, _ := guarded(t, g)
	ctx, cancel := context.WithCancel(t.Context())
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, prefix+"Bidi")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SendMsg(wrapperspb.String("x")); err != nil {
		t.Fatal(err)
	}
	if err := s.RecvMsg(new(text)); err != nil {
		t.Fatal(err)
	}
	if r := call(t, conn, ""); r.code != codes.Unavailable || r.retry != time.Second {
		t.Errorf("%v, retry after %v", r.err, r.retry)
	}
	cancel()
	for end := time.Now().Add(10 * time.Second); g.Stats().InFlight > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it is still in flight")
		}
	}
	if r := call(t, conn, ""); r.err != nil {
		t.Error(r.err)
	}
}

// TestPanics: a handler that panics is no longer in flight. An interceptor outside recovers.
func TestPanics(t *testing.T) {
	g := newGuard(t, guard.Config{BeforeAuth: guard.BeforeAuth{InFlight: 1}, Default: guard.Endpoint{Limits: limits(1), Count: guard.CountFailures}})
	unary, stream := UnaryServer(g), StreamServer(g)
	func() {
		defer func() { _ = recover() }()
		_, _ = unary(t.Context(), wrapperspb.String(""), &grpc.UnaryServerInfo{FullMethod: "/a/b"}, func(context.Context, any) (any, error) { panic("x") })
	}()
	if n := g.Stats().InFlight; n != 0 {
		t.Errorf("%d calls are in flight", n)
	}
	_, err := unary(t.Context(), wrapperspb.String(""), &grpc.UnaryServerInfo{FullMethod: "/a/b"}, func(context.Context, any) (any, error) { return nil, nil })
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v: a panic is a failure", err)
	}
	g = newGuard(t, guard.Config{BeforeAuth: guard.BeforeAuth{InFlight: 1}})
	stream = StreamServer(g)
	func() {
		defer func() { _ = recover() }()
		_ = stream(nil, noStream{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: "/a/b"}, func(any, grpc.ServerStream) error { panic("x") })
	}()
	if n := g.Stats().InFlight; n != 0 {
		t.Errorf("%d streams are in flight", n)
	}
}

type noStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s noStream) Context() context.Context { return s.ctx }

// TestStreams: admission of each kind of stream, with the fields in the header.
func TestStreams(t *testing.T) {
	for kind, want := range map[string]int{"Client": 1, "Server": 3, "Bidi": 5} {
		conn, _ := guarded(t, newGuard(t, guard.Config{Default: guard.Endpoint{Name: "all", Limits: limits(1)}}))
		n := 5
		if kind == "Server" {
			n = 1
		}
		if r := open(t, conn, kind, "", n); r.err != nil || r.replies != want || get(r.header, "ratelimit-policy") != `"all";q=1;w=3600` {
			t.Errorf("%s: %d replies, %v, %v", kind, r.replies, r.header, r.err)
		}
		if r := open(t, conn, kind, "", n); r.replies != 0 || r.code != codes.ResourceExhausted || r.retry <= 0 || r.quota == nil {
			t.Errorf("%s: %d replies, %v", kind, r.replies, r.err)
		}
	}
}

// TestErrorsHaveNoHeader: if the handler fails, the fields are in the trailer, so that clients may
// retry.
func TestErrorsHaveNoHeader(t *testing.T) {
	conn, _ := guarded(t, newGuard(t, guard.Config{Default: guard.Endpoint{Name: "all", Limits: limits(9)}}))
	for kind, r := range map[string]reply{"unary": call(t, conn, "fail UNAVAILABLE"), "stream": open(t, conn, "Server", "fail UNAVAILABLE", 1)} {
		if r.code != codes.Unavailable || get(r.header, "ratelimit") != "" || get(r.trailer, "ratelimit-policy") != `"all";q=9;w=3600` || get(r.trailer, "grpc-retry-pushback-ms") != "" {
			t.Errorf("%s: %+v", kind, r)
		}
	}
}

// TestPerMessage: a stream of n messages costs n, and the message that is refused ends it.
func TestPerMessage(t *testing.T) {
	policy, err := weir.NewPolicy("all", perHour(10))
	if err != nil {
		t.Fatal(err)
	}
	g := newGuard(t, guard.Config{BeforeAuth: guard.BeforeAuth{PerIP: limits(3)}, Default: guard.Endpoint{Name: "all", Limits: limits(10)}})
	by, table := By(policy, weirhttp.ClientIP()), newTable(t)
	for name, i := range map[string]grpc.StreamServerInterceptor{
		"StreamServer": StreamServer(g, PerMessage()), "LimitStreamServer": LimitStreamServer(table, by, PerMessage()),
	} {
		conn, _ := serve(t, UnaryServer(g), i)
		if r := open(t, conn, "Bidi", "x", 4); r.replies != 4 || r.err != nil {
			t.Errorf("%s: %d replies, %v, want 4", name, r.replies, r.err)
		}
		r := open(t, conn, "Bidi", "x", 20)
		if r.replies != 6 || r.code != codes.ResourceExhausted || r.retry <= 0 || r.quota == nil || r.quota.QuotaValue != 10 {
			t.Errorf("%s: %d replies, %v, quota %v, want 6", name, r.replies, r.err, r.quota)
		}
		if get(r.trailer, "retry-after") == "" || get(r.trailer, "grpc-retry-pushback-ms") == "" {
			t.Errorf("%s: %v", name, r.trailer)
		}
	}
}

// TestPerMessageIsFinal: a handler that ignores the error does not turn a refusal into a success.
func TestPerMessageIsFinal(t *testing.T) {
	conn, _ := guarded(t, newGuard(t, guard.Config{Default: guard.Endpoint{Limits: limits(3)}}), PerMessage())
	if r := open(t, conn, "Server", "", 1); r.err != nil {
		t.Error(r.err)
	}
	if r := open(t, conn, "Client", "", 3); r.code != codes.ResourceExhausted {
		t.Errorf("%v", r.err)
	}
}

// retrying is a policy of stock clients: three attempts, almost at once.
const retrying = `{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":3,"initialBackoff":"0.001s","maxBackoff":"0.001s",
	"backoffMultiplier":1,"retryableStatusCodes":["RESOURCE_EXHAUSTED","UNAVAILABLE"]}}]}`

// TestPushback: a stock client waits as long as it is told, and does not retry if waiting cannot help.
func TestPushback(t *testing.T) {
	var attempts atomic.Int64
	counts := func(next grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
		return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			attempts.Add(1)
			return next(ctx, req, info, h)
		}
	}
	g := newGuard(t, guard.Config{Default: guard.Endpoint{Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 1, Per: weir.Every(500 * time.Millisecond)}}}}})
	conn, s := serve(t, counts(UnaryServer(g)), StreamServer(g), grpc.WithDefaultServiceConfig(retrying))
	if r := call(t, conn, ""); r.err != nil {
		t.Fatal(r.err)
	}
	begin := time.Now()
	if r := call(t, conn, ""); r.err != nil {
		t.Error(r.err)
	}
	if took := time.Since(begin); took < 300*time.Millisecond {
		t.Errorf("it retried after %v", took)
	}
	if s.calls.Load() != 2 || attempts.Load() != 3 {
		t.Errorf("%d calls with %d attempts, want 2 with 3", s.calls.Load(), attempts.Load())
	}

	attempts.Store(0)
	g = newGuard(t, guard.Config{Default: guard.Endpoint{Limits: limits(1), Cost: 2}})
	conn, _ = serve(t, counts(UnaryServer(g)), StreamServer(g), grpc.WithDefaultServiceConfig(retrying))
	if r := call(t, conn, ""); r.code != codes.ResourceExhausted || attempts.Load() != 1 {
		t.Errorf("%v after %d attempts, want 1", r.err, attempts.Load())
	}

	attempts.Store(0)
	g = newGuard(t, guard.Config{Default: guard.Endpoint{Limits: limits(9)}})
	conn, _ = serve(t, counts(UnaryServer(g)), StreamServer(g), grpc.WithDefaultServiceConfig(retrying))
	if r := call(t, conn, "fail UNAVAILABLE"); r.code != codes.Unavailable || attempts.Load() != 3 {
		t.Errorf("%v of the service after %d attempts, want 3", r.err, attempts.Load())
	}
}

// broken is a limiter that fails.
type broken struct{ weir.Limiter }

func (broken) Take(context.Context, *weir.Policy, string, int64) (weir.Decision, error) {
	return weir.Decision{}, weir.ErrUnavailable
}

func TestLimiterFails(t *testing.T) {
	g, err := guard.New(broken{newTable(t)}, guard.Config{Default: guard.Endpoint{Limits: limits(1)}})
	if err != nil {
		t.Fatal(err)
	}
	conn, _ := guarded(t, g)
	if r := call(t, conn, ""); r.code != codes.Unavailable || r.retry != 0 || get(r.trailer, "grpc-retry-pushback-ms") != "" {
		t.Errorf("%+v", r)
	}
	conn, _ = guarded(t, g, With(weirhttp.OnError(func(*http.Request, error) bool { return true })))
	if r := call(t, conn, ""); r.err != nil {
		t.Error(r.err)
	}
}

// TestIdentity: the order of the stages and of what identifies.
func TestIdentity(t *testing.T) {
	var authenticated atomic.Int64
	authenticate := Authenticate(func(ctx context.Context) (context.Context, error) {
		authenticated.Add(1)
		switch user := metadata.ValueFromIncomingContext(ctx, "x-user"); {
		case user == nil:
			return ctx, nil
		case user[0] == "mallory":
			return nil, status.Error(codes.Unauthenticated, "no")
		default:
			return guard.WithSubject(ctx, guard.User(user[0])), nil
		}
	})
	verify := Verify(func(_ context.Context, message any) (guard.Subject, bool) {
		creator, signed := strings.CutPrefix(message.(*text).Value, "signed by ")
		return guard.User(creator), signed
	})
	g := newGuard(t, guard.Config{
		BeforeAuth: guard.BeforeAuth{PerIP: limits(9)}, Default: guard.Endpoint{Limits: limits(1)},
		Identity: guard.Identity{Keys: map[guard.KeyHash]guard.Owner{guard.HashKey("k"): {ID: "app"}}},
	})
	conn, _ := guarded(t, g, authenticate, verify)
	for i, tt := range []struct {
		message, field string
		want           codes.Code
	}{
		{"", "", codes.OK},
		{"", "", codes.ResourceExhausted}, // the address
		{"", "x-user:alice", codes.OK},
		{"", "x-user:alice", codes.ResourceExhausted},
		{"signed by bob", "x-user:alice", codes.OK},
		{"signed by bob", "", codes.ResourceExhausted},
		{"", "x-api-key:k", codes.OK},
		{"", "x-api-key:wrong", codes.ResourceExhausted}, // the address
		{"", "x-user:mallory", codes.Unauthenticated},
		{"", "x-user:mallory", codes.ResourceExhausted}, // before authentication
	} {
		if r := call(t, conn, tt.message, strings.Fields(tt.field)...); r.code != tt.want {
			t.Errorf("call %d: %v, want %v", i, r.err, tt.want)
		}
	}
	if n := authenticated.Load(); n != 9 {
		t.Errorf("%d calls were authenticated, want 9", n)
	}
}

// TestCertificates: callers with a verified certificate have counts of their own.
func TestCertificates(t *testing.T) {
	server, client := certificates(t)
	var subject atomic.Value
	g := newGuard(t, guard.Config{})
	seen := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		return UnaryServer(g)(ctx, req, info, func(ctx context.Context, req any) (any, error) {
			s, _ := guard.SubjectOf(ctx)
			subject.Store(s.Key)
			return h(ctx, req)
		})
	}
	conn, _ := serveTLS(t, seen, StreamServer(g), server, client)
	if r := call(t, conn, ""); r.err != nil || subject.Load() != "cert:billing.example" {
		t.Errorf("%v, %v", subject.Load(), r.err)
	}
}

// certificates returns credentials of both sides, with one self-signed certificate for all.
func certificates(t *testing.T) (server, client credentials.TransportCredentials) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"billing.example"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	pair := []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
	server = credentials.NewTLS(&tls.Config{Certificates: pair, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert})
	return server, credentials.NewTLS(&tls.Config{Certificates: pair, RootCAs: pool, ServerName: "billing.example"})
}

// TestFailures: of many parallel guesses exactly five are tried; other errors and successes are free.
func TestFailures(t *testing.T) {
	conn, s := guarded(t, newGuard(t, guard.Config{Default: guard.Endpoint{Count: guard.CountFailures, Limits: limits(5)}}))
	for range 10 {
		for _, message := range []string{"", "fail NOT_FOUND"} {
			if r := call(t, conn, message); r.code == codes.ResourceExhausted {
				t.Fatal(r.err)
			}
		}
	}
	before := s.calls.Load()
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() { call(t, conn, "fail UNAUTHENTICATED") })
	}
	wg.Wait()
	if n := s.calls.Load() - before; n != 5 {
		t.Errorf("%d were tried, want 5", n)
	}
}

// TestShadow: nothing shows.
func TestShadow(t *testing.T) {
	conn, _ := guarded(t, newGuard(t, guard.Config{Mode: ruleset.Shadow, BeforeAuth: guard.BeforeAuth{PerIP: limits(1)}, Default: guard.Endpoint{Limits: limits(1)}}), PerMessage())
	for range 3 {
		for kind, r := range map[string]reply{"unary": call(t, conn, ""), "stream": open(t, conn, "Bidi", "", 3)} {
			delete(r.header, "content-type")
			if r.err != nil || len(r.header) != 0 || len(r.trailer) != 0 {
				t.Errorf("%s: %v, %v, %v", kind, r.header, r.trailer, r.err)
			}
		}
	}
}

// TestLimit: by metadata, and by address.
func TestLimit(t *testing.T) {
	policies := [2]*weir.Policy{}
	for i, n := range []int64{1, 3} {
		var err error
		if policies[i], err = weir.NewPolicy([]string{"per-key", "per-ip"}[i], perHour(n)); err != nil {
			t.Fatal(err)
		}
	}
	by := []Option{By(policies[0], weirhttp.Header("X-Api-Key")), By(policies[1], weirhttp.ClientIP())}
	table := newTable(t)
	conn, _ := serve(t, LimitUnaryServer(table, by...), LimitStreamServer(table, by...))
	for i, tt := range []struct {
		key, by string
		value   int64
	}{{"a", "", 0}, {"a", "per-key", 1}, {"b", "", 0}, {"c", "", 0}, {"d", "per-ip", 3}} {
		r := call(t, conn, "", "x-api-key:"+tt.key)
		if tt.by == "" {
			if r.err != nil || get(r.header, "ratelimit-policy") != `"per-key";q=1;w=3600, "per-ip";q=3;w=3600` {
				t.Errorf("call %d: %v, %v", i, r.header, r.err)
			}
			continue
		}
		if r.code != codes.ResourceExhausted || r.quota.GetQuotaId() != tt.by || r.quota.GetQuotaValue() != tt.value {
			t.Errorf("call %d: %v, %v", i, r.err, r.quota)
		}
	}
}

func TestInvalidOptions(t *testing.T) {
	policy, err := weir.NewPolicy("x", weir.PerSecond(1))
	if err != nil {
		t.Fatal(err)
	}
	by := By(policy, weirhttp.ClientIP())
	for name, f := range map[string]func(){
		"no guard":        func() { UnaryServer(nil) },
		"By of a guard":   func() { StreamServer(newGuard(t, guard.Config{}), by) },
		"no rule":         func() { LimitUnaryServer(newTable(t)) },
		"Failed of Limit": func() { LimitStreamServer(newTable(t), by, Failed(isFailure)) },
	} {
		func() {
			defer func() {
				if text, ok := recover().(string); !ok || !strings.HasPrefix(text, "weir") {
					t.Errorf("%s: %q", name, text)
				}
			}()
			f()
		}()
	}
}
