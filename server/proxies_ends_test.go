//go:build linux

package server_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// clock is weir's. It stands still unless it is moved, so tests need not wait for limits.
type clock struct {
	begin time.Time
	past  atomic.Int64
}

func newClock() *clock { return &clock{begin: time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC)} }

func (c *clock) now() weir.Instant {
	return weir.Instant(c.begin.Add(time.Duration(c.past.Load())).UnixNano())
}

func (c *clock) advance(d time.Duration) { c.past.Add(int64(d)) }

// application is what the proxy protects.
type application struct {
	mu   sync.Mutex // guards the field below
	seen []seen
}

// seen is a request that reached the application.
type seen struct {
	method, uri, host string
	header            http.Header
	body              [sha256.Size]byte
}

func newApplication() *application { return &application{} }

// take returns the requests since the last call.
func (a *application) take() []seen {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() { a.seen = nil }()
	return a.seen
}

// ServeHTTP answers 200 with the URI as the body or, for /status/403, with that status and
// with headers such as a limit of the application's own would have. At /hangup it does not
// answer.
func (a *application) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	hash := sha256.New()
	if _, err := io.Copy(hash, r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	got := seen{r.Method, r.RequestURI, r.Host, r.Header.Clone(), [sha256.Size]byte(hash.Sum(nil))}
	a.mu.Lock()
	a.seen = append(a.seen, got)
	a.mu.Unlock()
	if r.URL.Path == "/hangup" {
		panic(http.ErrAbortHandler)
	}
	var status int
	if _, err := fmt.Sscanf(r.URL.Path, "/status/%d", &status); err != nil {
		status = http.StatusOK
	} else {
		w.Header().Set("Retry-After", "17")
		w.Header().Set("Content-Type", "text/x-own")
	}
	w.WriteHeader(status)
	io.WriteString(w, r.RequestURI)
}

// answer is what a client gets.
type answer struct {
	status int
	header http.Header
	body   string
	took   time.Duration
}

// client sends requests to the proxy.
type client struct {
	*http.Client
	url string
}

// client returns one with an address of its own.
func (s *setup) client(address string) *client {
	dial := func(context.Context, string, string) (net.Conn, error) { return s.dial(address) }
	transport := &http.Transport{DialContext: dial, DisableCompression: true}
	s.t.Cleanup(transport.CloseIdleConnections)
	c := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	return &client{c, "http://" + s.address("8000")}
}

// dial connects an address to the proxy.
func (s *setup) dial(address string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: 5 * time.Second}
	return d.Dial("tcp", s.address("8000"))
}

// fresh returns an address that nobody had yet, so that what a proxy still has to do for
// another client is not counted. All of 127.0.0.0/8 is this machine.
func (s *setup) fresh() string {
	s.addresses++
	return fmt.Sprintf("127.1.%d.%d", s.addresses/250, s.addresses%250+1)
}

// get sends a GET with headers, which are names and values in turn.
func (c *client) get(path string, headers ...string) (*answer, error) {
	return c.send(http.MethodGet, path, nil, headers...)
}

func (c *client) send(method, path string, body io.Reader, headers ...string) (*answer, error) {
	r, err := http.NewRequest(method, c.url+path, body)
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	began := time.Now()
	resp, err := c.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	return &answer{resp.StatusCode, resp.Header, string(text), time.Since(began)}, nil
}

// is returns why the answer has another status.
func (a *answer) is(status int) error {
	if a.status != status {
		return fmt.Errorf("%d %v %q, want %d", a.status, a.header, a.body, status)
	}
	return nil
}

// has returns why the answer lacks one of the headers, which are names and values in turn.
// Each must be there once; "" is for none.
func (a *answer) has(headers ...string) error {
	var problems []error
	for i := 0; i+1 < len(headers); i += 2 {
		got := a.header.Values(headers[i])
		if want := headers[i+1]; want == "" && got != nil || want != "" && (len(got) != 1 || got[0] != want) {
			problems = append(problems, fmt.Errorf("%s = %q, want %q", headers[i], got, want))
		}
	}
	return errors.Join(problems...)
}
