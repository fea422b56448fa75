package weirconnect

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/rpcdetail"
	"github.com/weirlimit/weir/internal/rpclimit"
	"github.com/weirlimit/weir/weirhttp"
)

// New returns an interceptor for handlers that lets a call pass if both stages of a guard.Guard admit
// it. The endpoint is the procedure, such as "/river.StreamService/CreateStream". Clients are not
// affected. New panics if an option is invalid.
func New(g *guard.Guard, options ...Option) connect.Interceptor {
	c := newConfig(options)
	if c.failed == nil {
		c.failed = isFailure
	}
	return &interceptor{config: c, engine: rpclimit.NewGuard(g, c.http)}
}

// Limit returns an interceptor for handlers that lets a call pass if it fits the limits of all rules:
//
//	weirconnect.Limit(table,
//		weirconnect.By(perKey, weirhttp.Header("X-Api-Key")),
//		weirconnect.By(perIP, weirhttp.ClientIP(proxies...)))
//
// It is weirhttp.Limit for calls. Clients are not affected. It panics if an option is invalid.
func Limit(l weir.Limiter, options ...Option) connect.Interceptor {
	c := newConfig(options)
	if c.authenticate != nil || c.verify != nil || c.failed != nil {
		panic("weirconnect: Limit: Authenticate, Verify and Failed are options of New")
	}
	c.failed = isFailure
	return &interceptor{config: c, engine: rpclimit.NewLimit(l, c.http)}
}

// Refuse returns a function for weirhttp.Refuse that replies to refused calls in the protocol of
// the caller, and to other requests with the problem. The options are those of the handlers.
func Refuse(options ...connect.HandlerOption) func(http.ResponseWriter, *http.Request, weirhttp.Denial) {
	writer := connect.NewErrorWriter(options...)
	return func(w http.ResponseWriter, r *http.Request, d weirhttp.Denial) {
		if !writer.IsSupported(r) {
			d.Problem.Write(w)
			return
		}
		err := newError(rpclimit.NewRefusal(&d), isGRPC(r.Header))
		_ = writer.Write(w, r, err) // an error means that the caller is gone
	}
}

// SubscriptionError returns the error for a caller whose subscription, or whose items in one, a
// guard.Guard has refused:
//
//	sub, d, err := g.Subscribe(ctx, subject, int64(len(streams)))
//	if err == nil && sub == nil {
//		return weirconnect.SubscriptionError(d)
//	}
//
// Its QuotaFailure names the limit, such as "subscriptions". It has a RetryInfo if the caller was too
// fast, and none if too much is in use, because then waiting does not help.
func SubscriptionError(d guard.SubscriptionDecision) *connect.Error {
	return newError(rpclimit.NewSubscriptionRefusal(d), false)
}

type interceptor struct {
	*config
	engine *rpclimit.Engine
}

var _ connect.Interceptor = (*interceptor)(nil)

func (i *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (res connect.AnyResponse, err error) {
		if req.Spec().IsClient {
			return next(ctx, req)
		}
		c := i.call(req.Spec(), req.Peer(), req.Header())
		c.Identify = i.identify(req.Header(), req)
		c.Handle = func(ctx context.Context) (err error) {
			res, err = next(ctx, req)
			return err
		}
		if info, ok := connect.CallInfoForHandlerContext(ctx); ok { // its header is sent with errors, too
			c.Response = info.ResponseHeader()
		}
		refusal, err := i.engine.Do(ctx, c)
		if refusal != nil {
			err = newError(refusal, isGRPC(req.Header()))
		}
		if err != nil {
			return nil, err
		}
		return res, nil
	}
}

// WrapStreamingClient does nothing: clients are not limited.
func (i *interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (i *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		c := i.call(conn.Spec(), conn.Peer(), conn.RequestHeader())
		c.Response = conn.ResponseHeader()
		c.Identify = i.identify(conn.RequestHeader(), nil)
		c.Handle = func(ctx context.Context) error { return next(ctx, conn) }
		if i.perMessage {
			c.Handle = func(ctx context.Context) error {
				m := &messages{StreamingHandlerConn: conn, engine: i.engine, call: c}
				return m.outcome(next(ctx, m))
			}
		}
		refusal, err := i.engine.Do(ctx, c)
		if refusal != nil {
			return newError(refusal, isGRPC(conn.RequestHeader()))
		}
		return err
	}
}

func (i *interceptor) call(spec connect.Spec, peer connect.Peer, header http.Header) *rpclimit.Call {
	return &rpclimit.Call{
		Procedure: spec.Procedure, RemoteAddr: peer.Addr, Header: header, Response: http.Header{},
		Failed: func(err error) bool { return i.failed(connect.CodeOf(err)) },
	}
}

// identify returns what is called between the stages. The request is nil for streams.
func (i *interceptor) identify(header http.Header, req connect.AnyRequest) func(context.Context) (context.Context, error) {
	if i.authenticate == nil && (i.verify == nil || req == nil) {
		return nil
	}
	return func(ctx context.Context) (context.Context, error) {
		if i.authenticate != nil {
			var err error
			if ctx, err = i.authenticate(ctx, header); err != nil {
				return nil, err
			}
		}
		if i.verify == nil || req == nil {
			return ctx, nil
		}
		if s, ok := i.verify(ctx, req.Any()); ok {
			ctx = guard.WithSubject(ctx, s)
		}
		return ctx, nil
	}
}

// messages is a stream that charges what it receives, but for the first message.
type messages struct {
	connect.StreamingHandlerConn
	engine  *rpclimit.Engine
	call    *rpclimit.Call
	began   bool                          // a message was received
	refused atomic.Pointer[connect.Error] // set once a message was refused
}

func (m *messages) Receive(message any) error {
	if err := m.refused.Load(); err != nil {
		return err
	}
	if err := m.StreamingHandlerConn.Receive(message); err != nil {
		return err
	}
	if !m.began {
		m.began = true
		return nil
	}
	refusal := m.engine.Message(m.call)
	if refusal == nil {
		return nil
	}
	err := newError(refusal, isGRPC(m.RequestHeader()))
	if refusal.RetrySeconds != "" { // the header may have been sent
		err.Meta().Set("Retry-After", refusal.RetrySeconds)
	}
	m.refused.Store(err)
	return err
}

// outcome returns the error of a stream: that of a refused message whatever the handler made of it.
func (m *messages) outcome(err error) error {
	if refused := m.refused.Load(); refused != nil {
		return refused
	}
	return err
}

// newError returns a refusal as an error of connect.
func newError(r *rpclimit.Refusal, grpc bool) *connect.Error {
	err := connect.NewError(connect.Code(r.Code), errors.New(r.Message))
	for _, packed := range r.Details {
		if detail, bad := connect.NewErrorDetail(packed); bad == nil { // it fails only for messages that are not packed
			err.AddDetail(detail)
		}
	}
	if grpc && r.Pushback != "" {
		err.Meta().Set(rpcdetail.Pushback, r.Pushback)
	}
	return err
}

// isGRPC says whether a call is in the protocol gRPC or gRPC-Web.
func isGRPC(h http.Header) bool { return strings.HasPrefix(h.Get("Content-Type"), "application/grpc") }
