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
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/internal/resp"
)

// How long a peer may take, and how much is kept for it.
const (
	restTimeout      = 10 * time.Second // for the rest of a command, or to say who it is
	writeTimeout     = 15 * time.Second
	lastRead         = time.Millisecond       // for what has arrived when the server stops
	shutdownReplyFor = time.Second            // for a command that is told that the server stops
	lingerFor        = 500 * time.Millisecond // for a peer to take the last replies
	lingerBlind      = 10 * time.Millisecond  // the same, if it cannot be told that they are the last
	maxPipeline      = 1024                   // commands that are answered together
	countEvery       = 64                     // commands after which the server is told
	slowWrite        = 16 << 10               // bytes of replies that may take a while to write
	flushAt          = 64 << 10               // bytes of replies that are written together
	maxOut           = 1 << 20                // bytes of replies; beyond, the connection is closed
)

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
	closing bool // after the replies
	linger  bool // for the peer to read them

	readBy  weir.Instant // the deadlines that are set
	writeBy weir.Instant
	partial bool // readBy is for the rest of the command that is being received

	clock    weir.Instant // when it was last read: a pipeline came, was decided on, was answered
	rounds   uint64       // of commands that came together
	timing   bool         // this round's first decision is timed
	commands int64        // of which the server was not told
	last     lastCommand
	batch    *batch // checks that are decided together, or nil

	state   *State      // what holds for the commands that came together
	ruled   *guard.Rule // the last that was asked for, by ruledBy
	ruledBy *guard.Rules

	// Of the command that is carried out. They are used again by the next.
	query  guard.Query
	record guard.Record
	keys   [maxOptions]guard.Attribute
	costs  [maxOptions]guard.Cost
}

func newConn(s *Server, nc net.Conn) *conn {
	return &conn{srv: s, net: nc, in: resp.NewReader(nc, resp.Limits{}), id: s.ids.Add(1), version: resp.RESP2, state: s.cfg.State()}
}

// serve answers commands until the connection ends.
func (c *conn) serve() {
	defer func() {
		if r := recover(); r != nil { // a bug must not end the daemon
			c.srv.cfg.Log.Error("a command panicked", "panic", r, "stack", string(debug.Stack()))
		}
	}()
	if !c.handshake() {
		return
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
	runtime.Gosched() // others first: meanwhile the next commands may come, and need not be waited for
	err := c.in.Fill()
	if err == nil {
		return true
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && c.srv.draining.Load() { // which woke it
		return c.finish()
	}
	return false
}

// finish answers what has arrived when the server stops, and no more. It returns false.
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

// stopping is what a command is told that comes too late. Clients know the word LOADING as
// that of a server that does nothing for now, and try again elsewhere or later.
const stopping = "LOADING weir is stopping; this command and those after it on the connection were not carried out"

// farewell tells the next commands, if some come soon, that nothing is carried out any
// more. The protocol has no other way: who sends just when the connection is closed could
// not know what became of that. Who is told knows it of all that it has sent since, too.
// A peer that was silent for so long cannot be told: a reply to nothing would confuse it.
func (c *conn) writeShutdownReply() {
	for _, wait := range []time.Duration{shutdownReplyFor, lastRead} { // then what came while nobody looked
		_ = c.net.SetReadDeadline(time.Now().Add(wait))
		for c.in.Fill() == nil {
			if c.refuse() {
				c.flush()
				return
			}
		}
	}
}

// refuse tells all commands that were received whole, and says whether there were some.
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

// count notes commands that were answered. Those of a busy connection are told to the server some
// at a time: all connections share that number.
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
	if c.writeBy.Sub(c.clock) < writeTimeout*2/3 { // it is not set for each write
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

// setReadDeadline gives the peer time: for the rest of a command, which gets no more for
// coming in pieces, or for the next command. The latter is not set for each read, so it
// may be up to a quarter less.
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
	_ = c.net.SetReadDeadline(deadline) // an error means that it is closed, and so will Read say
}

// lingerOn lets the peer read the last replies before the connection is closed: closed
// with something unread, a TCP connection is reset, and the peer may lose what it has not
// read yet.
func (c *conn) lingerOn() {
	wait := lingerBlind
	if half, ok := c.net.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		wait = lingerFor
	}
	_ = c.net.SetReadDeadline(time.Now().Add(wait))
	_, _ = io.Copy(io.Discard, c.net)
}
