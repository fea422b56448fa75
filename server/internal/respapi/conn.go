package respapi

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/resp"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
)

// Timeouts and buffer sizes.
const (
	restTimeout      = 10 * time.Second // for the rest of a command, or to authenticate
	writeTimeout     = 15 * time.Second
	lastRead         = time.Millisecond       // to read what has arrived when the server stops
	shutdownReplyFor = time.Second            // to wait for a command that gets the shutdown reply
	lingerFor        = 500 * time.Millisecond // for a peer to read the last replies
	lingerBlind      = 10 * time.Millisecond  // the same, if the write side cannot be closed
	maxPipeline      = 1024                   // commands that are answered together
	countEvery       = 64                     // commands after which they are added to the server's counter
	slowWrite        = 16 << 10               // bytes of replies that may take a while to write
	flushAt          = 64 << 10               // bytes of replies that are written together
	maxOut           = 1 << 20                // bytes of replies; beyond, the connection is closed
)

// unauthenticated are the limits of a connection until it is authenticated: enough for AUTH and
// HELLO, so that unproven connections need little memory.
var unauthenticated = resp.Limits{Args: 10, Bulk: 4 << 10, Inline: 4 << 10, Command: 8 << 10}

// conn is one connection. Only its goroutine uses it, but for net.
type conn struct {
	srv *Server // set by newConn, like the next three
	net net.Conn
	in  *resp.Reader
	id  int64

	out     []byte // replies that were not written yet
	version resp.Version
	name    string // as CLIENT SETNAME says
	session session
	proven  bool // Config.Proven was called
	closing bool // after the replies
	linger  bool // for the peer to read them

	readBy  weir.Instant // the deadlines that are set
	writeBy weir.Instant
	partial bool // readBy is for the rest of the command that is being received

	clock    weir.Instant // the time of the last clock reading
	rounds   uint64       // reads that delivered commands
	timing   bool         // this round's first decision is timed
	commands int64        // not yet added to the server's counter
	last     lastCommand
	batch    *batch // checks that are decided together, or nil

	state   *call.State   // the state for the commands of this round
	ruled   *ruleset.Rule // the last rule that was looked up, by ruledBy
	ruledBy call.Caller

	// Buffers of the current command, reused by the next one.
	query ruleset.Query
	keys  [maxOptions]ruleset.Attribute
	costs [maxOptions]ruleset.Cost
}

func newConn(s *Server, nc net.Conn) *conn {
	return &conn{srv: s, net: nc, in: resp.NewReader(nc, resp.Limits{}), id: s.ids.Add(1), version: resp.RESP2, state: s.cfg.State()}
}

// serve answers commands until the connection ends.
func (c *conn) serve() {
	defer func() {
		if r := recover(); r != nil { // a bug must not end the daemon
			c.srv.cfg.Core.Log.Error("a command panicked", "panic", r, "stack", string(debug.Stack()))
		}
	}()
	if !c.handshake() {
		return
	}
	if !c.session.authenticated(c.state.Authenticator) {
		c.in.SetLimits(unauthenticated)
	}
	defer c.addCommands()
	for c.answer() && c.receive() {
	}
	if c.linger {
		c.lingerOn()
	}
}

// answer carries out all commands that were received and writes the replies, with one
// write unless they are many. It returns false if the connection ends.
func (c *conn) answer() bool {
	c.state = c.srv.cfg.State()
	c.beginTiming()
	for n := 1; ; n++ {
		args, err := c.in.Next()
		switch {
		case err != nil:
			c.fail("ERR " + err.Error())
			c.closing, c.linger = true, true
		case args != nil:
			c.partial = false // what is half now is another command, with time of its own
			c.execute(args)
		}
		if args == nil || n == maxPipeline {
			c.decideBatch()
		}
		switch {
		case len(c.out) > maxOut:
			return false
		case args == nil || c.closing:
			c.count(n - 1)
			return c.flush() && !c.closing
		case n == maxPipeline || len(c.out) >= flushAt:
			c.count(n)
			if n = 0; !c.flush() {
				return false
			}
		}
	}
}

