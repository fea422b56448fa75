package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/gen/weir/v1/weirv1connect"
	"github.com/weirlimit/weir/internal/compiled"
)

// Config configures a Client. The zero value is for the daemon on this machine.
type Config struct {
	// Address is where the daemon's HTTP listener is: "host:port", a URL such as
	// "https://limits.example.com", or "unix:/run/weir.sock". The default is
	// DefaultAddress.
	Address string

	// Token returns the client's token, for a daemon with configured clients. It is called for
	// every request, so the token may change. The default is nil: no token.
	Token func() string

	// TLS is for addresses that begin with https://. The default is nil: the machine's
	// certificate authorities, and no certificate of our own.
	TLS *tls.Config

	// Timeout is how long a request to the daemon may take, connecting included.
	// A caller's context may end it earlier. The default is 1 s.
	Timeout time.Duration

	// Conns is the maximum number of concurrent requests for calls of Take, each with a
	// connection of its own. With fewer, more calls share a request. It does not bound the
	// requests of Do, Check and reservations, which are not batched, since a call that waits
	// for capacity must not delay others. Up to Conns + 100 idle connections are kept for half
	// a minute. The default is 4.
	Conns int

	// MaxWaiting bounds the calls that wait for a request; beyond it they return
	// weir.ErrBusy at once. The default is 10,000.
	MaxWaiting int
}

// DefaultAddress is the default address of a daemon.
const DefaultAddress = "127.0.0.1:8080"

// MaxHolds is the maximum number of open reservations of a Client. Further ones are refused, with
// Reason weir.QueueFull.
const MaxHolds = 100_000

// Errors of a Client, besides those of package weir.
var (
	// ErrOperator is returned for operations that only operators may do.
	ErrOperator = compiled.Invalid("resetting keys and changing limits is for operators: use /admin/v1 or the daemon's configuration")

	// errBusy: too many calls wait for the daemon.
	errBusy = fmt.Errorf("client: %w: too many calls wait for the daemon", weir.ErrBusy)

	// errClosed: the Client was closed.
	errClosed = fmt.Errorf("client: %w: closed", weir.ErrUnavailable)
)

// Client is a client of a daemon. Its methods may be called by any number of goroutines.
type Client struct {
	address string // as given, for errors; set once, like everything up to own
	timeout time.Duration
	service weirv1connect.LimiterServiceClient
	own     *http.Transport

	combiner combiner
	holds    holds

	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu     sync.Mutex // guards closed
	closed bool
	calls  sync.WaitGroup // requests in flight; grows only while not closed
}

var _ weir.Limiter = (*Client)(nil)

// New returns a Client. It does not connect yet, so the daemon may be started later.
func New(c Config) (*Client, error) {
	if c.Address == "" {
		c.Address = DefaultAddress
	}
	if c.Timeout == 0 {
		c.Timeout = time.Second
	}
	if c.Conns == 0 {
		c.Conns = 4
	}
	if c.MaxWaiting == 0 {
		c.MaxWaiting = 10_000
	}
	if c.Timeout < 0 || c.Conns < 0 || c.MaxWaiting < 0 {
		return nil, fmt.Errorf("client: Timeout %v, Conns %d, MaxWaiting %d: none may be negative", c.Timeout, c.Conns, c.MaxWaiting)
	}
	transport, base, err := dialing(c)
	if err != nil {
		return nil, err
	}
	t := &Client{address: c.Address, timeout: c.Timeout, own: transport}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.service = weirv1connect.NewLimiterServiceClient(&http.Client{Transport: retryTransport{transport}, CheckRedirect: noRedirect}, base,
		connect.WithReadMaxBytes(maxReply), connect.WithInterceptors(bearer(c.Token)))
	t.combiner = combiner{client: t, most: c.Conns, maxWaiting: c.MaxWaiting}
	t.holds.open = map[[16]byte]hold{}
	return t, nil
}

// maxReply is the longest answer that is read: that to a thousand checks has less than a
// tenth of it.
const maxReply = 1 << 20

// noRedirect disables redirects, which would send the token to another server.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// bearer adds the token to every call.
func bearer(token func() string) connect.UnaryInterceptorFunc {
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		if token == nil {
			return next
		}
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			if text := token(); text != "" {
				req.Header().Set("Authorization", "Bearer "+text)
			}
			return next(ctx, req)
		}
	}
}

// Idle connections. The one that was used last is reused first, so those that a burst has left
// are closed after keepTime.
const (
	// keepSingles is the maximum number of idle connections in addition to Conns: enough for a
	// busy program, and few of the 4096 that a daemon accepts.
	keepSingles = 100

	// keepTime is half of the daemon's idle timeout (server's idleTimeout), so that the client
	// closes idle connections first: if the daemon closed one while a call is sent on it, it
	// would be unknown whether the call was charged.
	keepTime = 30 * time.Second
)

// dialing returns the transport for the address, and the prefix of its URLs.
func dialing(c Config) (*http.Transport, string, error) {
	dialer := &net.Dialer{Timeout: c.Timeout}
	transport := &http.Transport{
		DialContext: dialer.DialContext, DialTLSContext: dialTLS(dialer, c.TLS),
		MaxIdleConnsPerHost: c.Conns + keepSingles, IdleConnTimeout: keepTime, DisableCompression: true,
		MaxResponseHeaderBytes: 64 << 10,
	}
	if path, ok := strings.CutPrefix(c.Address, "unix:"); ok {
		if path == "" {
			return nil, "", fmt.Errorf("client: address %q: after unix: there must be the path of a socket", c.Address)
		}
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
		return transport, "http://localhost", nil
	}
	base := c.Address
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return nil, "", fmt.Errorf(`client: address %q: must be like "host:port", "https://host" or "unix:/path"`, c.Address)
	}
	if c.TLS != nil && u.Scheme == "http" {
		return nil, "", fmt.Errorf("client: address %q: it must begin with https:// for TLS", c.Address)
	}
	return transport, strings.TrimSuffix(base, "/"), nil
}

// dialTLS returns how to connect to https addresses. It performs the handshake itself, so that its
// failure can be told from that of a request.
func dialTLS(dialer *net.Dialer, c *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	secure := &tls.Dialer{NetDialer: dialer, Config: c}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialer.Timeout)
		defer cancel()
		conn, err := secure.DialContext(ctx, network, addr)
		if err != nil {
			return nil, &handshakeError{err}
		}
		return conn, nil
	}
}

// Timeout returns the timeout of a request. A call may have to wait for a previous request in
// addition.
func (c *Client) Timeout() time.Duration { return 2 * c.timeout }

// Close waits for the requests in flight and closes connections. Open reservations stay until they
// expire.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.combiner.close()
	c.calls.Wait()
	c.cancel()
	c.own.CloseIdleConnections()
	return nil
}

// enter begins a request. Unless it returns an error, the caller must call c.calls.Done.
func (c *Client) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	c.calls.Add(1)
	return nil
}

// exchange makes one call to the daemon, limited by ctx and the timeout.
func exchange[Q, A any](ctx context.Context, c *Client, within time.Duration, call func(context.Context, Q) (A, error), q Q) (A, error) {
	var none A
	if err := ctx.Err(); err != nil {
		return none, err // nothing was sent, so nothing was charged
	}
	if err := c.enter(); err != nil {
		return none, err
	}
	defer c.calls.Done()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	answer, err := call(ctx, q)
	if err != nil {
		return none, c.failed(err)
	}
	return answer, nil
}
