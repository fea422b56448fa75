package target

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// serveHTTP starts a server that speaks the versions given.
func serveHTTP(t testing.TB, secure bool, set func(*http.Protocols), h http.HandlerFunc) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.Protocols = new(http.Protocols)
	set(srv.Config.Protocols)
	srv.EnableHTTP2 = srv.Config.Protocols.HTTP2()
	srv.Config.ErrorLog = quiet
	if secure {
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	return srv
}

func h1(p *http.Protocols)  { p.SetHTTP1(true) }
func h2(p *http.Protocols)  { p.SetHTTP2(true) }
func h2c(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }

// echo answers with everything that it got.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %s %s|%s", r.Proto, r.Method, r.URL, r.Header.Get("X-Id"), body)
}

// received is the requests of a handler, one line each.
type received struct {
	mu    sync.Mutex
	lines []string
}

func (h *received) record(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h.mu.Lock()
		h.lines = append(h.lines, fmt.Sprintf("%s %s %s host=%s id=%s auth=%s body=%s", r.Proto, r.Method, r.URL, r.Host, r.Header["X-Id"], r.Header.Get("Authorization"), body))
		h.mu.Unlock()
		next(w, r)
	}
}

func (h *received) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.lines...)
}

func TestHTTPVersions(t *testing.T) {
	for _, tt := range []struct {
		name     string
		secure   bool
		server   func(*http.Protocols)
		protocol Protocol
		want     string
	}{
		{"HTTP/1", false, h1, Auto, "HTTP/1.1 GET /"},
		{"HTTP/1 over TLS", true, h1, HTTP1, "HTTP/1.1 GET /"},
		{"HTTP/1 where HTTP/2 is offered, too", true, func(p *http.Protocols) { h1(p); h2(p) }, HTTP1, "HTTP/1.1 GET /"},
		{"HTTP/2", true, h2, HTTP2, "HTTP/2.0 GET /"},
		{"HTTP/2 without TLS", false, h2c, HTTP2, "HTTP/2.0 GET /"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var h received
			srv := serveHTTP(t, tt.secure, tt.server, h.record(echo))
			target := open(t, Config{Protocol: tt.protocol, URL: srv.URL, Connections: 8})
			if lines := h.all(); len(lines) > 0 {
				t.Fatalf("Open sent %q", lines)
			}
			for worker := range 8 {
				r := target.Caller(worker).Call(context.Background(), int64(worker))
				wantAnswer(t, r, true, "200")
			}
			for _, line := range h.all() {
				if !strings.HasPrefix(line, tt.want) {
					t.Errorf("the server received %q, want %q", line, tt.want)
				}
			}
		})
	}
}

func TestHTTPVariables(t *testing.T) {
	var h received
	srv := serveHTTP(t, false, h1, h.record(echo))
	host := strings.TrimPrefix(srv.URL, "http://")
	r := call(t, Config{
		URL:     "http://user:pass@" + host + "/a%2Fb/{{seq}}?w={{worker}}",
		Headers: []string{"X-Id: {{cycle 5}}", "x-id:second", "Host: other.example"},
		Body:    "body {{seq}}",
	})
	wantAnswer(t, r, true, "200")
	want := "HTTP/1.1 POST /a%2Fb/7?w=3 host=other.example id=[2 second] auth=Basic dXNlcjpwYXNz body=body 7"
	if got := h.all(); len(got) != 1 || got[0] != want {
		t.Errorf("the server received %q, want %q", got, want)
	}
}

