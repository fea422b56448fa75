package resp

import (
	"bytes"
	"encoding/binary"
	"io"
)

// Limits bound what a Reader takes. The zero value of a field is its default.
type Limits struct {
	Args    int // of one command. The default is 64.
	Bulk    int // bytes of one argument. The default is 64 KiB.
	Inline  int // bytes of a command that is one line. The default is 64 KiB.
	Command int // bytes of a whole command, its lengths included. The default is 128 KiB.
}

func (l Limits) normal() Limits {
	for _, f := range []struct {
		field *int
		value int
	}{{&l.Args, 64}, {&l.Bulk, 64 << 10}, {&l.Inline, 64 << 10}, {&l.Command, 128 << 10}} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	return l
}

// ProtocolError says how the input breaks the protocol.
type ProtocolError struct{ Problem string }

func (e *ProtocolError) Error() string { return "Protocol error: " + e.Problem }

// Reader takes commands out of a stream. It is not safe for concurrent use.
//
// Of the command that is being received it remembers how far it came, so that input in
// small pieces costs no more than input in one:
//
//	buf: | used up | arguments found | not looked at | free |
//	               ^start            ^at             ^end
type Reader struct {
	src    io.Reader // set by NewReader, like the next
	limits Limits

	buf            []byte
	start, at, end int
	scanned        int // of the bytes after at, so many have no line end in them
	missing        int // arguments of a multibulk command that are to come; 0 = its first line is
	size           int // of the bulk that is to come; -1 = its line is
	spans          []span
	args           [][]byte
	full           bool  // the last read left no room
	err            error // sticky
}

// A span is where an argument is, counted from Reader.start: the buffer may move.
type span struct{ from, to int }

const (
	firstBuffer = 4 << 10
	keepBuffer  = 32 << 10 // a buffer that grew beyond for one command is given back after it
	maxLength   = 32       // bytes of a line with a length
)

// NewReader returns a Reader of what src delivers.
func NewReader(src io.Reader, limits Limits) *Reader {
	return &Reader{src: src, limits: limits.normal(), size: -1}
}

// SetLimits changes the limits, also for the rest of the command that is being received.
func (r *Reader) SetLimits(limits Limits) { r.limits = limits.normal() }

// Read returns the next command, at least one argument. They are valid until the next
// Read. The error is a *ProtocolError or what the source returned; io.ErrUnexpectedEOF
// if the stream ended inside a command.
func (r *Reader) Read() ([][]byte, error) {
	for {
		args, err := r.Next()
		if err != nil || args != nil {
			return args, err
		}
		if err := r.Fill(); err != nil {
			return nil, err
		}
	}
}

// Next returns the next command that was received whole, nil if there is none yet. Its
// arguments are valid until the next Fill, but the slice of them only until the next
// Next. It never reads.
func (r *Reader) Next() ([][]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	args, err := r.next()
	if err != nil {
		r.err = err
	}
	return args, err
}

// Partial says whether some of a command was received, but, as Next has found, not all.
func (r *Reader) Partial() bool { return r.start < r.end }

// Fill reads once from the source. An error of the source is returned as it is, so that
// after a time-out it may be called again.
func (r *Reader) Fill() error {
	if r.err != nil {
		return r.err
	}
	r.makeRoom()
	n, err := r.src.Read(r.buf[r.end:])
	if n < 0 || n > len(r.buf)-r.end {
		panic("resp: the source returned an impossible count")
	}
	r.end += n
	r.full = r.end == len(r.buf)
	if n > 0 {
		return nil // what err is, the next Read will say
	}
	if err == io.EOF && r.Partial() {
		return io.ErrUnexpectedEOF
	}
	return err
}

// makeRoom sees to free bytes at the end of the buffer. A command never fills more than
// Limits.Command, so neither does the buffer, but for what was read along with it.
func (r *Reader) makeRoom() {
	have := r.end - r.start
	size := len(r.buf)
	switch {
	case size == 0, have == 0 && size > keepBuffer:
		size = firstBuffer
	case have == size, r.full && size < keepBuffer: // more is on its way
		size *= 2
	}
	from := r.buf[r.start:r.end]
	if size != len(r.buf) {
		r.buf = make([]byte, size)
	} else if have > 0 && (r.start == 0 || r.end < len(r.buf)-minRead) {
		return // there is room behind
	}
	copy(r.buf, from)
	r.at -= r.start
	r.start, r.end = 0, have
}

// minRead is how much room is enough not to move what the buffer has.
const minRead = 512

// next takes a command out of the buffer.
func (r *Reader) next() ([][]byte, error) {
	for {
		if r.missing > 0 {
			return r.bulks()
		}
		if r.at = r.start; r.start == r.end {
			return nil, nil
		}
		if args := r.whole(); args != nil {
			return args, nil
		}
		if r.buf[r.start] != '*' {
			if args, more, err := r.inline(); !more {
				return args, err
			}
			continue
		}
		n, ok, err := r.length("mbulk count string", "invalid multibulk length", r.limits.Args)
		if !ok {
			return nil, err
		}
		if r.missing = n; n == 0 { // nothing was asked, so nothing is answered
			r.start = r.at
		}
	}
}

