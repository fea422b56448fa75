package target

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// A reply is what Redis answered to one command: how large it was, and if it is an
// error, its text. Values are skipped.
type reply struct {
	size    int // on the wire
	isError bool
	text    string // of an error, bounded
}

// The bounds of a reply. Its size is bounded by maxAnswer.
const (
	maxDepth    = 8
	maxElements = 1 << 20 // of one array
	maxLine     = 16 << 10
	maxText     = 200
)

// newReplyReader returns a reader whose buffer is as large as a line may be.
func newReplyReader(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, maxLine) }

// A replyParser reads one reply of RESP2, or of RESP3 without attributes and pushes.
type replyParser struct {
	r    *bufio.Reader
	size int
}

// readReply reads one reply from a reader that newReplyReader made.
func readReply(r *bufio.Reader) (reply, error) {
	p := replyParser{r: r}
	out, err := p.value(0)
	out.size = p.size
	if err == io.EOF && p.size > 0 {
		err = io.ErrUnexpectedEOF
	}
	return out, err
}

// value reads a value: a type, its line, and what the line announces.
func (p *replyParser) value(depth int) (reply, error) {
	line, err := p.line()
	if err != nil {
		return reply{}, err
	}
	if len(line) == 0 {
		return reply{}, malformed("an empty line")
	}
	switch kind, rest := line[0], line[1:]; kind {
	case '-':
		return reply{isError: true, text: bounded(rest)}, nil
	case '+', ':', '_', '#', ',', '(':
		return reply{}, nil
	case '$', '=':
		return reply{}, p.bulk(rest)
	case '!':
		text, err := p.bulkError(rest)
		return reply{isError: true, text: text}, err
	case '*', '~':
		return reply{}, p.elements(rest, 1, depth)
	case '%':
		return reply{}, p.elements(rest, 2, depth)
	default:
		return reply{}, malformed(fmt.Sprintf("the type %q", kind))
	}
}

// malformed is the error for what Redis would not send.
func malformed(what string) error { return fmt.Errorf("%w: it has %s", errBadReply, what) }

// line reads up to the end of a line, and leaves that out.
func (p *replyParser) line() ([]byte, error) {
	line, err := p.r.ReadSlice('\n')
	p.size += len(line)
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, malformed("a line that is too long")
	case err != nil:
		return nil, err
	case p.size > maxAnswer:
		return nil, errTooLarge
	case len(line) < 2 || line[len(line)-2] != '\r':
		return nil, malformed("a line without \\r\\n")
	}
	return line[:len(line)-2], nil
}

// length reads the number of bytes or elements that follow; -1 is null.
func length(digits []byte) (int, error) {
	if string(digits) == "-1" {
		return -1, nil
	}
	n, err := strconv.ParseUint(string(digits), 10, 31)
	if err != nil {
		return 0, malformed(fmt.Sprintf("the length %.20q", digits))
	}
	return int(n), nil
}

// bulk skips a string of announced length.
func (p *replyParser) bulk(digits []byte) error {
	n, err := p.bulkLength(digits)
	if err != nil || n < 0 {
		return err
	}
	return p.skipBulk(n)
}

// bulkError is bulk, and returns how the string begins.
func (p *replyParser) bulkError(digits []byte) (string, error) {
	n, err := p.bulkLength(digits)
	if err != nil || n < 0 {
		return "", err
	}
	head, err := p.r.Peek(min(n, maxText))
	if err != nil {
		return "", err
	}
	text := string(head)
	return text, p.skipBulk(n)
}

func (p *replyParser) bulkLength(digits []byte) (int, error) {
	n, err := length(digits)
	if err == nil && n > maxAnswer-p.size-len("\r\n") {
		err = errTooLarge
	}
	return n, err
}

func (p *replyParser) skipBulk(n int) error {
	if err := p.skip(n); err != nil {
		return err
	}
	end, err := p.line()
	if err == nil && len(end) > 0 {
		err = malformed("a string that is longer than announced")
	}
	return err
}

func (p *replyParser) skip(n int) error {
	done, err := p.r.Discard(n)
	p.size += done
	return err
}

// elements reads so many values for each that the line announces.
func (p *replyParser) elements(digits []byte, each, depth int) error {
	n, err := length(digits)
	switch {
	case err != nil || n <= 0:
		return err
	case n > maxElements:
		return malformed(fmt.Sprintf("%d elements, more than %d", n, maxElements))
	case depth >= maxDepth:
		return malformed(fmt.Sprintf("arrays nested more than %d deep", maxDepth))
	}
	for range n * each {
		if _, err := p.value(depth + 1); err != nil {
			return err
		}
	}
	return nil
}

func bounded(text []byte) string { return string(text[:min(len(text), maxText)]) }

// code is the first word of an error, "WRONGTYPE", if it is such a word. What else
// a server may say there is not fit for counting.
func (r reply) code() string {
	end := 0
	for end < len(r.text) && isCodeByte(r.text[end]) {
		end++
	}
	if end == 0 || end > maxCode || end < len(r.text) && r.text[end] != ' ' {
		return "error reply"
	}
	return r.text[:end]
}

const maxCode = 24

func isCodeByte(c byte) bool { return c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' }

// result is what a caller reports about the reply.
func (r reply) result() Result {
	if r.isError {
		return Result{Code: r.code(), Bytes: r.size}
	}
	return Result{OK: true, Code: "reply", Bytes: r.size}
}
