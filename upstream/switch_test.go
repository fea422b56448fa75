package upstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/secret"
)

// TestSwitchedProtocols calls an endpoint that answers each request with status 101, and then says nothing. The body of such
// a response is the connection, which no context interrupts.
func TestSwitchedProtocols(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { switchProtocol(conn) })
		}
	})
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	pool, _ := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a", concurrency(2))}})
	c := pool.set.Load().config
	c.Endpoints[0].RPC, c.Transport = secret.New("http://"+listener.Addr().String()), nil
	if err := pool.Replace(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.own.CloseIdleConnections)
	for range failuresToClose {
		_, _, err := send(pool, &Call{Methods: []string{"eth_x"}})
		if e := (*TryError)(nil); !errors.As(err, &e) || e.Reason != "status 101" || !e.Sent {
			t.Errorf("%v, want that the endpoint has not answered", err)
		}
	}
	if e := pool.Stats().Endpoints[0]; e.InFlight != 0 || e.Failures["failed"] != failuresToClose || e.Health != "down" {
		t.Errorf("%+v", e)
	}
}

// switchProtocol answers one request, and returns when the connection is closed.
func switchProtocol(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	r, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: nothing\r\n\r\n")
	_, _ = io.Copy(io.Discard, in)
}

// TestBodiesThatIgnoreTheContext reads bodies of which nothing comes, and that end only when they are closed. The timeout
// ends them, and so does the caller who leaves.
func TestBodiesThatIgnoreTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a")}, Timeout: 2 * time.Second})
		p.answer = func(*http.Request, string) (*http.Response, error) {
			resp := reply(200, "")
			r, w := io.Pipe()
			_ = w // never written to
			resp.ContentLength, resp.Body = -1, r
			return resp, nil
		}
		_, _, err := send(pool, call())
		if e := (*TryError)(nil); !errors.As(err, &e) || !e.Timeout {
			t.Errorf("%v, want a timeout", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := pool.Send(request(ctx, 0), call()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want that the caller has left", err)
		}
		want(t, "in flight", pool.Stats().Endpoints[0].InFlight, int64(0))
	})
}
