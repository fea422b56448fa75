package target

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
)

// respDriver calls what speaks Redis' protocol. Every sender has a connection of
// its own, which the dialer closes.
type respDriver struct {
	plan   *plan
	dialer *dialer
}

func newRESP(p *plan, d *dialer) *respDriver { return &respDriver{plan: p, dialer: d} }

// open sends a PING, which also shows that the password is right.
func (d *respDriver) open(ctx context.Context) error {
	c, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.demand(ctx, "PING")
}

func (d *respDriver) close() error { return nil }

func (d *respDriver) sender(v *vars) sender { return &respSender{driver: d, vars: v} }

// connect makes a connection, and says who we are and which database we mean.
func (d *respDriver) connect(ctx context.Context) (*respConn, error) {
	raw, err := d.dialer.connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &respConn{Conn: raw, r: newReplyReader(raw)}
	if err := d.greet(ctx, c); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func (d *respDriver) greet(ctx context.Context, c *respConn) error {
	if u := d.plan.address.user; u != nil {
		password, _ := u.Password()
		auth := []string{"AUTH", password}
		if u.Username() != "" {
			auth = []string{"AUTH", u.Username(), password}
		}
		if err := c.demand(ctx, auth...); err != nil {
			return err
		}
	}
	if d.plan.db == "" {
		return nil
	}
	return c.demand(ctx, "SELECT", d.plan.db)
}

// A respConn is one connection.
type respConn struct {
	net.Conn
	r *bufio.Reader
}

// A demandError reports a command that must succeed before others can.
type demandError struct{ command, code string }

func (e *demandError) Error() string {
	return fmt.Sprintf("%s was answered with %s", e.command, e.code)
}

// demand sends a command that must succeed. Its error has no more of the reply than
// the code, as servers quote what they do not understand, such as passwords.
func (c *respConn) demand(ctx context.Context, command ...string) error {
	b := appendArray(nil, len(command))
	for _, part := range command {
		b = appendBulk(b, part)
	}
	r, err := c.exchange(ctx, b)
	if err != nil {
		return fmt.Errorf("%s: %w", command[0], err)
	}
	if r.isError {
		return &demandError{command[0], r.code()}
	}
	return nil
}

// exchange sends one command and reads its reply. After an error the connection is
// of no use any more: a late reply would be taken for that to the next command.
func (c *respConn) exchange(ctx context.Context, command []byte) (reply, error) {
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return reply{}, err
	}
	stop := interrupt(ctx, c)
	r, err := c.roundTrip(command)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	return r, err
}

func (c *respConn) roundTrip(command []byte) (reply, error) {
	if _, err := c.Write(command); err != nil {
		return reply{}, err
	}
	r, err := readReply(c.r)
	if err == nil && c.r.Buffered() > 0 {
		err = malformed("more than one value")
	}
	return r, err
}

// respSender sends one command after the other, and connects when it has to.
type respSender struct {
	driver *respDriver
	vars   *vars
	conn   *respConn // nil at first, and after an error
	buf    []byte    // the command
	part   []byte    // the part of it that is being expanded
}

func (s *respSender) send(ctx context.Context) Result {
	if s.conn == nil {
		c, err := s.driver.connect(ctx)
		if err != nil {
			return unconnected(err)
		}
		s.conn = c
	}
	s.encode()
	r, err := s.conn.exchange(ctx, s.buf)
	if err != nil {
		_ = s.conn.Close()
		s.conn = nil
		return failed(err)
	}
	return r.result()
}

// unconnected is the result if there is no connection to send the command on.
func unconnected(err error) Result {
	r := failed(err)
	if e, ok := errors.AsType[*demandError](err); ok {
		r.Code = e.code
	}
	return r
}

// encode writes the command of this operation to buf.
func (s *respSender) encode() {
	command := s.driver.plan.command
	s.buf = appendArray(s.buf[:0], len(command))
	for _, part := range command {
		s.part = part.append(s.part[:0], s.vars)
		s.buf = appendBulk(s.buf, s.part)
	}
}

func appendArray(b []byte, n int) []byte {
	b = append(b, '*')
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, '\r', '\n')
}

func appendBulk[T string | []byte](b []byte, part T) []byte {
	b = append(b, '$')
	b = strconv.AppendInt(b, int64(len(part)), 10)
	b = append(b, '\r', '\n')
	b = append(b, part...)
	return append(b, '\r', '\n')
}
