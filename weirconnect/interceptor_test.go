package weirconnect

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/weirhttp"
)

func with(i connect.Interceptor) http.Handler { return newHandler(connect.WithInterceptors(i)) }

// TestUnary: what callers get, in every protocol.
func TestUnary(t *testing.T) {
	for _, w := range wires {
		t.Run(w.name, func(t *testing.T) {
			g := newGuard(t, guard.Config{Endpoints: []guard.Endpoint{{Pattern: prefix + "Unary", Name: "unary", Limits: limits(2)}}})
			client := w.client(t, serve(t, with(New(g))), "Unary")
			for _, want := range []string{`"unary";r=1`, `"unary";r=0;t=`} {
				res, err := client.CallUnary(t.Context(), ask("hello"))
				if err != nil {
					t.Fatal(err)
				}
				if got := res.Header().Get("RateLimit"); !strings.HasPrefix(got, want) {
					t.Errorf("RateLimit: %s, want %s", got, want)
				}
				if got := res.Header()["Ratelimit-Policy"]; len(got) != 1 || got[0] != `"unary";q=2;w=3600` {
					t.Errorf("RateLimit-Policy: %q", got)
				}
				if res.Msg.Value != "hello" || res.Header().Get("Retry-After") != "" || res.Trailer().Get("RateLimit") != "" {
					t.Errorf("%v, %v, %v", res.Msg, res.Header(), res.Trailer())
				}
			}
			_, err := client.CallUnary(t.Context(), ask("hello"))
			r := refusalOf(t, err)
			if r.code != connect.CodeResourceExhausted || r.retry <= 0 || r.retry > 30*time.Minute {
				t.Errorf("%v, retry after %v", err, r.retry)
			}
			if q := r.quota; q == nil || q.QuotaId != "unary" || q.QuotaValue != 2 || q.Subject != "ip" {
				t.Errorf("quota %v", r.quota)
			}
			if r.meta.Get("Retry-After") == "" || !strings.HasPrefix(r.meta.Get("RateLimit"), `"unary";r=0;t=`) || r.meta.Get("RateLimit-Policy") == "" {
				t.Errorf("%v", r.meta)
			}
			if pushback := r.meta.Get("grpc-retry-pushback-ms"); (pushback != "") != w.grpc() {
				t.Errorf("pushback %q", pushback)
			}
			if strings.Contains(err.Error(), "127.0.0.1") {
				t.Errorf("the key is in %v", err)
			}
		})
	}
}

// TestErrorsHaveFields: an error of the handler has the fields of an admitted call.
func TestErrorsHaveFields(t *testing.T) {
	for _, w := range wires {
		g := newGuard(t, guard.Config{Default: guard.Endpoint{Name: "all", Limits: limits(2)}})
		client := w.client(t, serve(t, with(New(g))), "Unary")
		_, err := client.CallUnary(t.Context(), ask("fail not_found"))
		r := refusalOf(t, err)
		if r.code != connect.CodeNotFound || !strings.HasPrefix(r.meta.Get("RateLimit"), `"all";r=1`) || r.quota != nil {
			t.Errorf("%s: %v with %v", w.name, err, r.meta)
		}
	}
}

// TestCodes: the code for each cause.
func TestCodes(t *testing.T) {
	forever := guard.Hooks{Blocked: func(guard.Subject) (time.Time, bool) { return time.Time{}, true }}
	hidden := []ruleset.Limit{{Limit: perHour(1), Hidden: true}}
	for name, tt := range map[string]struct {
		config  guard.Config
		code    connect.Code
		retries bool // there is a RetryInfo
		quota   bool // there is a QuotaFailure
	}{
		"limit":   {guard.Config{Default: guard.Endpoint{Limits: limits(1)}}, connect.CodeResourceExhausted, true, true},
		"hidden":  {guard.Config{Default: guard.Endpoint{Limits: hidden}}, connect.CodeResourceExhausted, true, false},
		"address": {guard.Config{BeforeAuth: guard.BeforeAuth{PerIP: limits(1)}}, connect.CodeResourceExhausted, true, false},
		"costly":  {guard.Config{Default: guard.Endpoint{Limits: limits(1), Cost: 2}}, connect.CodeResourceExhausted, false, true},
		"blocked": {guard.Config{Hooks: forever}, connect.CodePermissionDenied, false, false},
	} {
		for _, w := range wires {
			client := w.client(t, serve(t, with(New(newGuard(t, tt.config)))), "Unary")
			_, _ = client.CallUnary(t.Context(), ask(""))
			_, err := client.CallUnary(t.Context(), ask(""))
			r := refusalOf(t, err)
			if r.code != tt.code || r.retry > 0 != tt.retries || (r.quota != nil) != tt.quota {
				t.Errorf("%s, %s: %v, retry after %v, quota %v", name, w.name, err, r.retry, r.quota)
			}
			if r.meta.Get("Retry-After") != "" != tt.retries {
				t.Errorf("%s, %s: Retry-After %q", name, w.name, r.meta.Get("Retry-After"))
			}
			if w.grpc() && !tt.retries && r.meta.Get("grpc-retry-pushback-ms") != "-1" {
				t.Errorf("%s, %s: pushback %q, want -1", name, w.name, r.meta.Get("grpc-retry-pushback-ms"))
			}
		}
	}
}