func TestHTTPStatusAndSize(t *testing.T) {
	srv := serveHTTP(t, false, h1, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/302":
			http.Redirect(w, r, "/500", http.StatusFound)
		case "/429":
			http.Error(w, "slow down", http.StatusTooManyRequests)
		case "/500":
			http.Error(w, "sorry", http.StatusInternalServerError)
		default:
			w.Write(make([]byte, 100_000))
		}
	})
	wantAnswer(t, call(t, Config{URL: srv.URL + "/302"}), true, "302")
	wantAnswer(t, call(t, Config{URL: srv.URL + "/429"}), false, "429")
	wantAnswer(t, call(t, Config{URL: srv.URL + "/500"}), false, "500")
	if r := call(t, Config{URL: srv.URL}); r.Bytes != 100_000 {
		t.Errorf("got %+v", r)
	}
}

// TestHTTPKeepsConnections shows that callers share as many connections as there
// are of them, and that large answers do not cost a connection.
func TestHTTPKeepsConnections(t *testing.T) {
	var conns atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(make([]byte, 300_000))
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	target := open(t, Config{URL: srv.URL, Connections: 4})
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			caller := target.Caller(worker)
			for seq := range int64(10) {
				wantAnswer(t, caller.Call(context.Background(), seq), true, "200")
			}
		})
	}
	wg.Wait()
	if n := conns.Load(); n > 1+4 { // one is the probe
		t.Errorf("%d connections", n)
	}
}

func TestHTTPTooLarge(t *testing.T) {
	srv := serveHTTP(t, false, h1, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(maxAnswer+1))
		w.Write([]byte("x"))
	})
	wantCode(t, call(t, Config{URL: srv.URL}), "too large")
	wantCode(t, call(t, Config{URL: srv.URL, Protocol: JSONRPC, Method: "m"}), "too large")
}

// TestReadingIsBounded is for answers that do not say how large they are.
func TestReadingIsBounded(t *testing.T) {
	read := new(rpcSender).read
	if n, err := drain(io.LimitReader(zeros{}, 1000), 1000); n != 1000 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if err := read(io.LimitReader(zeros{}, 1000), 1000); err != nil {
		t.Error(err)
	}
	if _, err := drain(zeros{}, 1000); !errors.Is(err, errTooLarge) {
		t.Error(err)
	}
	if err := read(zeros{}, 1000); !errors.Is(err, errTooLarge) {
		t.Error(err)
	}
}

// zeros never end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestHTTPNobodyThere(t *testing.T) {
	addr := refusing(t)
	wantRefused(t, Config{URL: "http://user:secret@" + addr + "/secret?secret"}, "target: http://"+addr, "connection refused")
	wantRefused(t, Config{URL: "http://" + addr, Protocol: HTTP2}, "connection refused")
	wantRefused(t, Config{URL: "http://nowhere.invalid"}, "nowhere.invalid:80", "lookup")
}

func TestHTTPGone(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(echo))
	defer srv.Close()
	caller := open(t, Config{URL: srv.URL}).Caller(0)
	wantAnswer(t, caller.Call(context.Background(), 0), true, "200")
	srv.Close()
	wantCode(t, caller.Call(context.Background(), 1), "refused")
}

func TestTLSErrors(t *testing.T) {
	srv := serveHTTP(t, true, h1, echo)
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	wantRefused(t, Config{URL: "https://localhost:" + port}, "target: https://localhost:"+port, "not localhost")
	wantAnswer(t, call(t, Config{URL: "https://localhost:" + port, Insecure: true}), true, "200")
	wantRefused(t, Config{URL: "http://127.0.0.1:" + port, Protocol: HTTP2}, "does not speak HTTP/2")

	plain := serveHTTP(t, false, h1, echo)
	wantRefused(t, Config{URL: strings.Replace(plain.URL, "http", "https", 1)}, "tls")
}

