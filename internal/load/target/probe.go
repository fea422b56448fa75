package target

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"
)

// probe connects once, so that a target that does not answer is noticed before the
// first call. It sends no operation.
func (d *dialer) probe(ctx context.Context) error {
	conn, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if !d.plan.Protocol.needsHTTP2() {
		return nil
	}
	defer interrupt(ctx, conn)()
	return greetHTTP2(conn)
}

// The client's part of the beginning of an HTTP/2 connection: the preface and an
// empty SETTINGS frame. See RFC 9113, section 3.4.
const (
	preface       = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	emptySettings = "\x00\x00\x00" + "\x04" + "\x00" + "\x00\x00\x00\x00" // length, type, flags, stream
	frameHeader   = len(emptySettings)
	typeSettings  = 4
)

// greetHTTP2 begins a connection. Servers that speak HTTP/2 answer with their own
// SETTINGS; others with an error page, or they close the connection.
func greetHTTP2(conn net.Conn) error {
	if _, err := io.WriteString(conn, preface+emptySettings); err != nil {
		return fmt.Errorf("%w: %w", errNoHTTP2, err)
	}
	var first [frameHeader]byte
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		return fmt.Errorf("%w: %w", errNoHTTP2, err)
	}
	if first[3] != typeSettings {
		return fmt.Errorf("%w: its answer begins with %.9q", errNoHTTP2, first[:])
	}
	return nil
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// interrupt lets reads and writes of conn fail when ctx ends. The function that it
// returns ends that. If it returns false, conn cannot be used any more.
func interrupt(ctx context.Context, conn net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = conn.SetDeadline(longAgo) })
}
