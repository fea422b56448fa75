package jsonrpc

import (
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// ErrorObject is the error of a response.
type ErrorObject struct {
	Code    int64  // 0 if it is not a whole number
	Message string // "" if there is none
	Data    string // the member data as it is written, "" if there is none
	ID      string // the response's id as it is written, "" if there is none
	Raw     string // all of the error as it is written, for members that JSON-RPC does not define
}

// Errors returns the errors of a response, also of those in a batch, in their order. Servers answer 200 with
// them, so the status alone does not tell. A response without errors has none; an error that is null counts
// as none. An error that is no object, as some servers send it, is one with that text as its message.
//
// It returns an *Error if the body is not a JSON object, or an array of at most MaxBatch objects, or if it is
// ambiguous as in Parse.
func Errors(body []byte) ([]ErrorObject, error) {
	root, err := parse(body, MaxResponse)
	if err != nil {
		return nil, err
	}
	if !root.IsArray() {
		return collect(nil, root, -1)
	}
	responses, bad := batch(root)
	if bad != nil {
		return nil, bad
	}
	var all []ErrorObject
	for i, response := range responses {
		if all, err = collect(all, response, i); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// collect appends the error of a response, if it has one.
func collect(all []ErrorObject, response gjson.Result, member int) ([]ErrorObject, error) {
	e, has, bad := responseError(response, member)
	if bad != nil {
		return nil, bad
	}
	if has {
		all = append(all, e)
	}
	return all, nil
}

// responseError reads the error of a response, if it has one.
func responseError(response gjson.Result, member int) (e ErrorObject, has bool, bad *Error) {
	if !response.IsObject() {
		return e, false, invalid(member, response.Index, "a response is an object, not %s", kind(response))
	}
	found, bad := pick(response, member, "error", "id")
	if bad != nil {
		return e, false, bad
	}
	failure := found[0]
	if failure.Type == gjson.Null { // also if there is none
		return e, false, nil
	}
	e.ID, e.Raw = strings.Clone(found[1].Raw), strings.Clone(failure.Raw)
	if !failure.IsObject() {
		e.Message = strings.Clone(failure.String())
		return e, true, nil
	}
	parts, bad := pick(failure, member, "code", "message", "data")
	if bad != nil {
		return e, false, bad
	}
	e.Code = wholeNumber(parts[0])
	e.Message = strings.Clone(parts[1].String())
	e.Data = strings.Clone(parts[2].Raw)
	return e, true, nil
}

// wholeNumber returns a number that is written in digits, otherwise 0.
func wholeNumber(v gjson.Result) int64 {
	if v.Type != gjson.Number {
		return 0
	}
	n, err := strconv.ParseInt(v.Raw, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
