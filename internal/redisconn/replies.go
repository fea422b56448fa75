package redisconn

import (
	"bytes"
	"fmt"
	"net"
)

// rueidis allocates the announced size of a reply before it has received any of it:
// "*2147483647" is 80 GiB. A broken server, or a proxy that is not Redis, could so crash every
// process that is connected to it. The bounds below leave room for all replies to weir's commands:
//
//   - scripts return some hundred numbers, records of policies and overrides are some
//     kilobytes each, and there are 10,000 overrides at most, two elements each;
//   - messages between nodes are 64 KiB at most, and INFO is some kilobytes;
//   - CLUSTER SLOTS of 16,384 slots that are each a range of their own has 15 elements for
//     each range, if it has one replica.
//
// What a reply may cost is 40 bytes for each element, and 10 MiB for all, besides its bytes.
const (
	maxBulk     = 1 << 20  // bytes of one string
	maxLine     = 64 << 10 // bytes of one line, such as an error
	maxElements = 1 << 18  // of one reply, those of nested arrays and maps included
	maxReply    = 16 << 20 // bytes of one reply
	maxDepth    = 16       // of nested arrays and maps; CLUSTER SLOTS and HELLO have four
)

// A ReplyError says that a server has sent a reply that is not valid for any command of weir.
// The connection is closed then.
type ReplyError struct{ problem string }

func (e *ReplyError) Error() string { return "redisconn: refused reply: " + e.problem }

func refuse(format string, args ...any) error { return &ReplyError{fmt.Sprintf(format, args...)} }

// guardedConn refuses replies that exceed the bounds. What came before is still read.
type guardedConn struct {
	net.Conn
	replies replyScanner
	refused error // set when a reply was refused; like replies, only Read uses it
}

func (c *guardedConn) Read(b []byte) (int, error) {
	if c.refused != nil {
		return 0, c.refused
	}
	n, err := c.Conn.Read(b)
	var good int
	if good, c.refused = c.replies.scan(b[:n]); c.refused == nil {
		return n, err
	}
	if good == 0 {
		return 0, c.refused
	}
	return good, nil
}

// replyScanner follows a stream of replies, however it is cut into pieces, without keeping any
// of it. It knows all types of RESP2 and RESP3 except those of unknown length ($? and *?), which
// Redis does not send. Its zero value is at the beginning of a stream.
type replyScanner struct {
	state    scanState
	kind     byte // of the element that is being read
	last     byte // of a line: the byte before
	negative bool // of a length
	digits   int  // of a length
	n        int  // the length so far; in text and line, the bytes of it that have not come, and that have

	depth    int           // of arrays and maps that are not complete
	left     [maxDepth]int // elements that each of them lacks
	elements int           // of the reply so far, announced ones included
	size     int           // bytes of the reply so far
}

type scanState uint8

const (
	inKind   scanState = iota // the next byte is a type
	inLine                    // of a type that is one line
	inLength                  // of a string, an array or a map
	inText                    // of a string, with CRLF
)

// scan returns how many bytes of b do not exceed the bounds, and why the next one does. After an
// error the scanner must not be used.
func (s *replyScanner) scan(b []byte) (good int, err error) {
	for i := 0; i < len(b); {
		var n int
		switch s.state {
		case inKind:
			if n = s.integers(b[i:]); n == 0 {
				n, err = 1, s.begin(b[i])
			}
		case inLine:
			n, err = s.line(b[i:])
		case inLength:
			n, err = 1, s.length(b[i])
		case inText:
			n, err = s.text(b[i:])
		}
		if err != nil {
			return i + n - 1, err // the last of them is the one that is wrong
		}
		i += n
	}
	return len(b), nil
}

// maxNumber is how long a line with a number is, type and CRLF included: ":-9223372036854775808".
const maxNumber = 1 + 20 + 2

// integers skips integers, except an array's last element. It is a fast path: replies of scripts
// are mostly integers.
func (s *replyScanner) integers(b []byte) (n int) {
	if s.depth == 0 {
		return 0
	}
	left := s.left[s.depth-1]
	b = b[:min(len(b), maxReply-s.size)]
	for left > 1 && n < len(b) && b[n] == ':' {
		end := bytes.IndexByte(b[n:min(len(b), n+maxNumber)], '\n')
		if end < 1 || b[n+end-1] != '\r' {
			break
		}
		n += end + 1
		left--
	}
	s.left[s.depth-1] = left
	s.size += n
	return n
}

