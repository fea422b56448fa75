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

// handshake runs the TLS handshake, if the listener's connections have TLS, and stores what each
// call needs to know of its connection.
type handshake struct{}

var _ credentials.TransportCredentials = handshake{}

// caller describes a connection. It is the AuthInfo of peer.Peer.
type caller struct {
	conn    net.Conn     // without TLS; set once, like the next two
	names   []string     // in its certificate
	address string       // of the other end
	proven  atomic.Bool  // a call was authenticated
	calls   atomic.Int32 // at once, of callers that are not known
}

// AuthType implements credentials.AuthInfo.
func (*caller) AuthType() string { return "weir" }

// errNotHTTP2 is the error of a TLS handshake that did not negotiate HTTP/2.
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

// ClientHandshake is not supported: this is a server.
func (handshake) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.ErrUnsupported
}

func (handshake) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "weir"}
}

func (h handshake) Clone() credentials.TransportCredentials { return h }

// OverrideServerName is for clients.
func (handshake) OverrideServerName(string) error { return nil }

// callerOf returns the caller of a call's connection.
func callerOf(ctx context.Context) *caller {
	p, _ := peer.FromContext(ctx) // grpc-go puts it there
	return p.AuthInfo.(*caller)
}
