package budget

import (
	"encoding/base64"
	"strconv"
	"strings"
)

// item is a member of a structured field (RFC 9651) that is a list of strings or tokens, such as
// "burst";q=100;w=60.
type item struct {
	name   string
	params map[string]any // int64, or string for strings and tokens, or nil for values nobody needs
}

// parseList reads a list. It returns false if any of it is malformed, or a member is neither a string nor a
// token: then the whole field does not count.
func parseList(text string) ([]item, bool) {
	r := fieldReader{rest: strings.Trim(text, " ")}
	var list []item
	for {
		it, ok := r.item()
		if !ok {
			return nil, false
		}
		list = append(list, it)
		if r.space(); r.rest == "" {
			return list, true
		}
		if !r.accept(',') {
			return nil, false
		}
		r.space()
	}
}

// fieldReader reads a field from left to right.
type fieldReader struct{ rest string }

func (r *fieldReader) accept(c byte) bool {
	if r.rest == "" || r.rest[0] != c {
		return false
	}
	r.rest = r.rest[1:]
	return true
}

// take reads the bytes that belong to a set.
func (r *fieldReader) take(belongs func(c byte) bool) string {
	n := 0
	for n < len(r.rest) && belongs(r.rest[n]) {
		n++
	}
	text := r.rest[:n]
	r.rest = r.rest[n:]
	return text
}

func (r *fieldReader) space() {
	r.take(func(c byte) bool { return c == ' ' || c == '\t' })
}

func (r *fieldReader) item() (item, bool) {
	v, ok := r.value()
	name, isText := v.(string)
	if !ok || !isText {
		return item{}, false
	}
	it := item{name: name, params: make(map[string]any)}
	for r.accept(';') {
		r.take(func(c byte) bool { return c == ' ' })
		key, ok := r.key()
		if !ok {
			return item{}, false
		}
		var value any // without a value it is true
		if r.accept('=') {
			if value, ok = r.value(); !ok {
				return item{}, false
			}
		}
		it.params[key] = value // the last of several counts
	}
	return it, true
}

func (r *fieldReader) key() (string, bool) {
	if r.rest == "" || !isLower(r.rest[0]) && r.rest[0] != '*' {
		return "", false
	}
	return r.take(func(c byte) bool { return isLower(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0 }), true
}

// value reads a value of any type.
func (r *fieldReader) value() (any, bool) {
	if r.rest == "" {
		return nil, false
	}
	switch c := r.rest[0]; {
	case c == '"':
		return r.text()
	case c == '-' || isDigit(c):
		return r.number()
	case isLetter(c) || c == '*':
		return r.take(isTokenByte), true
	case c == ':':
		return nil, r.bytes()
	case c == '?':
		r.rest = r.rest[1:]
		return nil, r.accept('0') || r.accept('1')
	case c == '@':
		r.rest = r.rest[1:]
		v, ok := r.number()
		_, whole := v.(int64)
		return nil, ok && whole
	case c == '%':
		return nil, r.displayText()
	}
	return nil, false
}

// text reads a string in quotes: printable ASCII, in which \ comes before a quote or another \.
func (r *fieldReader) text() (any, bool) {
	var b strings.Builder
	for i := 1; i < len(r.rest); i++ {
		switch c := r.rest[i]; {
		case c == '"':
			r.rest = r.rest[i+1:]
			return b.String(), true
		case c < ' ' || c > '~':
			return nil, false
		case c == '\\':
			i++
			if i == len(r.rest) || r.rest[i] != '"' && r.rest[i] != '\\' {
				return nil, false
			}
			b.WriteByte(r.rest[i])
		default:
			b.WriteByte(c)
		}
	}
	return nil, false
}

// number reads an integer of at most 15 digits, or a decimal of at most 12 and 3, for which it returns nil.
func (r *fieldReader) number() (any, bool) {
	sign := ""
	if r.accept('-') {
		sign = "-"
	}
	digits := r.take(isDigit)
	if !r.accept('.') {
		if digits == "" || len(digits) > 15 {
			return nil, false
		}
		n, err := strconv.ParseInt(sign+digits, 10, 64)
		return n, err == nil
	}
	fraction := r.take(isDigit)
	return nil, digits != "" && len(digits) <= 12 && fraction != "" && len(fraction) <= 3
}

// bytes skips a byte sequence, :base64:.
func (r *fieldReader) bytes() bool {
	text, rest, ok := strings.Cut(r.rest[1:], ":")
	if !ok {
		return false
	}
	r.rest = rest
	_, err := base64.StdEncoding.DecodeString(text)
	return err == nil
}

// displayText skips a display string, %"…".
func (r *fieldReader) displayText() bool {
	text, rest, ok := strings.Cut(strings.TrimPrefix(r.rest, `%"`), `"`)
	if !ok || !strings.HasPrefix(r.rest, `%"`) {
		return false
	}
	r.rest = rest
	return strings.IndexFunc(text, func(c rune) bool { return c < ' ' || c > '~' }) < 0
}

func isLower(c byte) bool  { return c >= 'a' && c <= 'z' }
func isLetter(c byte) bool { return isLower(c) || c >= 'A' && c <= 'Z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

func isTokenByte(c byte) bool {
	return isLetter(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}
