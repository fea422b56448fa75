package traffic

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// RESP is pipelines of so many commands, of which so many are sent one after the other
// before the replies to the first are read.
func RESP(depth, ahead int, command func() []string) Kind {
	return func(f *Traffic) caller {
		return &respCaller{wire: wire{traffic: f, listener: onRESP}, depth: depth, ahead: ahead, command: command}
	}
}

// Command is a command that is always the same.
func Command(args ...string) func() []string { return func() []string { return args } }

type respCaller struct {
	wire
	depth, ahead int
	command      func() []string
}

func (c *respCaller) call(n *Tally) {
	if !c.ready(n) {
		return
	}
	for range c.ahead {
		var b strings.Builder
		for range c.depth {
			appendCommand(&b, c.command())
		}
		_, _ = io.WriteString(c.conn, b.String()) // an error is seen when the replies are read
	}
	c.read(n, c.depth*c.ahead)
}

// read reads so many replies. A connection that ends with commands unanswered has dropped
// them, unless the daemon said that it would.
func (c *respCaller) read(n *Tally, waiting int) {
	for ; waiting > 0; waiting-- {
		first, err := readReply(c.in)
		switch {
		case err != nil:
			n.drop(waiting, err)
			c.hangUp()
			return
		case strings.HasPrefix(first, "-LOADING "): // this one and all after it
			n.Told.Add(int64(waiting))
			c.hangUp()
			return
		case strings.HasPrefix(first, "-"):
			n.fail("%s", first)
		default:
			n.decided(first == ":1")
		}
	}
}

func (c *respCaller) close() { c.hangUp() }

func appendCommand(b *strings.Builder, args []string) {
	fmt.Fprintf(b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(b, "$%d\r\n%s\r\n", len(a), a)
	}
}

// readReply reads a reply and returns its first line or, of an array, its first element's.
func readReply(r *bufio.Reader) (first string, err error) {
	if first, err = readElement(r); err != nil || !strings.HasPrefix(first, "*") {
		return first, err
	}
	length, err := strconv.Atoi(first[1:])
	for i := 0; i < length && err == nil; i++ {
		var line string
		if line, err = readElement(r); i == 0 {
			first = line
		}
	}
	return first, err
}

// readElement reads a line and, if that announces a text, the text, which has no line end.
func readElement(r *bufio.Reader) (string, error) {
	line, err := readLine(r)
	if err == nil && strings.HasPrefix(line, "$") && line != "$-1" {
		_, err = readLine(r)
	}
	return line, err
}

func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	return strings.TrimSuffix(line, "\r\n"), err
}
