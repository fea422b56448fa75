package server

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A route has a handler and rules of its own; other paths have the listener's.
func TestRoutes(t *testing.T) {
	calls, routed := 0, 0
	g := countingGate(&calls)
	count := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { routed++ })
	g.routes = []route{
		{prefix: "/ws/", handler: count, anyOrigin: true},
		{prefix: "/public/", handler: count, anyHost: true},
		{prefix: "/same/"},
	}
	for _, tt := range []struct {
		url, origin   string
		status        int
		calls, routed int
	}{
		{"http://localhost/v1/check", "", 200, 1, 0},
		{"http://localhost/v1/check", "https://example.com", 403, 0, 0},
		{"http://localhost/same/x", "", 200, 1, 0},
		{"http://localhost/same/x", "https://example.com", 403, 0, 0},
		{"http://localhost/ws/x", "https://example.com", 200, 0, 1},
		{"http://localhost/ws", "https://example.com", 403, 0, 0},
		{"http://rebound.example/ws/x", "https://example.com", 421, 0, 0},
		{"http://rebound.example/public/x", "http://rebound.example", 200, 0, 1},
		{"http://localhost/public/x", "https://example.com", 403, 0, 0},
	} {
		calls, routed = 0, 0
		r := httptest.NewRequest("POST", tt.url, nil)
		if tt.origin != "" {
			r.Header.Set("Origin", tt.origin)
		}
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		if w.Code != tt.status || calls != tt.calls || routed != tt.routed {
			t.Errorf("%s from %q: status %d, %d and %d calls; want %+v", tt.url, tt.origin, w.Code, calls, routed, tt)
		}
	}
}

// The timeouts of a route replace the server's.
func TestRouteTimeouts(t *testing.T) {
	const size = 10_000 // of the response: more than net/http buffers
	for _, tt := range []struct {
		name     string
		path     string
		body     time.Duration // how long the caller takes to send the body
		response time.Duration // how long the handler takes to begin the response
		ok       bool
	}{
		{"a call", "/v1/check", readTimeout - time.Second, 0, true},
		{"a slow body", "/v1/check", readTimeout + time.Second, 0, false},
		{"a slow response", "/v1/check", 0, writeTimeout + time.Second, false},
		{"a slow body on a slow route", "/slow/", time.Minute, 0, true},
		{"a slow response on a slow route", "/slow/", 0, time.Hour, true},
		{"too slow for the slow route", "/slow/", 3 * time.Minute, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := countingGate(new(int))
				g.next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if _, err := io.ReadAll(r.Body); err != nil {
						return
					}
					time.Sleep(tt.response)
					io.WriteString(w, strings.Repeat("x", size))
				})
				g.routes = []route{{prefix: "/slow/", read: 2 * time.Minute, write: unlimited}}
				conn := newKeeper(t, serveCapped(t, 1, g.ServeHTTP).dial())
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					_, err := io.WriteString(conn, "POST "+tt.path+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
					for i := 0; i < 100 && err == nil; i++ { // it is never silent for long
						time.Sleep(tt.body / 100)
						_, err = io.WriteString(conn, "x")
					}
				}()
				n := int64(0)
				resp, err := http.ReadResponse(conn.in, nil)
				if err == nil {
					n, err = io.Copy(io.Discard, resp.Body)
				}
				if ok := err == nil && n == size; ok != tt.ok {
					t.Errorf("%d bytes, %v; want success = %v", n, err, tt.ok)
				}
				conn.Close()
				<-sent
			})
		})
	}
}

// A request of a route that must end at a stop ends then, and others do not.
func TestRouteEndsAtStop(t *testing.T) {
	stopping, stop := context.WithCancel(t.Context())
	rt := route{prefix: "/events", stopping: stopping}
	stop()
	for _, tt := range []struct {
		rt   *route
		want error
	}{{&rt, context.Canceled}, {&noRoute, nil}} {
		tt.rt.serve(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if tt.want != nil {
				<-r.Context().Done()
			}
			if err := r.Context().Err(); err != tt.want {
				t.Errorf("%q: %v, want %v", tt.rt.prefix, err, tt.want)
			}
		}), httptest.NewRecorder(), httptest.NewRequest("GET", "/events", nil))
	}
}
