// Package jsonrpc reads JSON-RPC 2.0 messages as far as somebody between client and server has to:
// which methods a request calls, and which errors a response has.
//
//	req, err := jsonrpc.Parse(body)
//	for _, call := range req.Calls { … call.Method … }
//
// Who counts the cost of a request and who executes it must read the same methods in it. JSON readers
// disagree about an object with two members of one name, and some match names whatever their case. So a
// request that could be read in two ways is refused. What does not change the meaning is left to the
// server: the version and the parameters are not checked.
package jsonrpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// The bounds of a message. A longer or deeper one is refused.
const (
	MaxBatch    = 100      // calls in a batch
	MaxRequest  = 5 << 20  // bytes of a request
	MaxResponse = 32 << 20 // bytes of a response
	MaxDepth    = 100      // objects and arrays inside each other
	MaxMethod   = 256      // bytes of the name of a method
)

// The codes of errors, as JSON-RPC defines them.
const (
	CodeParse          = -32700 // the body is not JSON
	CodeInvalidRequest = -32600 // the JSON is not a request
)

// Error says why a body was refused. All errors of Parse and Errors are of this type.
type Error struct {
	// Code is CodeParse or CodeInvalidRequest.
	Code int

	// Member is the place of the call in its batch, from 0. It is -1 if the error belongs to no member
	// of a batch.
	Member int

	// Offset is the byte of the body at which the problem was found, from 0, or -1 if that is not known.
	Offset int

	// Problem says what is wrong, for example `a duplicate "method"`.
	Problem string
}

// Error returns the place and the problem, such as `jsonrpc: call 2 of the batch, at byte 17: no "method"`.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("jsonrpc: ")
	if e.Member >= 0 {
		fmt.Fprintf(&b, "call %d of the batch, ", e.Member)
	}
	if e.Offset >= 0 {
		fmt.Fprintf(&b, "at byte %d: ", e.Offset)
	}
	b.WriteString(e.Problem)
	return b.String()
}

// Request is the calls of one body.
type Request struct {
	Calls []Call // at least one, in the order of the body
	Batch bool   // the body is an array, possibly of one call
}

// Call is one call of a method.
type Call struct {
	Method string // never empty
	ID     string // as it is written: a string with its quotes, a number or null; "" for a notification

	// IsNotification is true of a call without an id, which gets no response. The server executes it as
	// any other.
	IsNotification bool
}

// Parse reads the body of a request: one call, or a batch of at most MaxBatch. It returns an *Error, and no
// call, if any of the body is malformed or ambiguous.
func Parse(body []byte) (Request, error) {
	root, err := parse(body, MaxRequest)
	if err != nil {
		return Request{}, err
	}
	if root.IsObject() {
		call, bad := parseCall(root, -1)
		if bad != nil {
			return Request{}, bad
		}
		return Request{Calls: []Call{call}}, nil
	}
	if !root.IsArray() {
		return Request{}, invalid(-1, root.Index, "a request is an object, or an array of objects, not %s", kind(root))
	}
	calls, bad := parseBatch(root)
	if bad != nil {
		return Request{}, bad
	}
	return Request{Calls: calls, Batch: true}, nil
}

func parseBatch(array gjson.Result) ([]Call, *Error) {
	members, bad := batch(array)
	if bad != nil {
		return nil, bad
	}
	if len(members) == 0 {
		return nil, invalid(-1, array.Index, "an empty batch: leave out the request, or put a call in it")
	}
	calls := make([]Call, len(members))
	for i, member := range members {
		if calls[i], bad = parseCall(member, i); bad != nil {
			return nil, bad
		}
	}
	return calls, nil
}

// batch returns the members of an array.
func batch(array gjson.Result) (members []gjson.Result, bad *Error) {
	array.ForEach(func(_, member gjson.Result) bool {
		if len(members) == MaxBatch {
			bad = invalid(MaxBatch, member.Index, "a batch may have %d members: send the rest as another batch", MaxBatch)
			return false
		}
		members = append(members, member)
		return true
	})
	return members, bad
}