// TestOverload: a call that is in flight makes the next one unavailable, and a panic releases it.
func TestOverload(t *testing.T) {
	g := newGuard(t, guard.Config{BeforeAuth: guard.BeforeAuth{InFlight: 1}})
	url := serve(t, with(New(g)))
	bidi := wires[1].client(t, url, "Bidi").CallBidiStream(t.Context())
	if err := bidi.Send(wrapperspb.String("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := bidi.Receive(); err != nil {
		t.Fatal(err)
	}
	client := wires[0].client(t, url, "Unary")
	_, err := client.CallUnary(t.Context(), ask(""))
	if r := refusalOf(t, err); r.code != connect.CodeUnavailable || r.retry != time.Second {
		t.Errorf("%v, retry after %v", err, r.retry)
	}
	if err := bidi.CloseRequest(); err != nil {
		t.Fatal(err)
	}
	if _, err := bidi.Receive(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	_ = bidi.CloseResponse()
	eventually(t, func() bool { return g.Stats().InFlight == 0 })
	if _, err := client.CallUnary(t.Context(), ask("panic")); err == nil {
		t.Error("no panic")
	}
	eventually(t, func() bool { return g.Stats().InFlight == 0 })
	if _, err := client.CallUnary(t.Context(), ask("")); err != nil {
		t.Error(err)
	}
}

// eventually waits for what another goroutine does after its reply.
func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not come to pass")
		}
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
	pass := With(weirhttp.OnError(func(*http.Request, error) bool { return true }))
	for _, w := range wires {
		_, err = w.client(t, serve(t, with(New(g))), "Unary").CallUnary(t.Context(), ask(""))
		if r := refusalOf(t, err); r.code != connect.CodeUnavailable || r.retry != 0 || r.meta.Get("grpc-retry-pushback-ms") != "" {
			t.Errorf("%s: %v, retry after %v", w.name, err, r.retry)
		}
		if _, err := w.client(t, serve(t, with(New(g, pass))), "Unary").CallUnary(t.Context(), ask("")); err != nil {
			t.Errorf("%s: %v", w.name, err)
		}
	}
}

// TestStreams: admission of each kind of stream, with the fields in the header.
func TestStreams(t *testing.T) {
	for _, w := range wires {
		for _, kind := range []string{"Client", "Server", "Bidi"} {
			if kind == "Bidi" && !w.http2 {
				continue
			}
			t.Run(w.name+" "+kind, func(t *testing.T) {
				g := newGuard(t, guard.Config{Default: guard.Endpoint{Name: "all", Limits: limits(1)}})
				client := w.client(t, serve(t, with(New(g))), kind)
				header, n, err := stream(t, client, kind, 5)
				if err != nil || header.Get("RateLimit-Policy") != `"all";q=1;w=3600` || n == 0 {
					t.Errorf("%d replies, %v, %v", n, header, err)
				}
				header, n, err = stream(t, client, kind, 5)
				r := refusalOf(t, err)
				if n != 0 || r.code != connect.CodeResourceExhausted || r.retry <= 0 || r.quota == nil {
					t.Errorf("%d replies, %v, retry after %v, quota %v", n, err, r.retry, r.quota)
				}
				if header.Get("Retry-After") == "" && r.meta.Get("Retry-After") == "" {
					t.Errorf("no Retry-After in %v and %v", header, r.meta)
				}
			})
		}
	}
}

// stream opens a stream, sends n messages (for Server one) and returns the number of replies, or of
// messages that the server counted.
func stream(t testing.TB, client *connect.Client[text, text], kind string, n int) (h http.Header, replies int, err error) {
	t.Helper()
	switch kind {
	case "Client":
		s := client.CallClientStream(t.Context())
		for range n {
			if err := s.Send(wrapperspb.String("x")); err != nil {
				break // the reply says why
			}
		}
		res, err := s.CloseAndReceive()
		if err != nil {
			return nil, 0, err
		}
		return res.Header(), len(res.Msg.Value), nil
	case "Server":
		s, err := client.CallServerStream(t.Context(), ask("x"))
		if err != nil {
			return nil, 0, err
		}
		defer s.Close()
		for s.Receive() {
			replies++
		}
		return s.ResponseHeader(), replies, s.Err()
	}
	s := client.CallBidiStream(t.Context())
	defer s.CloseResponse()
	for range n {
		if err := s.Send(wrapperspb.String("x")); err != nil && !errors.Is(err, io.EOF) {
			return nil, replies, err
		}
		if _, err := s.Receive(); err != nil {
			return s.ResponseHeader(), replies, err
		}
		replies++
	}
	if err := s.CloseRequest(); err != nil {
		return nil, replies, err
	}
	if _, err := s.Receive(); !errors.Is(err, io.EOF) {
		return nil, replies, err
	}
	return s.ResponseHeader(), replies, nil
}

