package respapi

import (
	"strconv"
	"strings"

	"github.com/weirlimit/weir/internal/resp"
)

// command describes a command.
type command struct {
	name     string // in capitals
	min, max int    // arguments, the name included; max 0 = as min
	arity    int    // for COMMAND, if it differs from min and max
	key      int    // the place of the key, 0 if it has none
	open     bool   // allowed before authentication
	writes   bool   // it changes something
	gathers  bool   // it may be decided in a batch
	summary  string
	usage    string // of the arguments
	run      func(c *conn, args [][]byte)
}

// maxArgs is the maximum number of arguments of a command that decides.
const maxArgs = 16

// commands are all commands, in the order of COMMAND's reply.
var commands []*command

func init() { // COMMAND refers to commands, so it cannot be initialized in its declaration
	commands = []*command{
		{name: "WEIR.CHECK", min: 3, max: maxArgs, key: 2, writes: true, gathers: true, summary: "Charges a key if that fits the policy", usage: "policy key [cost] [CLASS class] [BY name value ...] [UNIT name amount ...] [METHOD name ...]", run: (*conn).check},
		{name: "WEIR.PEEK", min: 3, max: maxArgs, key: 2, summary: "Returns the decision of WEIR.CHECK without charging", usage: "policy key [cost] [CLASS class] [BY name value ...] [UNIT name amount ...] [METHOD name ...]", run: (*conn).peek},
		{name: "WEIR.RESERVE", min: 3, max: maxArgs, key: 2, writes: true, summary: "Charges a key and holds the units until COMMIT or CANCEL", usage: "policy key [cost] [CLASS class] [TTL ms] [MAXWAIT ms] [BY name value ...] [UNIT name amount ...] [METHOD name ...]", run: (*conn).reserve},
		{name: "WEIR.COMMIT", min: 2, max: maxArgs, writes: true, summary: "Commits a reservation with the units that were used", usage: "id [used] [UNIT name amount ...]", run: (*conn).commit},
		{name: "WEIR.CANCEL", min: 2, writes: true, summary: "Cancels a reservation", usage: "id", run: (*conn).cancel},
		{name: "WEIR.RENEW", min: 2, max: 3, writes: true, summary: "Extends a reservation from now on", usage: "id [ttl_ms]", run: (*conn).renew},
		{name: "CL.THROTTLE", min: 1, max: 64, arity: -5, key: 1, writes: true, gathers: true, summary: "Charges a key with the limit in the arguments, as redis-cell does", usage: "key max_burst count period [quantity]", run: (*conn).throttle},
		{name: "AUTH", min: 2, max: 3, open: true, summary: "Authenticates the connection", usage: "[client] token", run: (*conn).auth},
		{name: "CLIENT", min: 2, max: 64, summary: "Returns and sets properties of the connection", usage: "subcommand [argument ...]", run: (*conn).clientCommand},
		{name: "CLUSTER", min: 2, max: 64, summary: "Replies that cluster support is disabled", usage: "subcommand", run: func(c *conn, _ [][]byte) { c.fail("ERR This instance has cluster support disabled") }},
		{name: "COMMAND", min: 1, max: 64, summary: "Describes commands", usage: "[COUNT | DOCS [name ...] | INFO [name ...] | LIST]", run: (*conn).commandCommand},
		{name: "CONFIG", min: 2, max: 64, summary: "Is refused: a file configures the daemon", usage: "subcommand", run: func(c *conn, _ [][]byte) { c.fail("ERR CONFIG is not available: the daemon is configured by its file") }},
		{name: "ECHO", min: 2, summary: "Returns its argument", usage: "message", run: func(c *conn, args [][]byte) { c.out = resp.AppendBulk(c.out, args[1]) }},
		{name: "HELLO", min: 1, max: 64, open: true, summary: "Selects RESP2 or RESP3, and authenticates", usage: "[2|3 [AUTH client token] [SETNAME name]]", run: (*conn).hello},
		{name: "INFO", min: 1, max: 64, summary: "Describes the daemon", usage: "[section ...]", run: (*conn).info},
		{name: "PING", min: 1, max: 2, summary: "Returns PONG, or its argument", usage: "[message]", run: (*conn).ping},
		{name: "QUIT", min: 1, max: 64, open: true, summary: "Closes the connection", run: func(c *conn, _ [][]byte) { c.ok(); c.closing = true }},
		{name: "RESET", min: 1, open: true, summary: "Resets the connection", run: (*conn).reset},
		{name: "SELECT", min: 2, summary: "Selects the database; there is only 0", usage: "0", run: (*conn).selectDB},
	}
	for _, c := range commands {
		c.max = max(c.max, c.min)
	}
}

