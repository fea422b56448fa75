package grpcapi

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/weirlimit/weir/internal/identity"
)

// handshake begins connections, with TLS if the listener's are of that kind, and notes once
// what each call would otherwise have to find out.
type handshake struct{}

var _ credentials.TransportCredentials = handshake{}

// caller is what is known of a connection. It is what peer.Peer has as AuthInfo.
type caller struct {
	conn    net.Conn    // without TLS; set once, like the next two
	names   []string    // in its certificate
	address string      // of the other end
	proven  atomic.Bool // a call was let in
}

// AuthType is what grpc-go calls the way of proving who one is.
func (*caller) AuthType() string { return "weir" }

// errNotHTTP2 is for callers who speak TLS, but did not agree on HTTP/2.
var errNotHTTP2 = errors.New("grpcapi: the caller did not ask for HTTP/2 (ALPN h2)")

// ServerHandshake is called once for each connection, which has a deadline then.
func (handshake) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c := &caller{conn: raw, address: raw.RemoteAddr().String()}
	secure, ok := raw.(*tls.Conn)
	if !ok {
		return raw, c, nil
	}
	if err := secure.Handshake(); err != nil {
		return nil, nil, errors.Join(err, raw.Close())
	}
	state := secure.ConnectionState()
	if state.NegotiatedProtocol != "h2" {
		return nil, nil, errors.Join(errNotHTTP2, raw.Close())
	}
	c.conn, c.names = secure.NetConn(), identity.Names(&state)
	return raw, c, nil
}

// ClientHandshake is for clients, which this is not.
func (handshake) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.ErrUnsupported
}

func (handshake) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "weir"}
}

func (h handshake) Clone() credentials.TransportCredentials { return h }

// OverrideServerName is for clients.
func (handshake) OverrideServerName(string) error { return nil }

// callerOf returns what is known of a call's connection.
func callerOf(ctx context.Context) *caller {
	p, _ := peer.FromContext(ctx) // grpc-go puts it there
	return p.AuthInfo.(*caller)
}