// TestPerMessage: a stream of n messages costs n, and the message that is refused ends it.
func TestPerMessage(t *testing.T) {
	perKey, err := weir.NewPolicy("all", perHour(10))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wires {
		if !w.http2 {
			continue
		}
		g := newGuard(t, guard.Config{BeforeAuth: guard.BeforeAuth{PerIP: limits(2)}, Default: guard.Endpoint{Name: "all", Limits: limits(10)}})
		for name, i := range map[string]connect.Interceptor{
			"New": New(g, PerMessage()), "Limit": Limit(newTable(t), By(perKey, weirhttp.ClientIP()), PerMessage()),
		} {
			client := w.client(t, serve(t, with(i)), "Bidi")
			if _, n, err := stream(t, client, "Bidi", 4); n != 4 || err != nil {
				t.Errorf("%s, %s: %d replies, %v, want 4", w.name, name, n, err)
			}
			_, n, err := stream(t, client, "Bidi", 20)
			r := refusalOf(t, err)
			if n != 6 || r.code != connect.CodeResourceExhausted || r.retry <= 0 || r.quota == nil || r.quota.QuotaValue != 10 {
				t.Errorf("%s, %s: %d replies, %v, quota %v, want 6", w.name, name, n, err, r.quota)
			}
			if r.meta.Get("Retry-After") == "" || w.grpc() != (r.meta.Get("grpc-retry-pushback-ms") != "") {
				t.Errorf("%s, %s: %v", w.name, name, r.meta)
			}
		}
	}
}

// TestPerMessageIsFinal: a handler that ignores the error does not turn a refusal into a success, and a
// stream from the server costs one.
func TestPerMessageIsFinal(t *testing.T) {
	g := newGuard(t, guard.Config{Default: guard.Endpoint{Limits: limits(3)}})
	url := serve(t, with(New(g, PerMessage())))
	for _, w := range wires[:2] {
		if _, _, err := stream(t, w.client(t, url, "Server"), "Server", 1); err != nil {
			t.Error(err)
		}
	}
	_, _, err := stream(t, wires[1].client(t, url, "Client"), "Client", 2)
	if r := refusalOf(t, err); r.code != connect.CodeResourceExhausted {
		t.Error(err)
	}
}

// TestIdentity: the order of the stages and of what identifies.
func TestIdentity(t *testing.T) {
	var authenticated atomic.Int64
	authenticate := Authenticate(func(ctx context.Context, h http.Header) (context.Context, error) {
		authenticated.Add(1)
		switch user := h.Get("X-User"); user {
		case "":
			return ctx, nil
		case "mallory":
			return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("no"))
		default:
			return guard.WithSubject(ctx, guard.User(user)), nil
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
	client := wires[0].client(t, serve(t, with(New(g, authenticate, verify))), "Unary")
	for i, tt := range []struct {
		message, field string
		want           connect.Code
	}{
		{"", "", 0},
		{"", "", connect.CodeResourceExhausted}, // the address
		{"", "X-User:alice", 0},
		{"", "X-User:alice", connect.CodeResourceExhausted},
		{"signed by bob", "X-User:alice", 0},
		{"signed by bob", "", connect.CodeResourceExhausted},
		{"", "X-Api-Key:k", 0},
		{"", "X-Api-Key:wrong", connect.CodeResourceExhausted}, // the address
		{"", "X-User:mallory", connect.CodeUnauthenticated},
		{"", "X-User:mallory", connect.CodeResourceExhausted}, // before authentication
	} {
		_, err := client.CallUnary(t.Context(), ask(tt.message, strings.Fields(tt.field)...))
		if got := connect.CodeOf(err); err != nil && got != tt.want || err == nil && tt.want != 0 {
			t.Errorf("call %d: %v, want %v", i, err, tt.want)
		}
	}
	if n := authenticated.Load(); n != 9 {
		t.Errorf("%d calls were authenticated, want 9", n)
	}
}

// TestFailures: of many parallel guesses exactly five are tried; other errors and successes are free.
func TestFailures(t *testing.T) {
	g := newGuard(t, guard.Config{Default: guard.Endpoint{Count: guard.CountFailures, Limits: limits(5)}})
	client := wires[2].client(t, serve(t, with(New(g))), "Unary")
	for range 10 {
		for _, message := range []string{"", "fail not_found"} {
			if _, err := client.CallUnary(t.Context(), ask(message)); connect.CodeOf(err) == connect.CodeResourceExhausted {
				t.Fatal(err)
			}
		}
	}
	var tried atomic.Int64
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			_, err := client.CallUnary(t.Context(), ask("fail unauthenticated"))
			if connect.CodeOf(err) == connect.CodeUnauthenticated {
				tried.Add(1)
			}
		})
	}
	wg.Wait()
	if n := tried.Load(); n != 5 {
		t.Errorf("%d were tried, want 5", n)
	}
}