func TestHTTP2Missing(t *testing.T) {
	secure := serveHTTP(t, true, h1, echo)
	wantRefused(t, Config{URL: secure.URL, Protocol: HTTP2}, secure.URL, "the server does not speak HTTP/2")
	plain := serveHTTP(t, false, h1, echo)
	wantRefused(t, Config{URL: plain.URL, Protocol: HTTP2}, plain.URL, "the server does not speak HTTP/2", "HTTP/1.1")
	silent := listen(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	wantRefused(t, Config{URL: "http://" + silent, Protocol: HTTP2, Timeout: 500 * time.Millisecond}, "does not speak HTTP/2", "timeout")
}

// TestHTTP2NotNegotiated has a server that speaks HTTP/2 but does not say so in the
// handshake. net/http would take it for HTTP/1.
func TestHTTP2NotNegotiated(t *testing.T) {
	srv := httptest.NewTLSServer(nil) // for its certificate
	srv.Close()
	addr := listen(t, func(c net.Conn) {
		secure := tls.Server(c, &tls.Config{Certificates: srv.TLS.Certificates})
		io.WriteString(secure, emptySettings)
		io.Copy(io.Discard, secure)
	})
	wantRefused(t, Config{URL: "https://" + addr, Protocol: HTTP2}, "the server does not speak HTTP/2")
}

// TestHTTPTimeout has a server that answers when the test ends.
func TestHTTPTimeout(t *testing.T) {
	for _, tt := range []struct {
		protocol Protocol
		server   func(*http.Protocols)
	}{{HTTP1, h1}, {HTTP2, h2c}} {
		t.Run(tt.protocol.String(), func(t *testing.T) {
			end := make(chan struct{})
			srv := serveHTTP(t, false, tt.server, func(http.ResponseWriter, *http.Request) { <-end })
			t.Cleanup(func() { close(end) })
			target := open(t, Config{URL: srv.URL, Protocol: tt.protocol})
			wantCode(t, impatient(target).Call(context.Background(), 0), "timeout")
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			wantCode(t, target.Caller(0).Call(ctx, 1), "canceled")
		})
	}
}

// TestHTTPBreaksOff has servers that close the connection in the middle of an answer.
func TestHTTPBreaksOff(t *testing.T) {
	breakOff := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.Write([]byte("half"))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	one := serveHTTP(t, false, h1, breakOff)
	wantCode(t, call(t, Config{URL: one.URL}), "closed")
	wantCode(t, call(t, Config{URL: one.URL, Protocol: JSONRPC, Method: "m"}), "closed")
	two := serveHTTP(t, false, h2c, breakOff)
	wantCode(t, call(t, Config{URL: two.URL, Protocol: HTTP2}), "reset")

	// It closes the connection before it answers: once for the probe, then always.
	addr := listen(t, func(c net.Conn) { c.Read(make([]byte, 1000)) })
	wantCode(t, call(t, Config{URL: "http://" + addr, Body: "x"}), "closed")

	linger := listen(t, func(c net.Conn) {
		c.Read(make([]byte, 10))
		c.(*net.TCPConn).SetLinger(0)
	})
	wantCode(t, call(t, Config{URL: "http://" + linger, Body: "x"}), "reset")
}

// TestCloseEndsCalls closes a target while a call waits.
func TestCloseEndsCalls(t *testing.T) {
	arrived, end := make(chan struct{}), make(chan struct{})
	srv := serveHTTP(t, false, h1, func(http.ResponseWriter, *http.Request) { close(arrived); <-end })
	defer close(end)
	target := open(t, Config{URL: srv.URL})
	results := make(chan Result)
	go func() { results <- target.Caller(0).Call(context.Background(), 0) }()
	<-arrived
	if err := target.Close(); err != nil {
		t.Error(err)
	}
	wantCode(t, <-results, "closed")
	wantCode(t, target.Caller(1).Call(context.Background(), 1), "closed")
}

func BenchmarkHTTP(b *testing.B) {
	srv := serveHTTP(b, false, h1, func(http.ResponseWriter, *http.Request) {})
	caller := open(b, Config{URL: srv.URL + "/{{seq}}"}).Caller(0)
	b.ReportAllocs()
	for i := range b.N {
		if r := caller.Call(context.Background(), int64(i)); !r.OK {
			b.Fatalf("%+v", r)
		}
	}
}
