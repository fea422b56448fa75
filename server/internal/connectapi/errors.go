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

	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/server/internal/call"
)

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
	if strings.HasPrefix(kind, "application/grpc") { // and gRPC-Web
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
