// Package strictjson reads JSON (RFC 8259) of a known shape, for the bodies of requests.
//
//	r := strictjson.New(body)
//	seen, err := r.Object(&form, func(name string) error { … r.Integer(…) … })
//	if err == nil { err = r.End() }
//
// A text means one thing or is refused: unknown fields, fields twice, text after the value and broken
// Unicode are errors that say where. It is stricter than encoding/json: names count as they are
// written, text must be UTF-8, and a \u escape of half a surrogate pair is an error, since both would
// make different keys the same one. Numbers are integers in digits.
//
// It is on the path of every request, so it uses no reflection and allocates only strings with
// escapes and errors. Use encoding/json for anything that is not a request.
package strictjson

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Nowhere is the offset of an error that belongs to no byte, such as a missing field.
const Nowhere = -1

// Error says what is wrong with a text, and where. All errors of a Reader are of this type.
type Error struct {
	Offset  int // the byte, from 0, or Nowhere
	Problem string
}

func (e *Error) Error() string {
	if e.Offset == Nowhere {
		return e.Problem
	}
	return fmt.Sprintf("at byte %d: %s", e.Offset, e.Problem)
}

// Errorf returns an Error.
func Errorf(offset int, format string, args ...any) error {
	return &Error{offset, fmt.Sprintf(format, args...)}
}

// Reader reads a text piece by piece. Make one with New. All methods skip white space first. Their
// argument what names the value in errors, for example `"key"`.
type Reader struct {
	text []byte
	pos  int
}

// New returns a reader of text, which it does not change.
func New(text []byte) *Reader { return &Reader{text: text} }

// Offset returns where the next value begins, for Errorf.
func (r *Reader) Offset() int {
	r.space()
	return r.pos
}

// Peek returns the first byte of what is next, 0 at the end.
func (r *Reader) Peek() byte {
	r.space()
	return r.peek()
}

// End returns an error unless the whole text was read.
func (r *Reader) End() error {
	if r.Offset() < len(r.text) {
		return r.errorf("nothing may follow the object")
	}
	return nil
}

func (r *Reader) errorf(format string, args ...any) error { return Errorf(r.pos, format, args...) }

func (r *Reader) space() {
	for r.pos < len(r.text) {
		switch r.text[r.pos] {
		case ' ', '\t', '\r', '\n':
			r.pos++
		default:
			return
		}
	}
}

// peek returns the byte at hand, 0 at the end.
func (r *Reader) peek() byte {
	if r.pos < len(r.text) {
		return r.text[r.pos]
	}
	return 0
}

// accept moves past c if it is next.
func (r *Reader) accept(c byte) bool {
	r.space()
	if r.pos < len(r.text) && r.text[r.pos] == c {
		r.pos++
		return true
	}
	return false
}

// kind names what is next, for messages.
func (r *Reader) kind() string {
	r.space()
	switch c := r.peek(); {
	case r.pos == len(r.text):
		return "nothing"
	case c == '"':
		return "a string"
	case c == '{':
		return "an object"
	case c == '[':
		return "an array"
	case c == '-' || isDigit(c):
		return "a number"
	case bytes.HasPrefix(r.text[r.pos:], []byte("true")), bytes.HasPrefix(r.text[r.pos:], []byte("false")):
		return "a boolean"
	case bytes.HasPrefix(r.text[r.pos:], []byte("null")):
		return "null"
	}
	return "something else"
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// Boolean reads true or false.
func (r *Reader) Boolean(what string) (bool, error) {
	r.space()
	switch {
	case bytes.HasPrefix(r.text[r.pos:], []byte("true")):
		r.pos += len("true")
		return true, nil
	case bytes.HasPrefix(r.text[r.pos:], []byte("false")):
		r.pos += len("false")
		return false, nil
	}
	return false, r.errorf("%s must be true or false, not %s", what, r.kind())
}

// Integer reads a whole number from 0 to most, in digits: 1.0 and 1e3 are
// numbers too, but parsers differ on whether they are integers.
func (r *Reader) Integer(what string, most int64) (int64, error) {
	r.space()
	start := r.pos
	for isDigit(r.peek()) {
		r.pos++
	}
	digits := r.text[start:r.pos]
	next := r.peek()
	switch {
	case len(digits) == 0 && next != '-':
		return 0, r.errorf("%s must be an integer, not %s", what, r.kind())
	case len(digits) == 0:
		return 0, Errorf(start, "%s must not be negative", what)
	case next == '.' || next == 'e' || next == 'E':
		return 0, Errorf(start, "%s must be an integer, written in digits", what)
	case len(digits) > 1 && digits[0] == '0':
		return 0, Errorf(start, "%s must not begin with 0", what)
	}
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil || n > most {
		return 0, Errorf(start, "%s must be at most %d", what, most)
	}
	return n, nil
}

// Text reads a string of at most so many bytes.
func (r *Reader) Text(what string, most int) (string, error) {
	start := r.Offset()
	text, err := r.Bytes(what)
	if err == nil && len(text) > most {
		err = Errorf(start, "%s has %d bytes: at most %d fit", what, len(text), most)
	}
	return string(text), err
}

// Bytes reads a string. The result points into the text if it has no escapes.
func (r *Reader) Bytes(what string) ([]byte, error) {
	if !r.accept('"') {
		return nil, r.errorf("%s must be a string, not %s", what, r.kind())
	}
	var head []byte // the string up to start, if it has escapes
	start := r.pos
	for r.pos < len(r.text) {
		switch r.text[r.pos] {
		case '"':
			rest := r.text[start:r.pos]
			r.pos++
			if head == nil {
				return rest, nil
			}
			return append(head, rest...), nil
		case '\\':
			head = append(head, r.text[start:r.pos]...)
			char, err := r.escape(what)
			if err != nil {
				return nil, err
			}
			head, start = utf8.AppendRune(head, char), r.pos
		default:
			if err := r.char(what); err != nil {
				return nil, err
			}
		}
	}
	return nil, r.errorf("the text ends inside %s", what)
}

// char moves past one character that stands for itself.
func (r *Reader) char(what string) error {
	c := r.text[r.pos]
	if c < ' ' {
		return r.errorf("%s has a control character: write it as \\u%04x", what, c)
	}
	char, size := utf8.DecodeRune(r.text[r.pos:])
	if char == utf8.RuneError && size == 1 {
		return r.errorf("%s is not UTF-8", what)
	}
	r.pos += size
	return nil
}

// escapes are the characters that stand for another after a backslash.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape reads a backslash and what belongs to it.
func (r *Reader) escape(what string) (rune, error) {
	start := r.pos
	r.pos++ // the backslash
	if c := escapes[r.peek()]; c != 0 {
		r.pos++
		return rune(c), nil
	}
	r.pos = start
	char, ok := r.unicode()
	if !ok {
		return 0, Errorf(start, "%s has a backslash that begins no escape", what)
	}
	if !utf16.IsSurrogate(char) {
		return char, nil
	}
	low, _ := r.unicode()
	if char = utf16.DecodeRune(char, low); char == utf8.RuneError {
		return 0, Errorf(start, "%s has half of a surrogate pair", what)
	}
	return char, nil
}

// unicode reads \u and four digits, if they are next.
func (r *Reader) unicode() (rune, bool) {
	if len(r.text)-r.pos < 6 || r.text[r.pos] != '\\' || r.text[r.pos+1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(r.text[r.pos+2:r.pos+6]), 16, 16)
	if err != nil {
		return 0, false
	}
	r.pos += 6
	return rune(n), true
}
