package connectapi

import (
	"context"
	"errors"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc/codes"

	"github.com/weirlimit/weir/gen/weir/v1/weirv1connect"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/internal/tracing"
	"github.com/weirlimit/weir/server/internal/call"
)

const (
	maxMessage = 64 << 10

	// maxBody is the size of a message and its five bytes of gRPC framing. Without it, connect
	// would read a message that is too long to its end.
	maxBody = maxMessage + 5
)

// New returns the handler of weir.v1.LimiterService, and the path prefix under which it must be
// served. State returns the current state; it is called once per request.
func New(core *call.Core, state func() *call.State) (path string, handler http.Handler) {
	s := &service{core: core}
	options := handlerOptions(s)
	path, inner := weirv1connect.NewLimiterServiceHandler(s, options...)
	return path, &authHandler{core: core, state: state, inner: inner, errors: connect.NewErrorWriter(options...)}
}

// handlerOptions returns those of all services.
func handlerOptions(s *service) []connect.HandlerOption {
	return []connect.HandlerOption{
		connect.WithReadMaxBytes(maxMessage),
		connect.WithCompression("gzip", nil, nil), // disables connect's default compression
		connect.WithCodec(jsonCodec{"json"}),
		connect.WithCodec(jsonCodec{"json; charset=utf-8"}),             // for connect this is another codec
		connect.WithInterceptors(connect.UnaryInterceptorFunc(s.ended)), // outside of the next, which converts panics
		connect.WithRecover(s.recovered),
		connect.WithInterceptors(connect.UnaryInterceptorFunc(convertErrors)),
	}
}

// authHandler authenticates callers. It wraps connect's handler, because connect's interceptors
// have no access to the TLS certificate.
type authHandler struct {
	core   *call.Core
	state  func() *call.State
	inner  http.Handler
	errors *connect.ErrorWriter
}

func (h *authHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	caller, err := h.core.HTTP(h.state(), r)
	if err != nil {
		setStatus(h.core.Tracer.SpanOf(r.Context()), r.Header.Get("Content-Type"), err.Code())
		_ = h.errors.Write(w, r, refused(w.Header(), r.Header.Get("Content-Type"), err)) // an error means that the caller is gone
		return
	}
	r = r.WithContext(call.WithCaller(r.Context(), caller))
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	h.inner.ServeHTTP(w, r)
}

// ended is an interceptor that sets in spans how methods ended. What fails before a method, for example
// because the message is malformed, has the HTTP status alone.
func (s *service) ended(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		response, err := next(ctx, req)
		code := codes.OK
		if err != nil {
			code = codes.Code(connect.CodeOf(err))
		}
		setStatus(s.core.Tracer.SpanOf(ctx), req.Header().Get("Content-Type"), code)
		return response, err
	}
}

// setStatus sets the code of a call, of which kind is the request's content type. Connect has none for
// success.
func setStatus(span tracing.Span, kind string, code codes.Code) {
	switch {
	case isGRPC(kind):
		span.RPCStatus(code)
	case code != codes.OK:
		span.ConnectStatus(code)
	}
}

// isGRPC reports whether a content type is that of gRPC or gRPC-Web.
func isGRPC(kind string) bool { return strings.HasPrefix(kind, "application/grpc") }

// convertErrors is an interceptor that converts the errors of methods to those of connect.
func convertErrors(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		response, err := next(ctx, req)
		if bad, ok := errors.AsType[*call.Error](err); ok {
			return response, convert(bad)
		}
		return response, err
	}
}

func convert(err *call.Error) *connect.Error {
	return connect.NewError(connect.Code(err.Code()), errors.New(err.Text()))
}

// refused returns the error of a failed authentication. Kind is the request's content type.
// WWW-Authenticate is set directly as a header field, because the metadata of gRPC's errors are
// sent as trailers.
func refused(h http.Header, kind string, err *call.Error) *connect.Error {
	out := convert(err)
	switch err.Kind {
	case call.Unauthenticated:
		h.Set("WWW-Authenticate", `Bearer realm="weir"`)
	case call.Throttled:
		addRetry(out, kind, err.Refusal)
	}
	return out
}

// addRetry adds the time to wait, in all ways that clients support. The trailer is only for gRPC.
func addRetry(err *connect.Error, kind string, r *identity.Refusal) {
	err.Meta().Set("Retry-After", strconv.FormatInt(1+int64(r.RetryAfter/time.Second), 10))
	if isGRPC(kind) {
		err.Meta().Set(identity.Pushback, r.PushbackMillis())
	}
	for _, packed := range r.Details() {
		if detail, bad := connect.NewErrorDetail(packed); bad == nil { // it fails only for messages that are not packed
			err.AddDetail(detail)
		}
	}
}

// recovered logs a method's panic and returns the error for the caller, which has no details.
func (s *service) recovered(_ context.Context, spec connect.Spec, _ http.Header, panicked any) error {
	s.core.Log.Error("panic", "procedure", spec.Procedure, "panic", panicked, "stack", string(debug.Stack()))
	return connect.NewError(connect.CodeInternal, errors.New("the daemon made a mistake; its log says which"))
}