// parseCall reads a call, which is the given member of its batch or -1.
func parseCall(object gjson.Result, member int) (Call, *Error) {
	switch {
	case object.IsArray():
		return Call{}, invalid(member, object.Index, "a batch inside a batch")
	case !object.IsObject():
		return Call{}, invalid(member, object.Index, "a call is an object, not %s", kind(object))
	}
	found, err := pick(object, member, "method", "id", "params", "jsonrpc")
	if err != nil {
		return Call{}, err
	}
	method, id := found[0], found[1]
	if err := checkMethod(method, object, member); err != nil {
		return Call{}, err
	}
	if err := checkID(id, member); err != nil {
		return Call{}, err
	}
	return Call{
		Method:         strings.Clone(method.Str), // a part would keep the whole body
		ID:             strings.Clone(id.Raw),
		IsNotification: !id.Exists(),
	}, nil
}

func checkMethod(method, object gjson.Result, member int) *Error {
	switch {
	case !method.Exists():
		return invalid(member, object.Index, `no "method"`)
	case method.Type != gjson.String:
		return invalid(member, method.Index, `"method" is a string, not %s`, kind(method))
	case method.Str == "":
		return invalid(member, method.Index, `"method" is empty`)
	case len(method.Str) > MaxMethod:
		return invalid(member, method.Index, `"method" has %d bytes, at most %d are allowed`, len(method.Str), MaxMethod)
	}
	return nil
}

func checkID(id gjson.Result, member int) *Error {
	if !id.Exists() {
		return nil
	}
	switch id.Type {
	case gjson.String, gjson.Number, gjson.Null:
		return nil
	}
	return invalid(member, id.Index, `"id" is a string, a number or null, not %s`, kind(id))
}

// members are those of an object that pick was asked for, in the order of the names.
type members [4]gjson.Result

// pick returns the members of an object that have the given names, of which there are at most four. Two of one name are an
// error, and so is a name that differs in case only (as encoding/json folds it), since a reader may take it for the name.
func pick(object gjson.Result, member int, names ...string) (found members, err *Error) {
	object.ForEach(func(key, value gjson.Result) bool {
		for i, name := range names {
			if !strings.EqualFold(key.Str, name) {
				continue
			}
			if key.Str != name {
				err = invalid(member, key.Index, "%q is written %q", key.Str, name)
			} else if found[i].Exists() {
				err = invalid(member, key.Index, "a duplicate %q", name)
			}
			found[i] = value
		}
		return err == nil
	})
	return found, err
}

// parse checks the bounds and the syntax of a body.
func parse(body []byte, maxSize int) (gjson.Result, error) {
	if len(body) > maxSize {
		return gjson.Result{}, invalid(-1, -1, "the body has %d bytes, at most %d are allowed", len(body), maxSize)
	}
	// The depth comes first: the check of the syntax calls itself for each level.
	if at := tooDeep(body); at >= 0 {
		return gjson.Result{}, invalid(-1, at, "more than %d objects and arrays inside each other", MaxDepth)
	}
	if !gjson.ValidBytes(body) {
		return gjson.Result{}, syntaxError(body)
	}
	if !utf8.Valid(body) {
		return gjson.Result{}, &Error{Code: CodeParse, Member: -1, Offset: -1, Problem: "the body is not UTF-8"}
	}
	return gjson.ParseBytes(body), nil
}

// tooDeep returns where a body goes deeper than MaxDepth, or -1.
func tooDeep(body []byte) int {
	depth, inString := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inString && c == '\\':
			i++ // the escaped byte
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return i
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return -1
}

// syntaxError finds the place of a syntax error.
func syntaxError(body []byte) *Error {
	e := &Error{Code: CodeParse, Member: -1, Offset: -1, Problem: "the body is not JSON"}
	var syntax *json.SyntaxError
	if err := json.Unmarshal(body, new(json.RawMessage)); errors.As(err, &syntax) {
		e.Offset = int(max(0, syntax.Offset-1)) // Offset counts the bytes read, including the wrong one
		e.Problem += ": " + syntax.Error()
	}
	return e
}

func invalid(member, offset int, format string, args ...any) *Error {
	return &Error{Code: CodeInvalidRequest, Member: member, Offset: offset, Problem: fmt.Sprintf(format, args...)}
}

// kind names what a value is, for messages.
func kind(v gjson.Result) string {
	switch {
	case v.IsObject():
		return "an object"
	case v.IsArray():
		return "an array"
	}
	switch v.Type {
	case gjson.String:
		return "a string"
	case gjson.Number:
		return "a number"
	case gjson.Null:
		return "null"
	}
	return "a boolean"
}
