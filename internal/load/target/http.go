package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
)

// httpDriver calls over HTTP, JSON-RPC included.
type httpDriver struct {
	plan   *plan // set by newHTTP, like dialer and transports
	dialer *dialer

	// transports: with HTTP/1 one, which has a connection for each caller. With HTTP/2
	// a transport puts everything on one connection while it can, so there are a few.
	transports []*http.Transport

	next atomic.Uint64 // counts senders, to spread them
}

func newHTTP(p *plan, d *dialer) *httpDriver {
	h := &httpDriver{plan: p, dialer: d}
	if p.Protocol != HTTP2 {
		t := newTransport(p, d)
		t.MaxConnsPerHost = p.Connections
		t.MaxIdleConnsPerHost = p.Connections
		h.transports = append(h.transports, t)
		return h
	}
	for range min(p.Connections, maxShared) {
		h.transports = append(h.transports, newTransport(p, d))
	}
	return h
}

// newTransport returns a transport that speaks one version of HTTP.
func newTransport(p *plan, d *dialer) *http.Transport {
	var versions http.Protocols
	versions.SetHTTP1(p.Protocol != HTTP2)
	versions.SetHTTP2(p.Protocol == HTTP2)
	versions.SetUnencryptedHTTP2(p.Protocol == HTTP2)
	return &http.Transport{
		Proxy:                  nil,
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return d.dial(ctx) },
		TLSClientConfig:        p.tlsConfig(),
		TLSHandshakeTimeout:    p.Timeout,
		Protocols:              &versions,
		DisableCompression:     true, // count what was sent
		MaxResponseHeaderBytes: 1 << 20,
	}
}

func (h *httpDriver) open(ctx context.Context) error { return h.dialer.probe(ctx) }

func (h *httpDriver) close() error {
	for _, t := range h.transports {
		t.CloseIdleConnections()
	}
	return nil
}

func (h *httpDriver) sender(v *vars) sender {
	i := (h.next.Add(1) - 1) % uint64(len(h.transports))
	s := &httpSender{plan: h.plan, transport: h.transports[i], vars: v}
	s.prepare()
	if h.plan.Protocol == JSONRPC {
		return &rpcSender{http: s}
	}
	return s
}

// httpSender sends HTTP requests. They share nothing that changes: a transport may
// read a request a little longer than its caller waits.
type httpSender struct {
	plan      *plan
	transport *http.Transport
	vars      *vars

	// What is the same in each request, or nil.
	url    *url.URL
	header http.Header
}

// prepare makes what has no variables, once.
func (s *httpSender) prepare() {
	if _, fixed := s.plan.tail.fixed(); fixed {
		s.url, _ = s.plan.parseURL(s.vars) // compile has tried
	}
	for _, h := range s.plan.headers {
		if _, fixed := h.value.fixed(); !fixed {
			return
		}
	}
	s.header = s.newHeader()
}

func (s *httpSender) newHeader() http.Header {
	header := http.Header{"User-Agent": {"weir-load"}}
	if s.plan.Protocol == JSONRPC {
		header.Set("Content-Type", "application/json")
	}
	own := http.Header{}
	for _, h := range s.plan.headers {
		own.Add(h.name, h.value.text(s.vars))
	}
	for name, values := range own {
		header[name] = values
	}
	return header
}

func (s *httpSender) send(ctx context.Context) Result {
	resp, err := s.roundTrip(ctx)
	if err != nil {
		return failed(err)
	}
	defer resp.Body.Close()
	n, err := drain(resp.Body, maxAnswer)
	if err != nil {
		return failed(err)
	}
	return Result{OK: isFine(resp.StatusCode), Code: strconv.Itoa(resp.StatusCode), Bytes: n}
}

// isFine says whether a status is 2xx or 3xx. Redirects are not followed, but they
// are what was requested.
func isFine(status int) bool { return status >= 200 && status < 400 }

// roundTrip does without http.Client, so nothing is followed, kept or retried that
// the transport would not.
func (s *httpSender) roundTrip(ctx context.Context) (*http.Response, error) {
	req, err := s.request(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBadRequest, err)
	}
	resp, err := s.transport.RoundTrip(req)
	if err == nil && resp.ContentLength > maxAnswer {
		return nil, errors.Join(errTooLarge, resp.Body.Close())
	}
	return resp, err
}

func (s *httpSender) request(ctx context.Context) (*http.Request, error) {
	method := s.plan.Method
	if s.plan.Protocol == JSONRPC {
		method = http.MethodPost
	}
	req := (&http.Request{Method: method, URL: s.url, Header: s.header}).WithContext(ctx)
	if req.URL == nil {
		var err error
		if req.URL, err = s.plan.parseURL(s.vars); err != nil {
			return nil, err
		}
	}
	if req.Header == nil {
		req.Header = s.newHeader()
	}
	req.Host = req.Header.Get("Host") // empty means the URL's
	s.setBody(req)
	return req, nil
}

func (s *httpSender) setBody(req *http.Request) {
	text := s.plan.body.text(s.vars)
	if text == "" {
		return
	}
	newBody := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
	req.ContentLength = int64(len(text))
	req.Body, _ = newBody()
	req.GetBody = newBody
}

// drain reads a body to its end, so that the connection can be used again, but not
// more than most bytes.
func drain(body io.Reader, most int64) (int, error) {
	n, err := io.Copy(io.Discard, io.LimitReader(body, most+1))
	if err == nil && n > most {
		err = errTooLarge
	}
	return int(n), err
}
