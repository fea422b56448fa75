package adminapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// An inputError says what is wrong with a body, and where.
type inputError struct {
	at      int // the byte, from 0; -1 if it is nowhere
	problem string
}

func (e *inputError) Error() string {
	if e.at < 0 {
		return e.problem
	}
	return fmt.Sprintf("at byte %d: %s", e.at, e.problem)
}

// reader reads JSON of a known shape, token by token. It is stricter than encoding/json:
// names count as they are written and stand there once, text must be UTF-8, and a \u
// escape of half a surrogate pair is an error, since that would make different keys the
// same one.
type reader struct {
	text []byte
	dec  *json.Decoder
	at   int // where the last token began
}

// newReader returns a reader of one value. What is no JSON at all is found here, so that
// next always has a token.
func newReader(text []byte) (*reader, error) {
	if at := invalidUTF8(text); at >= 0 {
		return nil, &inputError{at, "this is not UTF-8"}
	}
	var any json.RawMessage
	if err := json.Unmarshal(text, &any); err != nil {
		return nil, syntaxError(text, err)
	}
	if at := halfPair(text); at >= 0 {
		return nil, &inputError{at, "this is half of a surrogate pair"}
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return &reader{text: text, dec: dec}, nil
}

func syntaxError(text []byte, err error) error {
	bad, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return &inputError{-1, "this is not JSON"}
	}
	if int(bad.Offset) >= len(text) && strings.HasPrefix(bad.Error(), "unexpected end") {
		return &inputError{len(text), "the JSON text ends early"}
	}
	return &inputError{int(bad.Offset) - 1, "this is not JSON: " + bad.Error()}
}

// invalidUTF8 returns where text is not UTF-8, -1 if it is.
func invalidUTF8(text []byte) int {
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size == 1 {
			return at
		}
		at += size
	}
	return -1
}

// halfPair returns where JSON has an escape of half a surrogate pair, -1 if nowhere.
func halfPair(text []byte) int {
	for at := 0; at < len(text); at++ {
		if text[at] != '\\' {
			continue
		}
		r, ok := escape(text[at:])
		switch {
		case !ok:
			at++ // \" and the like
		case !utf16.IsSurrogate(r):
			at += 5
		default:
			low, _ := escape(text[at+6:])
			if utf16.DecodeRune(r, low) == utf8.RuneError {
				return at
			}
			at += 11
		}
	}
	return -1
}

// escape returns the character of a \u escape, if text begins with one.
func escape(text []byte) (rune, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n), err == nil
}

// errorf complains about the last token.
func (r *reader) errorf(format string, args ...any) error {
	return &inputError{r.at, fmt.Sprintf(format, args...)}
}

// next returns the next token.
func (r *reader) next() json.Token {
	r.at = int(r.dec.InputOffset())
	for r.at < len(r.text) && strings.IndexByte(" \t\r\n,:", r.text[r.at]) >= 0 {
		r.at++
	}
	token, err := r.dec.Token()
	if err != nil { // newReader has seen the text
		panic(err)
	}
	return token
}

// kind names a token, for messages.
func kind(token json.Token) string {
	switch t := token.(type) {
	case json.Delim:
		if t == '[' {
			return "an array"
		}
		return "an object"
	case string:
		return "a string"
	case json.Number:
		return "a number"
	case bool:
		return "a boolean"
	}
	return "null"
}

// A form is a JSON object with known fields.
type form struct {
	what   string // for example "a reset"
	fields []string
}

// object reads an object, and calls value for each field. It returns which were there.
func (r *reader) object(f *form, value func(name string) error) (seen []string, err error) {
	if token := r.next(); token != json.Delim('{') {
		return nil, r.errorf("%s is a JSON object, not %s", f.what, kind(token))
	}
	for r.dec.More() {
		name, _ := r.next().(string)
		switch {
		case !slices.Contains(f.fields, name):
			return seen, r.errorf("unknown field %s%s; %s has %s", quote(name), f.hint(name), f.what, and(f.fields))
		case slices.Contains(seen, name):
			return seen, r.errorf("field %s stands there twice", quote(name))
		}
		seen = append(seen, name)
		if err := value(name); err != nil {
			return seen, err
		}
	}
	r.next()
	return seen, nil
}

// hint helps with a name that is right but for its letters' case.
func (f *form) hint(name string) string {
	if lower := strings.ToLower(name); slices.Contains(f.fields, lower) {
		return fmt.Sprintf(" (did you mean %q?)", lower)
	}
	return ""
}

// entries reads an object whose names the caller chooses, at most so many.
func (r *reader) entries(what string, most int, entry func(name string) error) error {
	if token := r.next(); token != json.Delim('{') {
		return r.errorf("%s is a JSON object, not %s", what, kind(token))
	}
	var seen []string
	for r.dec.More() {
		name, _ := r.next().(string)
		switch {
		case slices.Contains(seen, name):
			return r.errorf("%s has %s twice", what, quote(name))
		case len(seen) == most:
			return r.errorf("%s may have %d entries", what, most)
		}
		seen = append(seen, name)
		if err := entry(name); err != nil {
			return err
		}
	}
	r.next()
	return nil
}

// array reads an array, and calls item for each item.
func (r *reader) array(what string, item func(i int) error) error {
	if token := r.next(); token != json.Delim('[') {
		return r.errorf("%s is an array, not %s", what, kind(token))
	}
	for i := 0; r.dec.More(); i++ {
		if err := item(i); err != nil {
			return err
		}
	}
	r.next()
	return nil
}

// str reads a string of at most so many bytes.
func (r *reader) str(what string, most int) (string, error) {
	token := r.next()
	text, ok := token.(string)
	switch {
	case !ok:
		return "", r.errorf("%s must be a string, not %s", what, kind(token))
	case len(text) > most:
		return "", r.errorf("%s has %d bytes: at most %d fit", what, len(text), most)
	}
	return text, nil
}

// integer reads a whole number from 0 to most, in digits: 1.0 and 1e3 are numbers too, but
// parsers differ on whether they are integers.
func (r *reader) integer(what string, most int64) (int64, error) {
	token := r.next()
	number, ok := token.(json.Number)
	switch {
	case !ok:
		return 0, r.errorf("%s must be an integer, not %s", what, kind(token))
	case strings.HasPrefix(number.String(), "-"):
		return 0, r.errorf("%s must not be negative", what)
	case strings.ContainsAny(number.String(), ".eE"):
		return 0, r.errorf("%s must be an integer, written in digits", what)
	}
	n, err := number.Int64()
	if err != nil || n > most {
		return 0, r.errorf("%s must be at most %d", what, most)
	}
	return n, nil
}