// begin reads a type.
func (s *replyScanner) begin(kind byte) error {
	switch kind {
	case ':', '+', '-', ',', '(', '_', '#':
		s.state = inLine
	case '$', '!', '=', '*', '~', '>', '%', '|':
		s.state = inLength
	default:
		return refuse("received unknown message type: %q", kind)
	}
	s.kind, s.last, s.n, s.digits, s.negative = kind, 0, 0, 0, false
	return s.add(1)
}

// add counts bytes of a reply.
func (s *replyScanner) add(n int) error {
	if s.size += n; s.size > maxReply {
		return refuse("it is longer than %d bytes", maxReply)
	}
	return nil
}

// line reads some of a line. It returns how much, and if that is too much, the last byte is what is.
func (s *replyScanner) line(b []byte) (n int, err error) {
	if room := maxLine + 1 - s.n; len(b) > room {
		b = b[:room]
	}
	end := bytes.IndexByte(b, '\n')
	n = end + 1
	if end < 0 {
		n = len(b)
	}
	s.n += n
	if s.n > maxLine {
		return n, refuse("a line is longer than %d bytes", maxLine)
	}
	if err := s.add(n); err != nil {
		return n, err
	}
	if end > 0 {
		s.last = b[end-1]
	}
	if end < 0 {
		s.last = b[n-1]
		return n, nil
	}
	if s.last != '\r' {
		return n, refuse("a line does not end with CRLF")
	}
	if want := fixedLine(s.kind); want != 0 && s.n != want {
		return n, refuse("a value of type %q has %d bytes", s.kind, s.n)
	}
	s.end()
	return n, nil
}

// fixedLine returns how long the lines of a type are, 0 if they differ. rueidis does not look for
// the ends of these.
func fixedLine(kind byte) int {
	switch kind {
	case '_':
		return len("\r\n")
	case '#':
		return len("t\r\n")
	}
	return 0
}

// length reads a byte of a length.
func (s *replyScanner) length(c byte) error {
	switch {
	case s.last == '\r' && c == '\n':
		return s.measured()
	case s.last == '\r':
		return refuse("a length does not end with CRLF")
	case c == '\r' && s.digits > 0:
	case c == '-' && s.last == 0:
		s.negative = true
	case c >= '0' && c <= '9' && s.digits < maxDigits:
		s.n, s.digits = 10*s.n+int(c-'0'), s.digits+1
	case c >= '0' && c <= '9':
		return refuse("the length of a value of type %q has more than %d digits", s.kind, maxDigits)
	default:
		return refuse("the length of a value of type %q has a %q in it", s.kind, c)
	}
	s.last = c
	return s.add(1)
}

// maxDigits is more than the bounds have, and fits an int.
const maxDigits = 15

// measured goes on after a length.
func (s *replyScanner) measured() error {
	switch {
	case s.negative && s.n == 1 && (s.kind == '$' || s.kind == '*'): // null
		s.end()
		return nil
	case s.negative:
		return refuse("the length of a value of type %q is -%d", s.kind, s.n)
	}
	switch s.kind {
	case '$', '!', '=':
		return s.beginText()
	}
	return s.beginElements()
}

func (s *replyScanner) beginText() error {
	if s.n > maxBulk {
		return refuse("it announces a string of %d bytes, more than %d", s.n, maxBulk)
	}
	s.n += len("\r\n")
	s.state = inText
	return s.add(1 + s.n)
}

func (s *replyScanner) beginElements() error {
	if s.n > maxElements {
		return refuse("it announces %d elements, more than %d", s.n, maxElements)
	}
	n := s.n
	if s.kind == '%' || s.kind == '|' {
		n *= 2
	}
	if s.elements += n; s.elements > maxElements {
		return refuse("it announces %d elements in all, more than %d", s.elements, maxElements)
	}
	if s.depth == maxDepth {
		return refuse("arrays are nested deeper than %d", maxDepth)
	}
	if s.kind == '|' {
		n++ // the value that has these attributes takes its place
	}
	if n == 0 {
		s.end()
		return nil
	}
	s.left[s.depth] = n
	s.depth++
	s.state = inKind
	return s.add(1)
}

// text skips a string, which is why most bytes are not looked at.
func (s *replyScanner) text(b []byte) (n int, err error) {
	if s.n > 2 {
		n = min(s.n-2, len(b))
		s.n -= n
		return n, nil
	}
	if b[0] != "\r\n"[2-s.n] {
		return 1, refuse("a string does not end with CRLF")
	}
	if s.n--; s.n == 0 {
		s.end()
	}
	return 1, nil
}

// end notes that an element is complete, and perhaps those that it is the last of.
func (s *replyScanner) end() {
	s.state = inKind
	for s.depth > 0 {
		if s.left[s.depth-1]--; s.left[s.depth-1] > 0 {
			return
		}
		s.depth--
	}
	s.elements, s.size = 0, 0
}
