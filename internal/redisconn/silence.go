package redisconn

import (
	"net"
	"os"
	"sync"
	"time"
)

// silenceConn closes a connection if nothing is read for a while after something was written. It
// replaces frequent pings: an idle connection needs none, and its timer does not run.
//
// It does not count replies. If one comes after a command was written and the server hangs
// before it answers that command, the silence is noticed with the next command or ping.
type silenceConn struct {
	net.Conn
	most time.Duration

	mu     sync.Mutex  // guards the fields below
	since  time.Time   // the first write after the last read; zero if there is none
	timer  *time.Timer // of check, running while since is set; nil before the first write
	silent bool        // the connection was closed for it
}

func (c *silenceConn) Write(b []byte) (int, error) {
	c.wrote(time.Now())
	n, err := c.Conn.Write(b)
	return n, c.explain(err)
}

func (c *silenceConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.read()
	}
	return n, c.explain(err)
}

// Close is as [net.Conn] has it.
func (c *silenceConn) Close() error {
	c.mu.Lock()
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	return c.Conn.Close()
}

// wrote notes that a reply is due.
func (c *silenceConn) wrote(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.since.IsZero() {
		return
	}
	c.since = now
	if c.timer == nil {
		c.timer = time.AfterFunc(c.most, c.check)
		return
	}
	c.timer.Reset(c.most)
}

// read notes that something has come.
func (c *silenceConn) read() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.since.IsZero() {
		c.since = time.Time{}
		c.timer.Stop()
	}
}

// check closes the connection if it is silent.
func (c *silenceConn) check() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() || time.Since(c.since) < c.most {
		return // something has come just now, and the timer may have been set anew
	}
	c.silent = true
	_ = c.Conn.Close() // which ends Read, and that says why
}

// explain returns the error of a connection that was closed because it was silent.
func (c *silenceConn) explain(err error) error {
	if err == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silent {
		return &silenceError{c.most}
	}
	return err
}

// silenceError says that a reply did not come in time. For net and os it is a time-out.
type silenceError struct{ most time.Duration }

func (e *silenceError) Error() string   { return "redisconn: no answer within " + e.most.String() }
func (e *silenceError) Timeout() bool   { return true }
func (e *silenceError) Temporary() bool { return false }
func (e *silenceError) Unwrap() error   { return os.ErrDeadlineExceeded }
