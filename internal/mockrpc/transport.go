package mockrpc

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
)

// RoundTrip answers a request without a network, whatever host it is for. A connection that a Fault resets is
// an error as that of a real one.
func (p *Provider) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer func() { _ = r.Body.Close() }() // which a RoundTripper has to do
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	own := r.Clone(r.Context())
	if own.Body == nil {
		own.Body = http.NoBody
	}
	w := &recorder{header: make(http.Header), status: http.StatusOK}
	err := w.serve(p, own)
	if err := cmp.Or(r.Context().Err(), err); err != nil {
		return nil, err
	}
	return w.response(r), nil
}

// recorder is a http.ResponseWriter that keeps the response.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header         { return w.header }
func (w *recorder) WriteHeader(status int)      { w.status = status }
func (w *recorder) Write(b []byte) (int, error) { return w.body.Write(b) }

// serve runs a handler, and returns an error if it aborts the connection.
func (w *recorder) serve(h http.Handler, r *http.Request) (err error) {
	defer func() {
		switch v := recover(); {
		case v == nil:
		case isAbort(v):
			err = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
		default:
			panic(v)
		}
	}()
	h.ServeHTTP(w, r)
	return nil
}

func isAbort(recovered any) bool {
	err, ok := recovered.(error)
	return ok && errors.Is(err, http.ErrAbortHandler)
}

func (w *recorder) response(r *http.Request) *http.Response {
	return &http.Response{
		Status: fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: r,
	}
}

var (
	_ http.Handler      = (*Provider)(nil)
	_ http.RoundTripper = (*Provider)(nil)
)
