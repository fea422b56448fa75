package httpapi

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// An inputError says what is wrong with a body, and where.
type inputError struct {
	offset  int // the byte, from 0; -1 if it is nowhere
	problem string
}

func (e *inputError) Error() string {
	if e.offset < 0 {
		return e.problem
	}
	return fmt.Sprintf("at byte %d: %s", e.offset, e.problem)
}

// scanner reads JSON (RFC 8259) piece by piece. It is stricter than
// encoding/json: text must be UTF-8, and a \u escape of half a surrogate pair is
// an error, since both would make different keys the same one. Every method but
// peek skips white space first.
type scanner struct {
	text []byte
	pos  int
}

func (s *scanner) errorf(format string, args ...any) error {
	return s.errorAt(s.pos, format, args...)
}

func (s *scanner) errorAt(pos int, format string, args ...any) error {
	return &inputError{pos, fmt.Sprintf(format, args...)}
}

func (s *scanner) space() {
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return
		}
	}
}

// peek returns the byte at hand, 0 at the end.
func (s *scanner) peek() byte {
	if s.pos < len(s.text) {
		return s.text[s.pos]
	}
	return 0
}

// accept moves past c if it is next.
func (s *scanner) accept(c byte) bool {
	s.space()
	if s.pos < len(s.text) && s.text[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

func (s *scanner) atEnd() bool {
	s.space()
	return s.pos == len(s.text)
}

// kind names what is next, for messages.
func (s *scanner) kind() string {
	s.space()
	switch c := s.peek(); {
	case s.pos == len(s.text):
		return "nothing"
	case c == '"':
		return "a string"
	case c == '{':
		return "an object"
	case c == '[':
		return "an array"
	case c == '-' || isDigit(c):
		return "a number"
	case bytes.HasPrefix(s.text[s.pos:], []byte("true")), bytes.HasPrefix(s.text[s.pos:], []byte("false")):
		return "a boolean"
	case bytes.HasPrefix(s.text[s.pos:], []byte("null")):
		return "null"
	}
	return "something else"
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// boolean reads true or false.
func (s *scanner) boolean(what string) (bool, error) {
	s.space()
	switch {
	case bytes.HasPrefix(s.text[s.pos:], []byte("true")):
		s.pos += len("true")
		return true, nil
	case bytes.HasPrefix(s.text[s.pos:], []byte("false")):
		s.pos += len("false")
		return false, nil
	}
	return false, s.errorf("%s must be true or false, not %s", what, s.kind())
}

// integer reads a whole number from 0 to most, in digits: 1.0 and 1e3 are
// numbers too, but parsers differ on whether they are integers.
func (s *scanner) integer(what string, most int64) (int64, error) {
	s.space()
	start := s.pos
	for isDigit(s.peek()) {
		s.pos++
	}
	digits := s.text[start:s.pos]
	next := s.peek()
	switch {
	case len(digits) == 0 && next != '-':
		return 0, s.errorf("%s must be an integer, not %s", what, s.kind())
	case len(digits) == 0:
		return 0, s.errorAt(start, "%s must not be negative", what)
	case next == '.' || next == 'e' || next == 'E':
		return 0, s.errorAt(start, "%s must be an integer, written in digits", what)
	case len(digits) > 1 && digits[0] == '0':
		return 0, s.errorAt(start, "%s must not begin with 0", what)
	}
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil || n > most {
		return 0, s.errorAt(start, "%s must be at most %d", what, most)
	}
	return n, nil
}

// str reads a string. The result points into the text if it has no escapes.
func (s *scanner) str(what string) ([]byte, error) {
	if !s.accept('"') {
		return nil, s.errorf("%s must be a string, not %s", what, s.kind())
	}
	start := s.pos
	for s.pos < len(s.text) {
		switch c := s.text[s.pos]; {
		case c == '"':
			s.pos++
			return s.text[start : s.pos-1], nil
		case c == '\\':
			return s.unescape(what, bytes.Clone(s.text[start:s.pos]))
		default:
			if err := s.char(what); err != nil {
				return nil, err
			}
		}
	}
	return nil, s.errorf("the text ends inside %s", what)
}

// char moves past one character that stands for itself.
func (s *scanner) char(what string) error {
	c := s.text[s.pos]
	if c < ' ' {
		return s.errorf("%s has a control character: write it as \\u%04x", what, c)
	}
	r, size := utf8.DecodeRune(s.text[s.pos:])
	if r == utf8.RuneError && size == 1 {
		return s.errorf("%s is not UTF-8", what)
	}
	s.pos += size
	return nil
}

// unescape reads the rest of a string, from its first escape on, after head.
func (s *scanner) unescape(what string, head []byte) ([]byte, error) {
	for s.pos < len(s.text) {
		start := s.pos
		switch s.text[s.pos] {
		case '"':
			s.pos++
			return head, nil
		case '\\':
			r, err := s.escape(what)
			if err != nil {
				return nil, err
			}
			head = utf8.AppendRune(head, r)
		default:
			if err := s.char(what); err != nil {
				return nil, err
			}
			head = append(head, s.text[start:s.pos]...)
		}
	}
	return nil, s.errorf("the text ends inside %s", what)
}

// escapes are the characters that stand for another after a backslash.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape reads a backslash and what belongs to it.
func (s *scanner) escape(what string) (rune, error) {
	start := s.pos
	s.pos++ // the backslash
	if c := escapes[s.peek()]; c != 0 {
		s.pos++
		return rune(c), nil
	}
	s.pos = start
	r, ok := s.unicode()
	if !ok {
		return 0, s.errorAt(start, "%s has a backslash that begins no escape", what)
	}
	if !utf16.IsSurrogate(r) {
		return r, nil
	}
	low, _ := s.unicode()
	if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
		return 0, s.errorAt(start, "%s has half of a surrogate pair", what)
	}
	return r, nil
}

// unicode reads \u and four digits, if they are next.
func (s *scanner) unicode() (rune, bool) {
	if len(s.text)-s.pos < 6 || s.text[s.pos] != '\\' || s.text[s.pos+1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(s.text[s.pos+2:s.pos+6]), 16, 16)
	if err != nil {
		return 0, false
	}
	s.pos += 6
	return rune(n), true
}
