package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// served serves a route at /gw/eth as a daemon does.
func served(t *testing.T, route *Route) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/gw/eth", http.StripPrefix("/gw/eth", route))
	mux.Handle("/gw/eth/", http.StripPrefix("/gw/eth", route))
	mux.HandleFunc("/end", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect { // it has no path
			route.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server
}

// end is sent after all else. If it is answered, with 418, the connection was kept, and all else was read to its end.
const end = "GET /end HTTP/1.1\r\nHost: gateway.example\r\nConnection: close\r\n\r\n"

// TestSockets sends what no client of Go sends, and shows which statuses come back and what endpoints get.
func TestSockets(t *testing.T) {
	const call = `{"id":1,"method":"eth_chainId"}` // 31 bytes
	const head = "Host: gateway.example\r\nContent-Type: application/json\r\n"
	hidden := "POST /gw/eth HTTP/1.1\r\n" + head + "Content-Length: 31\r\n\r\n" + `{"id":2,"method":"eth_hidden1"}`
	tests := []struct {
		name, send string
		statuses   []int
		received   []string
	}{
		{"a request", "POST /gw/eth HTTP/1.1\r\n" + head + "Content-Length: 31\r\n\r\n" + call, []int{200, 418}, []string{"a " + call}},
		{"two requests", strings.Repeat("POST /gw/eth/ HTTP/1.1\r\n"+head+"Content-Length: 31\r\n\r\n"+call, 2), []int{200, 200, 418}, []string{"a " + call, "a " + call}},
		{"HTTP/1.0", "POST /gw/eth HTTP/1.0\r\n" + head + "Content-Length: 31\r\n\r\n" + call, []int{200}, []string{"a " + call}},
		{
			"length and chunks: the chunks count", "POST /gw/eth HTTP/1.1\r\n" + head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n1f\r\n" + call + "\r\n0\r\n\r\n",
			[]int{200},
			[]string{"a " + call},
		},
		{
			"chunks that hide a request in the length", "POST /gw/eth HTTP/1.1\r\n" + head + fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 5+len(hidden)) + hidden,
			[]int{400},
			nil, // the hidden one is not served, either
		},
		{"two lengths", "POST /gw/eth HTTP/1.1\r\n" + head + "Content-Length: 31\r\nContent-Length: 30\r\n\r\n" + call, []int{400}, nil},
		{"a list of codings", "POST /gw/eth HTTP/1.1\r\n" + head + "Transfer-Encoding: gzip, chunked\r\n\r\n1f\r\n" + call + "\r\n0\r\n\r\n", []int{501}, nil},
		{"an odd coding", "POST /gw/eth HTTP/1.1\r\n" + head + "Transfer-Encoding: xchunked\r\n\r\n1f\r\n" + call + "\r\n0\r\n\r\n", []int{501}, nil},
		{"a space before the colon", "POST /gw/eth HTTP/1.1\r\n" + head + "Content-Length : 31\r\n\r\n" + call, []int{400}, nil},
		{"trailers", "POST /gw/eth HTTP/1.1\r\n" + head + "Trailer: X\r\nTransfer-Encoding: chunked\r\n\r\n1f\r\n" + call + "\r\n0\r\nX: 1\r\n\r\n", []int{200}, []string{"a " + call}},
		{"a chunk that is too long", "POST /gw/eth HTTP/1.1\r\n" + head + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n" + call, []int{400}, nil},
		{"CONNECT", "CONNECT elsewhere.example:443 HTTP/1.1\r\nHost: elsewhere.example:443\r\n\r\n" + hidden, []int{405}, nil},
		{"CONNECT to the route", "CONNECT /gw/eth HTTP/1.1\r\nHost: gateway.example\r\n\r\n" + hidden, []int{405}, nil},
		{"another host in the request line", "POST http://169.254.169.254/gw/eth HTTP/1.1\r\n" + head + "Content-Length: 31\r\n\r\n" + call, []int{200, 418}, []string{"a " + call}},
		{"another host in the path", "POST /gw/eth/http://169.254.169.254/ HTTP/1.1\r\n" + head + "Content-Length: 31\r\n\r\n" + call, []int{307, 418}, nil},
		{"a path below", "POST /gw/eth/v2/key HTTP/1.1\r\n" + head + "Content-Length: 31\r\n\r\n" + call, []int{404, 418}, nil},
		{"an escaped path below", "POST /gw/eth/%2e%2e%2fadmin HTTP/1.1\r\n" + head + "Content-Length: 31\r\n\r\n" + call, []int{404, 418}, nil},
		{
			"an upgrade", "POST /gw/eth HTTP/1.1\r\n" + head + "Connection: Upgrade, Content-Length\r\nUpgrade: websocket\r\nContent-Length: 31\r\n\r\n" + call,
			[]int{200, 418},
			[]string{"a " + call},
		},
		{"an upgrade to nonsense", "POST /gw/eth HTTP/1.1\r\n" + head + "Connection: Upgrade\r\nUpgrade: \x01\r\nContent-Length: 31\r\n\r\n" + call, []int{400}, nil},
		{"h2c", "POST /gw/eth HTTP/1.1\r\n" + head + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nContent-Length: 31\r\n\r\n" + call, []int{200, 418}, []string{"a " + call}},
		{"a websocket", "GET /gw/eth HTTP/1.1\r\nHost: gateway.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n", []int{405, 418}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			route, p := newRouteTo(t, to(endpointAt("a")))
			server := served(t, route)
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
			if _, err := io.WriteString(conn, tt.send+end); err != nil {
				t.Fatal(err)
			}
			want(t, "statuses", statuses(t, conn), tt.statuses)
			want(t, "received", p.received(), tt.received)
			for _, r := range p.requests {
				if r.URL.Host != "a.example" || r.Header.Get("Upgrade") != "" || r.Header.Get("Connection") != "" || r.Trailer != nil {
					t.Errorf("an endpoint got %v %v", r.URL, r.Header)
				}
			}
		})
	}
}

// statuses reads all responses of a connection.
func statuses(t *testing.T, conn net.Conn) (list []int) {
	t.Helper()
	for in := bufio.NewReader(conn); ; {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			if err != io.ErrUnexpectedEOF && !strings.Contains(err.Error(), "reset") {
				t.Error(err)
			}
			return list
		}
		if resp.StatusCode == http.StatusContinue {
			continue
		}
		list = append(list, resp.StatusCode)
		_, _ = io.Copy(io.Discard, resp.Body)
	}
}
