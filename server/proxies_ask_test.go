//go:build linux

package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"
)

// A client that has used up its limit cannot get around it with requests that make it hard
// to ask weir, for which a proxy that fails open would let them pass.
func (s *setup) asksAnyway() error {
	ip := s.fresh()
	c := s.client(ip)
	for range 5 {
		if a, err := c.get("/"); err != nil || a.status != 200 {
			return fmt.Errorf("%+v %w", a, err)
		}
	}
	s.app.take()
	long := func(n int) string { return strings.Repeat("a", n) }
	get := func(path, headers string) string {
		return "GET " + path + " HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n"
	}
	for name, request := range map[string]string{
		"a path of 300":       get("/"+long(300), ""),
		"a path of 6,000":     get("/"+long(6_000), ""),
		"a path of 14,000":    get("/"+long(14_000), ""),
		"a path of 15,000":    get("/"+long(15_000), ""),
		"a path of 15,300":    get("/"+long(15_300), ""),
		"a path of 16,300":    get("/"+long(16_300), ""),
		"a path of 60,000":    get("/"+long(60_000), ""),
		"a query of 14,000":   get("/?"+long(14_000), ""),
		"a header of 7,000":   get("/", "X-Long: "+long(7_000)+"\r\n"),
		"a header of 14,000":  get("/", "X-Long: "+long(14_000)+"\r\n"),
		"a header of 100,000": get("/", "X-Long: "+long(100_000)+"\r\n"),
		"a header of 900,000": get("/", "X-Long: "+long(900_000)+"\r\n"),
		"90 headers":          get("/", strings.Repeat("X-Many: 1\r\n", 90)),
		"1,000 headers":       get("/", strings.Repeat("X-Many: 1\r\n", 1_000)),
		"a long host":         "GET / HTTP/1.1\r\nHost: " + long(7_000) + "\r\n\r\n",
		"no host":             "GET / HTTP/1.0\r\n\r\n",
		"another method":      "BREW / HTTP/1.1\r\nHost: a\r\n\r\n",
		"the whole server":    "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
		"an absolute URI":     get("http://b/c", ""),
		"a raw path":          get("/\xff\xfe", ""),
		"an escaped line end": get("/%0d%0aX-User:%20mallory", ""),
		"a raw header":        get("/", "X-Api-Key: \xff\xfe\r\n"),
		"an upgrade":          get("/", "Connection: Upgrade\r\nUpgrade: websocket\r\n"),
		"an expectation":      "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n",
		"a body in chunks":    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"another origin":      "POST / HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\nSec-Fetch-Site: cross-site\r\nContent-Length: 0\r\n\r\n",
		"weir's own path":     get("/_weir", ""),
	} {
		status, err := s.raw(ip, request)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if got := s.app.take(); len(got) > 0 {
			return fmt.Errorf("%s: %d, and the application got %d requests", name, status, len(got))
		}
	}
	return nil
}

// raw sends a request as it is, and returns the status, 0 if the proxy just hung up.
func (s *setup) raw(ip, request string) (int, error) {
	conn, err := s.dial(ip)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(conn, request); err != nil {
		return 0, nil // it had enough
	}
	answers := bufio.NewReader(conn)
	for {
		resp, err := http.ReadResponse(answers, nil)
		if bad, ok := errors.AsType[net.Error](err); ok && bad.Timeout() {
			return 0, err
		}
		if err != nil {
			return 0, nil
		}
		if resp.StatusCode >= 200 {
			return resp.StatusCode, resp.Body.Close()
		}
	}
}

// weir hears the path, the host and the method that the client asked for, not those that
// the client says it asked for.
func (s *setup) tellsAttributes() error {
	as := s.config(
		"WEIR__POLICIES__API__LIMITS__0__RATE=100",
		"WEIR__POLICIES__API__LIMITS__1={name: path, rate: 3, per: 10s, by: path}",
		"WEIR__POLICIES__API__LIMITS__2={name: host, rate: 6, per: 10s, by: host}",
		"WEIR__POLICIES__API__LIMITS__3={name: method, rate: 9, per: 10s, by: method}",
	)
	if err := s.weir.Reload(context.Background(), as.Live()); err != nil {
		return err
	}
	defer s.weir.Reload(context.Background(), s.config().Live()) // it was in force before
	s.clock.advance(time.Minute)
	c := s.client(s.fresh())
	for i, tt := range []struct {
		method, path, host string
		times              int    // that it is admitted
		then               string // the limit that refuses it, "" if none is used up yet
	}{
		{"GET", "/a", "one.example", 3, "path"},
		{"GET", "/" + strings.Repeat("b", 1000), "one.example", 3, "path"},
		{"GET", "/c", "one.example", 0, "host"},
		{"GET", "/c", "two.example", 3, "path"},
		{"GET", "/d", "two.example", 0, "method"},
		{"PUT", "/d", "two.example", 2, ""},
	} {
		send := func() (*answer, error) {
			return c.send(tt.method, fmt.Sprint(tt.path, "?", rand.IntN(1e9)), nil, append(forged(), "Host", tt.host)...)
		}
		for range tt.times {
			a, err := send()
			if err == nil {
				err = a.is(200)
			}
			if err != nil {
				return fmt.Errorf("row %d: %w", i, err)
			}
		}
		if tt.then == "" {
			continue
		}
		a, err := send()
		if err != nil {
			return err
		}
		if by := a.header.Get("RateLimit"); a.status != 429 || !strings.HasPrefix(by, `"api.`+tt.then+`";r=0`) {
			return fmt.Errorf("row %d: %d, RateLimit %s, want a refusal by %s", i, a.status, by, tt.then)
		}
	}
	return nil
}