// TestShadow: nothing shows.
func TestShadow(t *testing.T) {
	g := newGuard(t, guard.Config{Mode: ruleset.Shadow, BeforeAuth: guard.BeforeAuth{PerIP: limits(1)}, Default: guard.Endpoint{Limits: limits(1)}})
	for _, w := range wires {
		client, plain := w.client(t, serve(t, with(New(g, PerMessage()))), "Unary"), w.client(t, serve(t, newHandler()), "Unary")
		for range 3 {
			got, err := client.CallUnary(t.Context(), ask("x"))
			if err != nil {
				t.Fatal(err)
			}
			want, err := plain.CallUnary(t.Context(), ask("x"))
			if err != nil {
				t.Fatal(err)
			}
			for name := range got.Header() {
				if want.Header()[name] == nil {
					t.Errorf("%s: %s: %s", w.name, name, got.Header().Get(name))
				}
			}
		}
	}
}

// TestRefuse: middleware replies in the caller's protocol, and does not read the body.
func TestRefuse(t *testing.T) {
	var read atomic.Int64
	counts := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Body = &counting{r.Body, &read}
			next.ServeHTTP(w, r)
		})
	}
	for _, w := range wires {
		g := newGuard(t, guard.Config{Default: guard.Endpoint{Name: "all", Limits: limits(1)}})
		client := w.client(t, serve(t, counts(weirhttp.Guard(g, weirhttp.Refuse(Refuse()))(newHandler()))), "Unary")
		if _, err := client.CallUnary(t.Context(), ask("x")); err != nil {
			t.Fatal(err)
		}
		before := read.Load()
		_, err := client.CallUnary(t.Context(), ask("x"))
		r := refusalOf(t, err)
		if r.code != connect.CodeResourceExhausted || r.retry <= 0 || r.quota == nil || r.meta.Get("RateLimit-Policy") == "" || r.meta.Get("Retry-After") == "" {
			t.Errorf("%s: %v, %v, %v", w.name, err, r.quota, r.meta)
		}
		if read.Load() != before {
			t.Errorf("%s: %d bytes of the body were read", w.name, read.Load()-before)
		}
	}
	g := newGuard(t, guard.Config{Default: guard.Endpoint{Limits: limits(1), Cost: 2}})
	url := serve(t, weirhttp.Guard(g, weirhttp.Refuse(Refuse()))(newHandler()))
	res, err := http.Post(url, "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer res.Body.Close()
	if got := res.Header.Get("Content-Type"); res.StatusCode != 429 || got != "application/problem+json" {
		t.Errorf("%d %s", res.StatusCode, got)
	}
}

type counting struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// TestClientsAreNotLimited: the interceptor in a client does nothing.
func TestClientsAreNotLimited(t *testing.T) {
	g := newGuard(t, guard.Config{Mode: ruleset.Enforce, Hooks: guard.Hooks{Blocked: func(guard.Subject) (time.Time, bool) { return time.Time{}, true }}})
	w := wires[1]
	w.options = []connect.ClientOption{connect.WithInterceptors(New(g))}
	url := serve(t, newHandler())
	if _, err := w.client(t, url, "Unary").CallUnary(t.Context(), ask("")); err != nil {
		t.Error(err)
	}
	if _, _, err := stream(t, w.client(t, url, "Bidi"), "Bidi", 1); err != nil {
		t.Error(err)
	}
}

func TestPanics(t *testing.T) {
	policy, err := weir.NewPolicy("x", weir.PerSecond(1))
	if err != nil {
		t.Fatal(err)
	}
	by := By(policy, weirhttp.ClientIP())
	for name, f := range map[string]func(){
		"no guard":  func() { New(nil) },
		"By of New": func() { New(newGuard(t, guard.Config{}), by) },
		"no rule":   func() { Limit(newTable(t)) },
		"Verify of Limit": func() {
			Limit(newTable(t), by, Verify(func(context.Context, any) (guard.Subject, bool) { return guard.Subject{}, false }))
		},
		"no limiter of Limit": func() { Limit(nil, by) },
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
