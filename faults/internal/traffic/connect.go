package traffic

import (
	"context"
	"errors"
	"net"
	"net/http"
	"syscall"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/gen/weir/v1/weirv1connect"
)

// Connect is checks by connect-go's client, over HTTP/1.1 or HTTP/2 without TLS.
func Connect(version int, request func() *weirv1.CheckRequest) Kind {
	return func(f *Traffic) caller {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(version == 1)
		protocols.SetUnencryptedHTTP2(version == 2)
		transport := &http.Transport{
			Protocols:   protocols,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return f.dial(ctx, onHTTP) },
		}
		client := weirv1connect.NewLimiterServiceClient(&http.Client{Transport: transport}, "http://localhost")
		return &connectCaller{transport, client, request}
	}
}

type connectCaller struct {
	transport *http.Transport
	client    weirv1connect.LimiterServiceClient
	request   func() *weirv1.CheckRequest
}

func (c *connectCaller) call(n *Tally) {
	ctx, cancel := context.WithDeadline(context.Background(), deadline())
	defer cancel()
	reply, err := c.client.Check(ctx, c.request())
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		n.refuse(err)
	case err != nil:
		n.drop(1, err)
	default:
		n.decided(reply.GetAllowed())
	}
}

func (c *connectCaller) close() { c.transport.CloseIdleConnections() }
