package server

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/secret"
)

// Tokens of a test. Nobody has the wrong one.
const (
	rightToken    = "right-0123456789abcdef0123456789abcdef"
	operatorToken = "operator-0123456789abcdef0123456789abcdef"
	wrongToken    = "wrong-0123456789abcdef0123456789abcdef"
)

// What became of a call.
const (
	served    = "served"
	unknown   = "unknown token"
	throttled = "too many wrong tokens"
)

// A valid token is served whatever else comes from its address; only wrong tokens are throttled, over all
// protocols together, and those of operators apart from those of clients. All of them are counted, and
// the log has some, without the tokens.
func TestWrongTokensOfOthers(t *testing.T) {
	const rounds = 12 // with wrong tokens over three protocols: more than the 20 that are not throttled
	var log syncBuffer
	r := run(t, Config{
		Limiter: frozenTable(t), Log: slog.New(slog.NewTextHandler(&log, nil)), GRPC: Listener{Address: "127.0.0.1:0"}, RESP: Listener{Address: "127.0.0.1:0"},
		Live: Live{
			Clients:   []Client{{Name: "shop", Tokens: []secret.Secret{secret.New(rightToken)}}},
			Operators: []Operator{{Name: "ops", Tokens: []secret.Secret{secret.New(operatorToken)}, Scopes: ScopeRead}},
		},
	})
	get := httpCaller(t, r.url+"/metrics", http.MethodGet)
	protocols := []struct {
		name string
		call func(token string) string
	}{{"HTTP", httpCaller(t, r.url+"/v1/check", http.MethodPost)}, {"gRPC", grpcCaller(t, r)}, {"RESP", respCaller(t, r)}}
	count := map[string]int{}
	for range rounds {
		for _, p := range protocols {
			got := p.call(wrongToken)
			if count[got]++; got != unknown && got != throttled {
				t.Errorf("%s: a wrong token is answered with %q", p.name, got)
			}
		}
		for _, p := range protocols {
			if got := p.call(rightToken); got != served {
				t.Errorf("%s: the right token is answered with %q after %v", p.name, got, count)
			}
		}
		if got := get(operatorToken); got != served {
			t.Errorf("the operator's token is answered with %q after %v", got, count)
		}
	}
	if count[unknown] < 20 || count[throttled] == 0 {
		t.Errorf("wrong tokens: %v, want 20 unknown ones before others are throttled", count)
	}
	if got := get(wrongToken); got != unknown {
		t.Errorf("an operator's first wrong token is answered with %q", got)
	}
	metrics, _ := getText(t, newClient(t), r.url+"/metrics", "Authorization", "Bearer "+operatorToken)
	for _, want := range []string{
		fmt.Sprintf(`{kind="client",reason="unknown"} %d`, count[unknown]),
		fmt.Sprintf(`{kind="client",reason="throttled"} %d`, count[throttled]),
		`{kind="admin",reason="unknown"} 1`, `{kind="admin",reason="missing"} 0`,
	} {
		if !strings.Contains(metrics, "weir_auth_failures_total"+want+"\n") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	for _, want := range []string{"kind=client reason=unknown remote=127.0.0.1:", "kind=admin reason=unknown remote=127.0.0.1:"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log.String())
		}
	}
	if strings.Contains(log.String(), "0123456789abcdef") {
		t.Errorf("the log has a token:\n%s", log.String())
	}
}

// httpCaller returns a function that makes a request with a token and says what became of it.
func httpCaller(t *testing.T, url, method string) func(token string) string {
	client := newClient(t)
	return func(token string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		switch resp.StatusCode {
		case http.StatusOK:
			return served
		case http.StatusUnauthorized:
			return unknown
		case http.StatusTooManyRequests:
			return throttled
		}
		return resp.Status
	}
}

// grpcCaller does the same over gRPC.
func grpcCaller(t *testing.T, r *running) func(token string) string {
	client := weirv1.NewLimiterServiceClient(dialGRPC(t, r, nil))
	return func(token string) string {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		_, err := client.Check(ctx, &weirv1.CheckRequest{Policy: "default", Key: "alice"})
		switch status.Code(err) {
		case codes.OK:
			return served
		case codes.Unauthenticated:
			return unknown
		case codes.ResourceExhausted:
			return throttled
		}
		return err.Error()
	}
}

// respCaller does the same over the Redis protocol, with a new connection for each call.
func respCaller(t *testing.T, r *running) func(token string) string {
	return func(token string) string {
		t.Helper()
		conn, err := net.Dial("tcp", r.bound.RESP.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "AUTH %s\r\n", token)
		reply, err := bufio.NewReader(conn).ReadString('\n')
		switch {
		case err != nil:
			return err.Error()
		case reply == "+OK\r\n":
			return served
		case strings.HasPrefix(reply, "-WRONGPASS"):
			return unknown
		case strings.HasPrefix(reply, "-ERR too many wrong tokens"):
			return throttled
		}
		return reply
	}
}
