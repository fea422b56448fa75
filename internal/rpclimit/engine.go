// Package rpclimit is what weirconnect and weirgrpc share: it decides calls by the middleware of
// weirhttp, so that there is one implementation of the stages, of the header fields, and of keys.
//
// A call becomes an http.Request without a body, with the procedure as its path and with the metadata
// as its header. It passes through the middleware to a handler that calls the procedure.
package rpclimit

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/url"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/weirhttp"
)

// Engine decides calls. Its fields are set once.
type Engine struct {
	handler http.Handler
	message func(*http.Request) (weirhttp.Denial, bool)
}

// Call is a call of a procedure.
type Call struct {
	Procedure  string               // such as "/river.StreamService/CreateStream"
	RemoteAddr string               // the peer's address and port
	Header     http.Header          // the metadata, with canonical names
	TLS        *tls.ConnectionState // nil if there is none

	// Response receives the header fields, before Handle is called. It must not be nil.
	Response http.Header

	// Identify, if not nil, authenticates the call. It is called between the two stages of a
	// Guard. Its error ends the call.
	Identify func(context.Context) (context.Context, error)

	// Handle calls the procedure.
	Handle func(context.Context) error

	// Failed says whether an error of Handle is a failure, for endpoints that count those.
	Failed func(error) bool

	request *http.Request // as Handle has it
	denial  *weirhttp.Denial
	err     error // of Identify or Handle
}

// NewGuard returns an engine for a Guard.
func NewGuard(g *guard.Guard, options []weirhttp.Option) *Engine {
	before, after := weirhttp.Stages(g, append(options[:len(options):len(options)], weirhttp.Refuse(deny))...)
	return &Engine{handler: before(identify(g, after(http.HandlerFunc(handle)))), message: weirhttp.Messages(g, options...)}
}

// NewLimit returns an engine for a Limiter.
func NewLimit(l weir.Limiter, options []weirhttp.Option) *Engine {
	limit := weirhttp.Limit(l, append(options[:len(options):len(options)], weirhttp.Refuse(deny))...)
	again := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	message := func(r *http.Request) (weirhttp.Denial, bool) {
		c := &Call{Response: http.Header{}}
		again.ServeHTTP(&writer{c}, r)
		if c.denial != nil {
			return *c.denial, false
		}
		return weirhttp.Denial{}, true
	}
	return &Engine{handler: limit(http.HandlerFunc(handle)), message: message}
}

// Do calls the procedure if that is allowed. Otherwise it returns why not.
func (e *Engine) Do(ctx context.Context, c *Call) (*Refusal, error) {
	r := &http.Request{URL: &url.URL{Path: c.Procedure}, Header: c.Header, RemoteAddr: c.RemoteAddr, TLS: c.TLS}
	if host := c.Header["Host"]; len(host) > 0 {
		r.Host = host[0]
	}
	e.handler.ServeHTTP(&writer{c}, r.WithContext(ctx))
	if c.denial != nil {
		return NewRefusal(c.denial), nil
	}
	return nil, c.err
}

// Message charges a message of a stream. It is called while Handle is.
func (e *Engine) Message(c *Call) *Refusal {
	if d, ok := e.message(c.request); !ok {
		return NewRefusal(&d)
	}
	return nil
}

// identify finds the subject once, for the stage after authentication, for messages and for handlers.
func identify(g *guard.Guard, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ctx := callOf(w), r.Context()
		if c.Identify != nil {
			if ctx, c.err = c.Identify(ctx); c.err != nil {
				return
			}
		}
		s := g.Identifier().Verified(ctx, &guard.Credentials{RemoteAddr: r.RemoteAddr, Header: r.Header, TLS: r.TLS})
		if known, _ := guard.SubjectOf(ctx); s.Verified && known != s {
			ctx = guard.WithSubject(ctx, s)
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// handle is the innermost handler.
func handle(w http.ResponseWriter, r *http.Request) {
	c := callOf(w)
	c.request = r
	c.err = c.Handle(r.Context())
	switch {
	case c.err == nil:
		w.WriteHeader(http.StatusOK)
	case c.Failed(c.err):
		w.WriteHeader(http.StatusUnauthorized)
	case r.Context().Err() == nil:
		w.WriteHeader(http.StatusInternalServerError)
	} // and no status if the caller has left
}

func deny(w http.ResponseWriter, _ *http.Request, d weirhttp.Denial) { callOf(w).denial = &d }

// writer is the http.ResponseWriter of a call. Nothing is written: errors and messages are returned.
type writer struct{ call *Call }

func (w *writer) Header() http.Header         { return w.call.Response }
func (w *writer) Write(b []byte) (int, error) { return len(b), nil }
func (w *writer) WriteHeader(int)             {}

// callOf returns the call of a writer, which middleware may have wrapped.
func callOf(w http.ResponseWriter) *Call {
	for {
		switch x := w.(type) {
		case *writer:
			return x.call
		case interface{ Unwrap() http.ResponseWriter }:
			w = x.Unwrap()
		default:
			panic("rpclimit: a writer of another kind")
		}
	}
}