// whole takes a multibulk command that is all there and has short arguments, as nearly all
// have, without notes of how far it came. It returns nil if it is not like that, and has
// changed nothing.
func (r *Reader) whole() [][]byte {
	b := r.buf[:r.end]
	n, at := shortLength(b, r.start, '*')
	if n < 1 || n > r.limits.Args {
		return nil
	}
	args := r.args[:0]
	for range n {
		size, from := shortLength(b, at, '$')
		to := from + size
		if size < 0 || size > r.limits.Bulk || to+2 > len(b) || b[to] != '\r' || b[to+1] != '\n' {
			return nil
		}
		args = append(args, b[from:to:to])
		at = to + 2
	}
	if at-r.start > r.limits.Command {
		return nil
	}
	r.args, r.start, r.at, r.scanned = args, at, at, 0
	return args
}

// shortLength returns the number of a line that begins at a place with a letter and has one
// or two digits, and where the next begins; -1 if there is no such line. It looks at four
// bytes at once, all but the digits of which must be as they are in every such line.
func shortLength(b []byte, at int, letter byte) (n, next int) {
	if len(b)-at < 5 {
		return -1, 0
	}
	line := b[at : at+5 : at+5]
	four := binary.LittleEndian.Uint32(line) ^ uint32(letter) // which leaves 0 of the letter
	one := four ^ ('0'<<8 | '\r'<<16 | '\n'<<24)
	if digit := one >> 8; one&0xff == 0 && digit <= 9 {
		return int(digit), at + 4
	}
	two := four ^ ('0'<<8 | '0'<<16 | '\r'<<24)
	tens, ones := two>>8&0xff, two>>16
	if two&0xff == 0 && tens-1 <= 8 && ones <= 9 && line[4] == '\n' {
		return int(10*tens + ones), at + 5
	}
	return -1, 0
}

// bulks takes the arguments of a multibulk command.
func (r *Reader) bulks() ([][]byte, error) {
	for r.missing > 0 {
		if r.size < 0 {
			if r.at < r.end && r.buf[r.at] != '$' {
				return nil, &ProtocolError{"expected '$', got '" + printable(r.buf[r.at]) + "'"}
			}
			n, ok, err := r.length("bulk count string", "invalid bulk length", r.limits.Bulk)
			if !ok {
				return nil, err
			}
			if r.at-r.start+n+2 > r.limits.Command {
				return nil, &ProtocolError{"too big command"}
			}
			r.size = n
		}
		if r.end-r.at < r.size+2 {
			return nil, nil
		}
		to := r.at + r.size
		if r.buf[to] != '\r' || r.buf[to+1] != '\n' {
			return nil, &ProtocolError{"expected CRLF after a bulk"}
		}
		r.spans = append(r.spans, span{r.at - r.start, to - r.start})
		r.at, r.size = to+2, -1
		r.missing--
	}
	return r.take(), nil
}

// take returns the arguments that were found, and goes on to the next command.
func (r *Reader) take() [][]byte {
	r.args = r.args[:0]
	for _, s := range r.spans {
		from, to := r.start+s.from, r.start+s.to
		r.args = append(r.args, r.buf[from:to:to])
	}
	r.spans = r.spans[:0]
	r.start = r.at
	return r.args
}

// length reads a line with a length: a letter, at most so many, CR LF. It returns false if
// the line is not there yet.
func (r *Reader) length(what, invalid string, most int) (int, bool, error) {
	line := r.buf[r.at+min(r.scanned, r.end-r.at) : r.end]
	i := bytes.IndexByte(line, '\n')
	if i < 0 {
		if r.scanned = r.end - r.at; r.scanned > maxLength {
			return 0, false, &ProtocolError{"too big " + what}
		}
		return 0, false, nil
	}
	line = r.buf[r.at : r.at+r.scanned+i]
	if len(line) > maxLength {
		return 0, false, &ProtocolError{"too big " + what}
	}
	n, ok := parseLength(line[1:], most)
	if !ok {
		return 0, false, &ProtocolError{invalid}
	}
	r.at += len(line) + 1
	r.scanned = 0
	return n, true, nil
}

// parseLength returns the number of a line without its letter and line feed, if it is one
// between 0 and most, written in the one way there is.
func parseLength(line []byte, most int) (n int, ok bool) {
	digits := line[:max(0, len(line)-1)]
	if len(digits) == 0 || line[len(digits)] != '\r' || len(digits) > 9 || digits[0] == '0' && len(digits) > 1 {
		return 0, false
	}
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = 10*n + int(d-'0')
	}
	return n, n <= most
}

// printable returns a byte as it may stand in an error.
func printable(b byte) string {
	if b < ' ' || b > '~' {
		return "?"
	}
	return string(rune(b))
}