// receive waits for more. It returns false if the connection ends.
func (c *conn) receive() bool {
	c.setReadDeadline()
	if c.srv.draining.Load() {
		return c.finish()
	}
	runtime.Gosched() // meanwhile the next commands may arrive, and the read does not block
	err := c.in.Fill()
	if err == nil {
		return true
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && c.srv.draining.Load() { // beginDrain set the deadline
		return c.finish()
	}
	return false
}

// finish answers the commands that have arrived when the server stops, and refuses later ones. It
// returns false.
func (c *conn) finish() bool {
	c.srv.awaitWoken()
	_ = c.net.SetReadDeadline(time.Now().Add(lastRead))
	if c.in.Fill() == nil && !c.answer() {
		return false
	}
	c.linger = true
	c.writeShutdownReply()
	return false
}

// stopping is the shutdown reply. Clients know the code LOADING as that of a server that is not
// ready, and retry elsewhere or later.
const stopping = "LOADING weir is stopping; this command and those after it on the connection were not carried out"

// writeShutdownReply refuses the commands that arrive within shutdownReplyFor. The protocol has no
// message for a closing server: without a reply, a client that sends a command while the
// connection is being closed could not know whether it was executed. The reply covers all later
// commands, too. A client that sends nothing gets none, since each reply must match a command.
func (c *conn) writeShutdownReply() {
	for _, wait := range []time.Duration{shutdownReplyFor, lastRead} { // the second for what arrived at the end of the first
		_ = c.net.SetReadDeadline(time.Now().Add(wait))
		for c.in.Fill() == nil {
			if c.refuse() {
				c.flush()
				return
			}
		}
	}
}

// refuse replies to all complete commands in the buffer, and reports whether there were any.
func (c *conn) refuse() (refused bool) {
	for {
		args, err := c.in.Next()
		if args == nil || err != nil {
			return refused
		}
		c.fail(stopping)
		refused = true
	}
}

// count counts answered commands. They are added to the server's counter in groups, because all
// connections share it.
func (c *conn) count(n int) {
	if c.commands += int64(n); c.commands >= countEvery {
		c.addCommands()
	}
}

func (c *conn) addCommands() {
	c.srv.commands.Add(c.commands)
	c.commands = 0
}

// flush writes the replies.
func (c *conn) flush() bool {
	c.clock = weir.Now()
	if len(c.out) == 0 {
		return true
	}
	if !c.proven && c.session.authenticated(c.state.Authenticator) {
		c.proven = true
		c.srv.cfg.Proven(c.net)
	}
	if c.writeBy.Sub(c.clock) < writeTimeout*2/3 { // to set it for each write would be expensive
		c.writeBy = c.clock.Add(writeTimeout)
		if c.net.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil {
			return false
		}
	}
	_, err := c.net.Write(c.out)
	if len(c.out) >= slowWrite { // a peer that reads slowly may have kept it
		c.clock = weir.Now()
	}
	if c.out = c.out[:0]; cap(c.out) > flushAt {
		c.out = nil
	}
	return err == nil
}

// setReadDeadline sets the deadline for the rest of a command, which is not extended when more
// of it arrives, or for the next command. The latter is not set for each read, so it may be up
// to a quarter less than Idle.
func (c *conn) setReadDeadline() {
	partial := c.in.Partial()
	if partial && c.partial {
		return
	}
	patience := c.srv.cfg.Idle
	if partial || !c.session.authenticated(c.srv.cfg.State().Authenticator) {
		patience = restTimeout
	}
	left := c.readBy.Sub(c.clock)
	if partial == c.partial && left <= patience && left > patience*3/4 {
		return
	}
	c.partial = partial
	c.readBy = c.clock.Add(patience)
	deadline := time.Time{}
	if patience > 0 {
		deadline = time.Now().Add(patience)
	}
	_ = c.net.SetReadDeadline(deadline) // it fails only on a closed connection, as Read does
}

// lingerOn waits for the peer to read the last replies before the connection is closed: a TCP
// connection that is closed with unread input is reset, and the peer may lose replies.
func (c *conn) lingerOn() {
	wait := lingerBlind
	if half, ok := c.net.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		wait = lingerFor
	}
	_ = c.net.SetReadDeadline(time.Now().Add(wait))
	_, _ = io.Copy(io.Discard, c.net)
}
