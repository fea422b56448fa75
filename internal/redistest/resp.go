package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// Reply is what a command returned.
type Reply struct {
	Text  string  // a string, or the digits of an integer: "OK", "42"
	Nil   bool    // nothing was there: GET of a missing key
	Items []Reply // of an array
	Err   error   // an Error inside an array
}

// Error is an error that a server replied, for example "READONLY You can't write
// against a read only replica."
type Error string

func (e Error) Error() string { return string(e) }

var errProtocol = errors.New("redistest: not RESP")

// client is one connection with its deadline set. It speaks RESP2.
type client struct {
	conn net.Conn
	br   *bufio.Reader
}

func newClient(conn net.Conn) *client { return &client{conn: conn, br: bufio.NewReader(conn)} }

func (c *client) do(args ...string) (Reply, error) {
	if _, err := c.conn.Write(appendCommand(nil, args)); err != nil {
		return Reply{}, err
	}
	r, err := readReply(c.br)
	if err != nil {
		return Reply{}, err
	}
	return r, r.Err
}

func appendCommand(b []byte, args []string) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(args))
	for _, arg := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b
}

// readReply reads one RESP2 value.
func readReply(br *bufio.Reader) (Reply, error) {
	kind, rest, err := readLine(br)
	if err != nil {
		return Reply{}, err
	}
	switch kind {
	case '+', ':':
		return Reply{Text: rest}, nil
	case '-':
		return Reply{Err: Error(rest)}, nil
	case '$':
		return readBulk(br, rest)
	case '*':
		return readArray(br, rest)
	}
	return Reply{}, fmt.Errorf("%w: a value of type %q", errProtocol, kind)
}

func readBulk(br *bufio.Reader, length string) (Reply, error) {
	n, err := parseLength(length)
	if err != nil || n < 0 {
		return Reply{Nil: true}, err
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, br, n+2); err != nil {
		return Reply{}, err
	}
	return Reply{Text: b.String()[:n]}, nil
}

func readArray(br *bufio.Reader, length string) (Reply, error) {
	n, err := parseLength(length)
	if err != nil || n < 0 {
		return Reply{Nil: true}, err
	}
	var r Reply
	for range n {
		item, err := readReply(br)
		if err != nil {
			return Reply{}, err
		}
		r.Items = append(r.Items, item)
	}
	return r, nil
}

// readLine returns the type of a value and the rest of its first line.
func readLine(br *bufio.Reader) (kind byte, rest string, err error) {
	line, err := br.ReadString('\n')
	if err != nil {
		return 0, "", err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return 0, "", fmt.Errorf("%w: a line %q", errProtocol, line)
	}
	return line[0], line[1 : len(line)-2], nil
}

// parseLength returns -1 for a value that is not there.
func parseLength(s string) (int64, error) {
	const longest = 512 << 20 // Redis's own limit of a string
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < -1 || n > longest {
		return 0, fmt.Errorf("%w: a length %q", errProtocol, s)
	}
	return n, nil
}

// readFrame returns the bytes of one whole value of RESP2 or RESP3.
func readFrame(br *bufio.Reader) ([]byte, error) {
	var b bytes.Buffer
	for left := int64(1); left > 0; left-- {
		kind, rest, err := readLine(br)
		if err != nil {
			return nil, inside(err, b.Len())
		}
		b.WriteByte(kind)
		b.WriteString(rest + "\r\n")
		inner, err := copyBody(&b, br, kind, rest)
		if err != nil {
			return nil, inside(err, b.Len())
		}
		left += inner
	}
	return b.Bytes(), nil
}

// copyBody copies what follows a value's first line and belongs to it alone, and
// returns how many values follow inside it.
func copyBody(b *bytes.Buffer, br *bufio.Reader, kind byte, rest string) (inner int64, err error) {
	switch kind {
	case '+', '-', ':', '_', '#', ',', '(':
		return 0, nil
	case '$', '!', '=', '*', '~', '>', '%', '|':
	default:
		return 0, fmt.Errorf("%w: a value of type %q", errProtocol, kind)
	}
	n, err := parseLength(rest)
	if err != nil || n < 0 {
		return 0, err
	}
	switch kind {
	case '*', '~', '>':
		return n, nil
	case '%':
		return 2 * n, nil
	case '|': // attributes precede the value they belong to
		return 2*n + 1, nil
	}
	_, err = io.CopyN(b, br, n+2)
	return 0, err
}

// inside tells an end between values from one within.
func inside(err error, read int) error {
	if err == io.EOF && read > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

// commandName returns the name in a command's frame, in upper case. Clients send
// commands as arrays of strings.
func commandName(frame []byte) (string, error) {
	parts := bytes.SplitN(frame, []byte("\r\n"), 4)
	if len(parts) < 4 || frame[0] != '*' || !bytes.HasPrefix(parts[1], []byte("$")) {
		return "", fmt.Errorf("%w: a command %.40q", errProtocol, frame)
	}
	return strings.ToUpper(string(parts[2])), nil
}
