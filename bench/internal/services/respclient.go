package services

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/weirlimit/weir/internal/resp"
)

// A command is a command of the Redis protocol, and how its reply is read.
type command struct {
	before, after []string // arguments, with the key between them
	keyed         bool     // whether there is a key at all
	lines         int      // of an answer
	admitted      string   // how an answer begins that admits
}

var (
	ping = command{before: []string{"PING"}, lines: 1, admitted: "+PONG\r\n"}

	// throttle has the numbers of plenty.
	throttle = command{
		before: []string{"CL.THROTTLE"}, after: []string{"999999", "1000000", "1"}, keyed: true, lines: 6, admitted: "*5\r\n:0\r\n",
	}
)

// check is WEIR.CHECK under a rule.
func check(rule string) command {
	return command{before: []string{"WEIR.CHECK", rule}, keyed: true, lines: 6, admitted: "*5\r\n:1\r\n"}
}

// overRESP is a protocol with a connection for each caller. Several keys are a pipeline.
func overRESP(of func(rule string) command) protocol {
	return func(s *server, rule string, callers int) (askers, error) {
		var all askers
		var conns []net.Conn
		all.close = func() (err error) {
			for _, c := range conns {
				err = errors.Join(err, c.Close())
			}
			return err
		}
		for range callers {
			conn, err := net.Dial("tcp", s.resp)
			if err != nil {
				return askers{}, errors.Join(err, all.close())
			}
			conns = append(conns, conn)
			all.list = append(all.list, &respAsker{conn: conn, command: of(rule)})
		}
		return all, nil
	}
}

// A respAsker is one connection. A request allocates nothing, and of the last one only the
// keys are written anew.
type respAsker struct {
	conn net.Conn
	command
	deadline time.Time // of the connection
	request  []byte
	places   []int // of the keys in it
	answer   []byte
}

func (a *respAsker) ask(ctx context.Context, keys []string) (int, error) {
	if deadline, _ := ctx.Deadline(); deadline != a.deadline { // which is once in a run
		if err := a.conn.SetDeadline(deadline); err != nil {
			return 0, err
		}
		a.deadline = deadline
	}
	if len(a.places) != len(keys) {
		a.write(keys)
	}
	if a.keyed {
		for i, key := range keys {
			copy(a.request[a.places[i]:], key)
		}
	}
	if _, err := a.conn.Write(a.request); err != nil {
		return 0, err
	}
	if err := a.read(len(keys) * a.lines); err != nil {
		return 0, err
	}
	return bytes.Count(a.answer, []byte(a.admitted)), nil
}

// write makes a request for as many keys, all of which have the same length.
func (a *respAsker) write(keys []string) {
	a.request, a.places = a.request[:0], a.places[:0]
	for _, key := range keys {
		var place int
		a.request, place = a.append(a.request, key)
		a.places = append(a.places, place)
	}
}

// append appends the command for a key, and returns where that is.
func (c *command) append(b []byte, key string) (request []byte, place int) {
	n := len(c.before) + len(c.after)
	if c.keyed {
		n++
	}
	b = resp.AppendArray(b, n)
	for _, arg := range c.before {
		b = resp.AppendBulk(b, arg)
	}
	if c.keyed {
		b = resp.AppendBulk(b, key)
		place = len(b) - len(key) - len("\r\n")
	}
	for _, arg := range c.after {
		b = resp.AppendBulk(b, arg)
	}
	return b, place
}

// read reads so many lines, of which the answers consist.
func (a *respAsker) read(lines int) error {
	const room = 4 << 10
	a.answer = a.answer[:0]
	for lines > 0 {
		if cap(a.answer)-len(a.answer) < room/2 {
			a.answer = append(make([]byte, 0, 2*cap(a.answer)+room), a.answer...)
		}
		n, err := a.conn.Read(a.answer[len(a.answer):cap(a.answer)])
		if err != nil {
			return err
		}
		fresh := a.answer[len(a.answer) : len(a.answer)+n]
		lines -= bytes.Count(fresh, []byte("\n"))
		a.answer = a.answer[:len(a.answer)+n]
	}
	if a.answer[0] == '-' || lines < 0 {
		return fmt.Errorf("an answer is not as expected: %q", a.answer)
	}
	return nil
}
