package weirgrpc

import (
	"context"
	"net/http"
	"strings"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/rpcdetail"
	"github.com/weirlimit/weir/internal/rpclimit"
)

// UnaryServer returns an interceptor that lets a unary call pass if both stages of a guard.Guard admit
// it. The endpoint is the full method, such as "/river.StreamService/CreateStream". UnaryServer
// panics if an option is invalid.
func UnaryServer(g *guard.Guard, options ...Option) grpc.UnaryServerInterceptor {
	return newGuarded(g, options).unary
}

// StreamServer is UnaryServer for streams.
func StreamServer(g *guard.Guard, options ...Option) grpc.StreamServerInterceptor {
	return newGuarded(g, options).stream
}

// LimitUnaryServer returns an interceptor that lets a unary call pass if it fits the limits of all
// rules:
//
//	weirgrpc.LimitUnaryServer(table,
//		weirgrpc.By(perKey, weirhttp.Header("X-Api-Key")),
//		weirgrpc.By(perIP, weirhttp.ClientIP(proxies...)))
//
// It is weirhttp.Limit for calls. It panics if an option is invalid.
func LimitUnaryServer(l weir.Limiter, options ...Option) grpc.UnaryServerInterceptor {
	return newLimited("LimitUnaryServer", l, options).unary
}

// LimitStreamServer is LimitUnaryServer for streams.
func LimitStreamServer(l weir.Limiter, options ...Option) grpc.StreamServerInterceptor {
	return newLimited("LimitStreamServer", l, options).stream
}

// interceptor is what an interceptor has made of its options. Its fields are set once.
type interceptor struct {
	*config
	engine *rpclimit.Engine
}

func newGuarded(g *guard.Guard, options []Option) *interceptor {
	c := newConfig(options)
	if c.failed == nil {
		c.failed = isFailure
	}
	return &interceptor{config: c, engine: rpclimit.NewGuard(g, c.http)}
}

func newLimited(name string, l weir.Limiter, options []Option) *interceptor {
	c := newConfig(options)
	c.checkLimit(name)
	c.failed = isFailure
	return &interceptor{config: c, engine: rpclimit.NewLimit(l, c.http)}
}

// unary is a grpc.UnaryServerInterceptor. Errors of SetHeader and SetTrailer are ignored: they mean
// that the handler has sent the header, or that the caller is gone.
func (i *interceptor) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	c := i.call(ctx, info.FullMethod)
	c.Identify = i.identify(req)
	var res any
	c.Handle = func(ctx context.Context) (err error) {
		res, err = next(ctx, req)
		return err
	}
	refusal, err := i.engine.Do(ctx, c)
	if refusal != nil {
		_ = grpc.SetTrailer(ctx, trailer(refusal, c.Response))
		return nil, errorOf(refusal)
	}
	if err != nil {
		_ = grpc.SetTrailer(ctx, fields(c.Response))
		return res, err
	}
	_ = grpc.SetHeader(ctx, fields(c.Response))
	return res, nil
}

// stream is a grpc.StreamServerInterceptor.
func (i *interceptor) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx := ss.Context()
	c := i.call(ctx, info.FullMethod)
	c.Identify = i.identify(nil)
	c.Handle = func(ctx context.Context) error {
		s := &stream{ServerStream: ss, ctx: ctx, engine: i.engine, call: c, perMessage: i.perMessage}
		return s.end(next(srv, s))
	}
	refusal, err := i.engine.Do(ctx, c)
	if refusal != nil {
		ss.SetTrailer(trailer(refusal, c.Response))
		return errorOf(refusal)
	}
	return err
}

// call returns what is known of a call.
func (i *interceptor) call(ctx context.Context, method string) *rpclimit.Call {
	c := &rpclimit.Call{
		Procedure: method, Header: headerOf(ctx), Response: http.Header{},
		Failed: func(err error) bool { return i.failed(status.Code(err)) },
	}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		c.RemoteAddr = p.Addr.String()
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			c.TLS = &info.State
		}
	}
	return c
}

// headerOf returns the metadata with the names of http.Header.
func headerOf(ctx context.Context) http.Header {
	md, _ := metadata.FromIncomingContext(ctx) // a copy
	h := make(http.Header, len(md))
	for name, values := range md {
		if name == ":authority" {
			name = "Host"
		}
		h[http.CanonicalHeaderKey(name)] = values
	}
	return h
}

// identify returns what is called between the stages. The message is nil for streams.
func (i *interceptor) identify(message any) func(context.Context) (context.Context, error) {
	if i.authenticate == nil && (i.verify == nil || message == nil) {
		return nil
	}
	return func(ctx context.Context) (context.Context, error) {
		if i.authenticate != nil {
			var err error
			if ctx, err = i.authenticate(ctx); err != nil {
				return nil, err
			}
		}
		if i.verify == nil || message == nil {
			return ctx, nil
		}
		if s, ok := i.verify(ctx, message); ok {
			ctx = guard.WithSubject(ctx, s)
		}
		return ctx, nil
	}
}

// fields returns the rate-limit fields of a header as metadata.
func fields(h http.Header) metadata.MD {
	md := metadata.MD{}
	for name, values := range h {
		if strings.HasPrefix(name, "Ratelimit") || strings.HasPrefix(name, "X-Ratelimit-") || name == "Retry-After" {
			md[strings.ToLower(name)] = values
		}
	}
	return md
}

// trailer returns the trailer of a refusal.
func trailer(r *rpclimit.Refusal, h http.Header) metadata.MD {
	md := fields(h)
	if r.Pushback != "" {
		md.Set(rpcdetail.Pushback, r.Pushback)
	}
	if r.RetrySeconds != "" {
		md.Set("retry-after", r.RetrySeconds)
	}
	return md
}

// SubscriptionError returns the error for a caller whose subscription, or whose items in one, Guard.Subscribe
// or Subscription.Add has refused. Its QuotaFailure names the limit, such as "subscriptions". It has a
// RetryInfo if the caller was too fast, and none if too much is in use, because then waiting does not help.
func SubscriptionError(d guard.SubscriptionDecision) error {
	return errorOf(rpclimit.NewSubscriptionRefusal(d))
}

func errorOf(r *rpclimit.Refusal) error {
	return status.ErrorProto(&spb.Status{Code: int32(r.Code), Message: r.Message, Details: r.Details}) //nolint:gosec // at most 16
}
