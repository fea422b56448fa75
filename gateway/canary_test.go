package gateway

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/upstream"
)

// text is a buffer that several goroutines write to.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// TestCanary lets everything fail, over real connections, and looks for the secret in whatever can be seen.
func TestCanary(t *testing.T) {
	echo := func(status int, contentType string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Location", "https://elsewhere.example"+r.URL.String())
			w.Header().Set("Link", "<"+r.URL.String()+">")
			w.Header().Set("Www-Authenticate", `Bearer realm="`+r.URL.String()+`"`)
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"error":{"code":%d,"message":"http://%s%s is not allowed for %v"}}`, -status, r.Host, r.URL, r.Header)
		}
	}
	reset := func(n int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"result":"`+strings.Repeat("x", n))
			w.(http.Flusher).Flush()
			conn, _, _ := w.(http.Hijacker).Hijack()
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	}
	slow := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then the server notices that the client leaves
		<-r.Context().Done()
	}
	tests := []struct {
		name      string
		handler   http.HandlerFunc
		transport http.RoundTripper
		kind      string // of the server: "", "closed", "tls" or "plain"
		status    int    // 0 if there is no response, or one that breaks off
	}{
		{name: "connection refused", kind: "closed", status: 502},
		{name: "certificate of nobody", handler: echo(200, "application/json"), kind: "tls", status: 502},
		{name: "TLS to a plain server", handler: echo(200, "application/json"), kind: "plain", status: 502},
		{name: "timeout", handler: slow, status: 504},
		{name: "denied", handler: echo(401, "application/json"), status: 401},
		{name: "denied by a page", handler: echo(403, "text/html"), status: 403},
		{name: "limited", handler: echo(429, "application/json"), status: 429},
		{name: "broken", handler: echo(500, "text/plain"), status: 500},
		{name: "an error in a success", handler: echo(200, "application/json"), status: 200},
		{name: "redirect", handler: echo(302, "text/html"), status: 502},
		{name: "another redirect", handler: echo(308, "application/json"), status: 502},
		{name: "reset in a short body", handler: reset(100), status: 502},
		{name: "reset in a long body", handler: reset(200_000)},
		{name: "panic with an error", status: 500, transport: transport(func(r *http.Request) (*http.Response, error) { panic(fmt.Errorf("cannot reach %s", r.URL)) })},
		{name: "panic with a text", status: 500, transport: transport(func(r *http.Request) (*http.Response, error) { panic(r.URL.String()) })},
		{name: "panic with a request", status: 500, transport: transport(func(r *http.Request) (*http.Response, error) { panic(r) })},
		{name: "an error with the URL", status: 502, transport: transport(func(r *http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("Post %q: %v", r.URL, r.Header)
		})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(tt.handler)
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			scheme := "http"
			switch tt.kind {
			case "tls":
				scheme = "https"
				server.StartTLS()
			case "plain":
				scheme = "https"
				server.Start()
			default:
				server.Start()
			}
			defer server.Close()
			if tt.kind == "closed" {
				server.Close()
			}
			url := scheme + "://user-" + canary + ":" + canary + "@" + server.Listener.Addr().String() + "/v2/" + canary + "?key=" + canary

			var seen text
			logger := slog.New(slog.NewJSONHandler(&seen, &slog.HandlerOptions{Level: slog.LevelDebug, AddSource: true}))
			c := Config{Logger: logger, Pool: upstream.Config{Logger: logger, Timeout: 100 * time.Millisecond, Transport: tt.transport, Endpoints: []upstream.Endpoint{
				endpointAt("a", func(e *upstream.Endpoint) { e.RPC = secret.New(url) }),
			}}}
			if tt.kind != "" || tt.name != "timeout" {
				c.Pool.Timeout = 0
			}
			if c.Pool.Transport == nil {
				own := http.DefaultTransport.(*http.Transport).Clone()
				own.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
				defer own.CloseIdleConnections()
				c.Pool.Transport = own
			}
			route, _ := newRouteTo(t, c)
			front := httptest.NewUnstartedServer(route)
			front.Config.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelError)
			front.Start()
			defer front.Close()
			for i := range 4 {
				resp, err := front.Client().Post(front.URL, "application/json", strings.NewReader(blockNumber))
				if err != nil {
					t.Fatal(err)
				}
				if i == 0 && tt.status != 0 && resp.StatusCode != tt.status {
					t.Errorf("status %d, want %d", resp.StatusCode, tt.status)
				}
				body, err := io.ReadAll(resp.Body)
				if (err == nil) != (tt.status != 0) {
					t.Errorf("%v after %d bytes", err, len(body))
				}
				_ = resp.Body.Close()
				fmt.Fprintf(&seen, "%d %v\n%s\n", resp.StatusCode, resp.Header, body)
			}
			stats, _ := json.Marshal(route.Pool().Stats())
			fmt.Fprintf(&seen, "%s\n%+v %#v\n%v", stats, c, c.Pool.Endpoints, c.Validate())
			if tt.kind == "" && !strings.Contains(seen.String(), `"a"`) {
				t.Error("nothing is said about the endpoint")
			}
			for _, line := range strings.Split(seen.String(), "\n") {
				if basic := base64.StdEncoding.EncodeToString([]byte("user-" + canary + ":" + canary)); strings.Contains(line, canary) || strings.Contains(line, basic) {
					t.Errorf("the secret is in %s", line)
				}
			}
		})
	}
}

// TestAbort passes the panic of net/http on, and nothing is logged.
func TestAbort(t *testing.T) {
	var seen text
	c := to(endpointAt("a"))
	c.Logger = slog.New(slog.NewTextHandler(&seen, nil))
	route, p := newRouteTo(t, c)
	p.answer = func(*http.Request, string) (*http.Response, error) { panic(http.ErrAbortHandler) }
	defer func() {
		if v := recover(); v != http.ErrAbortHandler || seen.String() != "" {
			t.Errorf("%v, %s", v, seen.String())
		}
	}()
	ask(route, post(blockNumber))
}
