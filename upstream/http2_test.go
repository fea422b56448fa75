package upstream

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/secret"
)

// newHTTP2Pool returns a pool with one endpoint, of 100 requests per minute, that speaks HTTP/2 over one connection. It has
// two requests at a time at most if few is true.
func newHTTP2Pool(t *testing.T, few bool, handler http.HandlerFunc) (*Pool, *http.Transport) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		handler(w, r)
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	if few {
		server.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 2}
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	transport := NewTransport()
	transport.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig
	transport.HTTP2 = &http.HTTP2Config{StrictMaxConcurrentRequests: true}
	t.Cleanup(transport.CloseIdleConnections)
	pool, _ := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a", limited(Rate{PerMinute: 100}))}})
	c := pool.set.Load().config
	c.Endpoints[0].RPC, c.Transport = secret.New(server.URL), transport
	if err := pool.Replace(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return pool, transport
}

// eventually waits until something is true, over real sockets.
func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen")
		}
	}
}

// TestHTTP2IsChargedOnce sends requests one after the other and at once over one connection.
func TestHTTP2IsChargedOnce(t *testing.T) {
	var received, other atomic.Int64
	pool, _ := newHTTP2Pool(t, false, func(w http.ResponseWriter, r *http.Request) {
		if received.Add(1); r.ProtoMajor != 2 {
			other.Add(1)
		}
		_, _ = io.WriteString(w, "{}")
	})
	for range 5 {
		if _, _, err := send(pool, call()); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, _, err := send(pool, call()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := received.Load(); n != 25 || other.Load() != 0 {
		t.Errorf("%d requests were received, %d of them not over HTTP/2", n, other.Load())
	}
	if s := pool.Stats().Endpoints[0]; s.Sent != 25 || s.Unsent != 0 || remaining(t, pool)[0] != 75 {
		t.Errorf("%d of 100 are left: %+v", remaining(t, pool)[0], s)
	}
}

// TestHTTP2UnsentIsGivenBack gives back what was charged for a request that waits for its turn on the connection when its
// caller leaves, and for one to an endpoint with a certificate that is not trusted.
func TestHTTP2UnsentIsGivenBack(t *testing.T) {
	hold := make(chan struct{})
	var received atomic.Int64
	pool, transport := newHTTP2Pool(t, true, func(w http.ResponseWriter, _ *http.Request) {
		if received.Add(1) > 1 {
			<-hold
		}
		_, _ = io.WriteString(w, "{}")
	})
	if _, _, err := send(pool, call()); err != nil { // from now on the transport knows how many requests there may be
		t.Fatal(err)
	}
	var held sync.WaitGroup
	for i := range 2 {
		held.Go(func() {
			if _, _, err := send(pool, call()); err != nil {
				t.Error(err)
			}
		})
		eventually(t, func() bool { return received.Load() == int64(2+i) })
	}
	ctx, cancel := context.WithCancel(t.Context())
	var left sync.WaitGroup
	left.Go(func() {
		if _, err := pool.Send(request(ctx, 0), call()); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want that the caller has left", err)
		}
	})
	eventually(t, func() bool { return remaining(t, pool)[0] == 96 })
	cancel()
	left.Wait()
	if n := remaining(t, pool)[0]; n != 97 {
		t.Errorf("%d are left, want 97", n)
	}
	close(hold)
	held.Wait()

	transport.CloseIdleConnections()
	c := pool.set.Load().config
	c.Transport = nil // the pool's own, which does not trust the certificate
	if err := pool.Replace(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	_, _, err := send(pool, call())
	if e := (*TryError)(nil); !errors.As(err, &e) || e.Sent || e.Reason != "TLS handshake failed" {
		t.Errorf("%v, want that the handshake has failed", err)
	}
	if s := pool.Stats().Endpoints[0]; s.Sent != 3 || s.Unsent != 1 || received.Load() != 3 || remaining(t, pool)[0] != 97 {
		t.Errorf("%d are left, want 97: %+v", remaining(t, pool)[0], s)
	}
}

// TestHTTP2RefusalInside200 answers with an error of JSON-RPC, and ends the response only in a further frame: the pool has read
// all of it before its caller gets it.
func TestHTTP2RefusalInside200(t *testing.T) {
	const refused = `{"jsonrpc":"2.0","id":1,"error":{"code":429,"message":"too many"}}`
	pool, _ := newHTTP2Pool(t, false, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, refused)
		w.(http.Flusher).Flush()
	})
	reply, err := pool.Send(request(t.Context(), 0), &Call{Methods: []string{"eth_call"}})
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK || reply.ProtoMajor != 2 {
		t.Errorf("status %d over %s", reply.StatusCode, reply.Proto)
	}
	if s := pool.Stats().Endpoints[0]; s.Failures["rate"] != 1 || s.Reason != "rate (429)" {
		t.Errorf("failures %v, out of use because of %q: want a refusal", s.Failures, s.Reason)
	}
}
