package socket

import (
	"context"
	"net"
)

// Dial connects as a net.Dialer does, and returns the connection as [Direct] makes it.
func Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return Direct(conn), nil
}
