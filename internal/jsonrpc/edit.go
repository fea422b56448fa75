package jsonrpc

import (
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// Value is a value of a message, for those who change some and leave everything else as it is written.
type Value struct {
	Raw      string // as it is written, "" if there is none
	Text     string // of a string, without quotes and escapes
	IsString bool
	Start    int // the byte of the body at which Raw begins
}

func valueOf(r gjson.Result) Value {
	return Value{Raw: strings.Clone(r.Raw), Text: strings.Clone(r.Str), IsString: r.Type == gjson.String, Start: r.Index}
}

// FirstParams returns the first parameter by position of each call of a body that Parse accepts.
func FirstParams(body []byte) []Value {
	var list []Value
	each(gjson.ParseBytes(body), func(call gjson.Result) {
		found, _ := pick(call, -1, "params")
		first := Value{}
		if params := found[0]; params.IsArray() {
			params.ForEach(func(_, value gjson.Result) bool {
				first = valueOf(value)
				return false
			})
		}
		list = append(list, first)
	})
	return list
}

// Response is a response of a server.
type Response struct {
	ID, Result Value
}

// Responses returns the responses of a body, several for a batch. It returns an *Error as Errors does.
func Responses(body []byte) ([]Response, error) {
	root, err := parse(body, MaxResponse)
	if err != nil {
		return nil, err
	}
	var list []Response
	var bad *Error
	each(root, func(response gjson.Result) {
		found, problem := pick(response, len(list), "id", "result")
		if bad == nil {
			bad = problem
		}
		list = append(list, Response{ID: valueOf(found[0]), Result: valueOf(found[1])})
	})
	if bad != nil {
		return nil, bad
	}
	return list, nil
}

// each calls a function for a message, or for each of a batch.
func each(root gjson.Result, do func(gjson.Result)) {
	if !root.IsArray() {
		do(root)
		return
	}
	root.ForEach(func(_, member gjson.Result) bool {
		do(member)
		return true
	})
}

// Members returns the members of a batch that Parse accepts.
func Members(batch []byte) []Value {
	var list []Value
	each(gjson.ParseBytes(batch), func(member gjson.Result) { list = append(list, valueOf(member)) })
	return list
}

// Append returns a batch of responses with more of them. An empty body has none. It returns false if the body is something
// else.
func Append(body []byte, more []string) ([]byte, bool) {
	text, added := strings.TrimSpace(string(body)), strings.Join(more, ",")
	begin, isBatch := strings.CutSuffix(text, "]")
	switch {
	case text == "":
		return []byte("[" + added + "]"), true
	case !isBatch || text[0] != '[':
		return body, false
	case strings.TrimSpace(begin) == "[":
		return []byte(begin + added + "]"), true
	}
	return []byte(begin + "," + added + "]"), true
}

// Edit is another text for a value.
type Edit struct {
	Value Value
	Text  string
}

// Apply returns a copy of a body with the edits made, which must be in the order of the body.
func Apply(body []byte, edits []Edit) []byte {
	size := len(body)
	for _, e := range edits {
		size += len(e.Text) - len(e.Value.Raw)
	}
	changed, from := slices.Grow([]byte(nil), size), 0
	for _, e := range edits {
		changed = append(append(changed, body[from:e.Value.Start]...), e.Text...)
		from = e.Value.Start + len(e.Value.Raw)
	}
	return append(changed, body[from:]...)
}