// find returns the command that a name means in any letter case, or nil.
func find(name []byte) *command {
	for _, cmd := range commands {
		if isWord(name, cmd.name) {
			return cmd
		}
	}
	return nil
}

// lastCommand caches the last command by its name as it was written. Usually the next one is the
// same.
type lastCommand struct {
	name    [16]byte // longer than all names
	length  int
	command *command
}

func (l *lastCommand) find(name []byte) *command {
	if string(name) == string(l.name[:l.length]) {
		return l.command
	}
	cmd := find(name)
	if cmd != nil {
		l.command, l.length = cmd, copy(l.name[:], name)
	}
	return cmd
}

// execute executes a command.
func (c *conn) execute(args [][]byte) {
	before := c.last.command
	cmd := c.last.find(args[0])
	if c.batch != nil && (cmd != before || !cmd.gathers || c.batch.size() == maxBatch) {
		c.decideBatch()
	}
	switch {
	case cmd == nil && isHTTP(args[0]):
		c.fail("ERR this is no HTTP server")
		c.closing, c.linger = true, true
	case !c.session.authenticated(c.state.Authenticator) && (cmd == nil || !cmd.open):
		c.noAuth()
	case cmd == nil:
		c.fail("ERR unknown command '" + clip(args[0]) + "'")
	case len(args) < cmd.min || len(args) > cmd.max:
		c.fail("ERR wrong number of arguments for '" + strings.ToLower(cmd.name) + "' command")
	default:
		cmd.run(c, args)
	}
}

// isHTTP reports whether a command is a line of an HTTP request with a body. A web page could send
// such a request, with commands in its body, to a daemon on loopback.
func isHTTP(name []byte) bool { return isWord(name, "POST") || isWord(name, "HOST:") }

func (c *conn) ok() { c.out = append(c.out, "+OK\r\n"...) }

// fail replies with an error, which begins with its code.
func (c *conn) fail(text string) {
	c.decideBatch() // replies are in order
	c.out = resp.AppendError(c.out, text)
}

// isWord compares without regard to letter case. The word is ASCII; of other characters that fold to
// ASCII letters all are longer.
func isWord(arg []byte, word string) bool {
	return len(arg) == len(word) && strings.EqualFold(textOf(arg), word)
}

// parseInt returns the integer that an argument is, as strconv.ParseInt does. It takes a tenth of the
// time of a CL.THROTTLE, so short ones, which cannot overflow, are read here.
func parseInt(arg []byte) (n int64, ok bool) {
	if len(arg) == 0 || len(arg) > 18 {
		n, err := strconv.ParseInt(textOf(arg), 10, 64)
		return n, err == nil
	}
	digits, sign := arg, int64(1)
	switch arg[0] {
	case '-':
		digits, sign = arg[1:], -1
	case '+': // redis-cell takes it
		digits = arg[1:]
	}
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = 10*n + int64(d-'0')
	}
	return sign * n, len(digits) > 0
}

// clip returns an argument, shortened for an error reply.
func clip(arg []byte) string { return string(arg[:min(len(arg), 64)]) }

func (c *conn) ping(args [][]byte) {
	if len(args) == 2 {
		c.out = resp.AppendBulk(c.out, args[1])
		return
	}
	c.out = append(c.out, "+PONG\r\n"...)
}

func (c *conn) selectDB(args [][]byte) {
	switch n, ok := parseInt(args[1]); {
	case !ok:
		c.fail("ERR value is not an integer or out of range")
	case n != 0:
		c.fail("ERR DB index is out of range")
	default:
		c.ok()
	}
}

// reset answers RESET. Authentication by a certificate stays.
func (c *conn) reset([][]byte) {
	c.version, c.name = resp.RESP2, ""
	c.session = session{names: c.session.names}
	c.out = resp.AppendSimple(c.out, "RESET")
}
