package connectapi

import (
	"net/http"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/gen/weir/v1/weirv1connect"
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
		connect.WithCodec(jsonCodec{"json; charset=utf-8"}), // for connect this is another codec
		connect.WithRecover(s.recovered),
		connect.WithInterceptors(connect.UnaryInterceptorFunc(convertErrors)),
	}
}

// NewService returns the methods for another transport, which authenticates callers and adds them
// to the context of each call with call.WithCaller. Errors are of type *call.Error.
func NewService(core *call.Core) weirv1.LimiterServiceServer { return &service{core: core} }

// service implements the methods.
type service struct {
	weirv1.UnsafeLimiterServiceServer // nil: the compiler reports missing methods

	core *call.Core // set once
}

var (
	_ weirv1connect.LimiterServiceHandler = (*service)(nil)
	_ weirv1.LimiterServiceServer         = (*service)(nil)
)

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
		_ = h.errors.Write(w, r, refused(w.Header(), r.Header.Get("Content-Type"), err)) // an error means that the caller is gone
		return
	}
	r = r.WithContext(call.WithCaller(r.Context(), caller))
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	h.inner.ServeHTTP(w, r)
}
