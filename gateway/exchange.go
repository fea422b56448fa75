package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/jsonrpc"
	"github.com/weirlimit/weir/upstream"
)

// exchange is a request on its way through a route. It is the transport of a reverse proxy of its own.
type exchange struct {
	route    *Route
	settings *settings
	caller   *http.Request
	call     upstream.Call
	request  jsonrpc.Request
	answered bool  // an answer has begun
	room     int64 // taken for the body, see room

	// See filters.
	makesFilter bool     // the response has ids of filters in it
	notFound    []string // responses to calls that were not sent
}

// ServeHTTP serves a request whose path is what comes after the route's name.
func (r *Route) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	x := &exchange{route: r, settings: r.settings.Load(), caller: req, call: upstream.Call{Began: time.Now()}}
	defer x.recovered(w)
	if req.Method == http.MethodOptions && isRoot(req.URL.Path) {
		x.settings.origins.preflight(w, req)
		return
	}
	defer x.leaveRoom()
	x.settings.origins.allow(w.Header(), req)
	if p := x.accept(w); p != nil {
		p.write(w, x.request)
		return
	}
	proxy := httputil.ReverseProxy{
		Rewrite: x.rewrite, Transport: x, ErrorHandler: x.failed, BufferPool: &buffers,
		ErrorLog: x.settings.errorLog,
	}
	proxy.ServeHTTP(w, empty(req))
}

// empty returns a request with nothing in it but the context of another one.
func empty(r *http.Request) *http.Request {
	return (&http.Request{Method: http.MethodPost, URL: &url.URL{}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(r.Context())
}

func isRoot(path string) bool { return path == "" || path == "/" }

// rewrite makes the request for the endpoint. Nothing is taken from the caller's but what forwarded says: no path, no
// query, no host, no credentials, and nothing that belongs to a connection.
func (x *exchange) rewrite(p *httputil.ProxyRequest) {
	p.Out.Header = forwarded(x.caller.Header)
}

// RoundTrip sends the request to the pool. Its context is the caller's, not that of the proxy, which would pass on
// informational responses of an endpoint with all of their headers.
func (x *exchange) RoundTrip(out *http.Request) (*http.Response, error) {
	reply, err := x.route.pool.Send(out.WithContext(x.caller.Context()), &x.call)
	if err != nil {
		return nil, err
	}
	resp, err := x.response(reply)
	if err != nil {
		_ = reply.Body.Close()
		return nil, err
	}
	resp.Request, x.answered = out, true
	return resp, nil
}

// response returns the response for the caller. It has no trailers.
func (x *exchange) response(reply *upstream.Reply) (*http.Response, error) {
	switch {
	case !isPassed(reply.StatusCode): // a redirect shows the URL, or leads anywhere
		return nil, badAnswer(reply, fmt.Sprintf("status %d", reply.StatusCode))
	case reply.StatusCode >= 400 && !isShortJSON(reply):
		x.replaceError(reply)
	case reply.StatusCode < 300 && (x.makesFilter || x.notFound != nil):
		if err := x.completeFilters(reply); err != nil {
			return nil, err
		}
	}
	return &http.Response{
		Status: reply.Status, StatusCode: reply.StatusCode, Proto: reply.Proto, ProtoMajor: reply.ProtoMajor, ProtoMinor: reply.ProtoMinor,
		Header: x.settings.quotas.returnedHeader(reply), Body: reply.Body, ContentLength: reply.ContentLength,
	}, nil
}

// isPassed reports whether responses with a status are passed on: those of JSON-RPC over HTTP, and errors.
func isPassed(status int) bool {
	switch status {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return true
	}
	return status >= 400 && status <= 599
}

// badAnswer returns the error for an answer of an endpoint that callers cannot get.
func badAnswer(reply *upstream.Reply, what string) error {
	return &problemError{*answerProblem(reply, what)}
}

// failed answers with the error of a request that got no response.
func (x *exchange) failed(w http.ResponseWriter, _ *http.Request, err error) {
	if errors.Is(x.caller.Context().Err(), context.Canceled) {
		w.WriteHeader(statusCancelled)
		return
	}
	x.problemOf(err).write(w, x.request)
}

// recovered ends a request whose handling has panicked. What it panicked with may have a secret in it.
func (x *exchange) recovered(w http.ResponseWriter) {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler)
	}
	text := fmt.Sprintf("%T", v)
	if err, ok := v.(runtime.Error); ok {
		text = err.Error()
	}
	x.settings.logger.Error("gateway: a request has panicked", "route", x.route.Name(), "panic", text, "stack", string(debug.Stack()))
	if x.answered {
		panic(http.ErrAbortHandler)
	}
	p := problem{status: http.StatusInternalServerError, code: codeInternal, message: "the gateway has failed: its log says why"}
	p.write(w, x.request)
}

// accept reads the request, and returns a problem if it must not be sent.
func (x *exchange) accept(w http.ResponseWriter) *problem {
	if p := x.checkHead(w); p != nil {
		return p
	}
	if len(x.caller.TransferEncoding) > 0 { // net/http does not say if there was a Content-Length, too, about which a proxy in front may think otherwise
		w.Header().Set("Connection", "close")
	}
	body, p := x.readBody(w)
	if p != nil {
		return p
	}
	return x.acceptJSONRPC(body)
}

// checkHead returns what is wrong with a request before its body is read.
func (x *exchange) checkHead(w http.ResponseWriter) *problem {
	r := x.caller
	refused := func(status int, message string) *problem {
		return &problem{status: status, code: jsonrpc.CodeInvalidRequest, message: message}
	}
	switch {
	case r.Method == http.MethodConnect:
		w.Header().Set("Connection", "close")
		w.Header().Set("Allow", "OPTIONS, POST")
		return refused(http.StatusMethodNotAllowed, "the gateway is no tunnel: send requests with POST")
	case !isRoot(r.URL.Path):
		return refused(http.StatusNotFound, "there is nothing below the route: send requests to the route itself")
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", "OPTIONS, POST")
		return refused(http.StatusMethodNotAllowed, "send requests with POST")
	case len(r.Header["Content-Encoding"]) > 0:
		w.Header().Set("Accept-Encoding", "identity")
		return refused(http.StatusUnsupportedMediaType, "the body must not be compressed")
	case !isJSON(r.Header.Get("Content-Type")):
		return refused(http.StatusUnsupportedMediaType, "the header Content-Type must be application/json")
	case r.ContentLength > x.settings.maxBody:
		w.Header().Set("Connection", "close") // the rest is not read
		return x.tooLong()
	}
	return nil
}

func (x *exchange) tooLong() *problem {
	return &problem{
		status: http.StatusRequestEntityTooLarge, code: jsonrpc.CodeInvalidRequest,
		message: fmt.Sprintf("the body may have %d bytes", x.settings.maxBody),
	}
}

// buffers are used to copy responses.
var buffers bufferPool

type bufferPool struct{ pool sync.Pool }

const bufferSize = 32 << 10

// Get returns a buffer.
func (p *bufferPool) Get() []byte {
	if b, ok := p.pool.Get().(*[bufferSize]byte); ok {
		return b[:]
	}
	return make([]byte, bufferSize)
}

// Put takes a buffer back.
func (p *bufferPool) Put(b []byte) { p.pool.Put((*[bufferSize]byte)(b)) }

var _ httputil.BufferPool = (*bufferPool)(nil)

// maxRewritten is the length of the longest response that is rewritten.
const maxRewritten = 4 << 20

// setBody replaces the body of a response.
func setBody(reply *upstream.Reply, body []byte) {
	reply.Body, reply.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
}
