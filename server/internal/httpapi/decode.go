package httpapi

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir"
)

// checkRequest is the body of POST /v1/check.
type checkRequest struct {
	policy []byte // may point into the body
	key    string
	cost   int64 // 1 if absent
	peek   bool
}

// The fields of a checkRequest, as bits to tell which were there.
const (
	fieldPolicy = 1 << iota
	fieldKey
	fieldCost
	fieldPeek
)

const checkFields = "policy, key, cost and peek"

// decodeCheck reads a check, strictly: what two parsers could understand
// differently is an error, and so is what weir does not understand. It returns an
// *inputError.
func decodeCheck(body []byte) (checkRequest, error) {
	req := checkRequest{cost: 1}
	s := scanner{text: body}
	if !s.accept('{') {
		return req, s.errorf("a check is a JSON object, not %s", s.kind())
	}
	seen := 0
	for first := true; !s.accept('}'); first = false {
		if !first && !s.accept(',') {
			return req, s.errorf("expected , or } after a value")
		}
		field, err := s.field(seen)
		if err != nil {
			return req, err
		}
		seen |= field
		if err := req.decodeField(&s, field); err != nil {
			return req, err
		}
	}
	switch {
	case !s.atEnd():
		return req, s.errorf("nothing may follow the object")
	case seen&fieldPolicy == 0:
		return req, &inputError{offset: -1, problem: `"policy" is missing: the name of a policy`}
	case seen&fieldKey == 0:
		return req, &inputError{offset: -1, problem: `"key" is missing: who pays, such as a user's name`}
	}
	return req, nil
}

// field reads a name and its colon. seen are the fields that were there already.
func (s *scanner) field(seen int) (int, error) {
	s.space()
	start := s.pos
	if s.peek() != '"' {
		return 0, s.errorf("expected the name of a field, in quotes")
	}
	name, err := s.str("a name")
	if err != nil {
		return 0, err
	}
	field := fieldOf(string(name))
	switch {
	case field == 0:
		return 0, s.errorAt(start, "unknown field %s%s; a check has %s", quote(string(name)), hint(string(name)), checkFields)
	case seen&field != 0:
		return 0, s.errorAt(start, "field %s stands there twice", quote(string(name)))
	case !s.accept(':'):
		return 0, s.errorf("expected : after a name")
	}
	return field, nil
}

func fieldOf(name string) int {
	switch name {
	case "policy":
		return fieldPolicy
	case "key":
		return fieldKey
	case "cost":
		return fieldCost
	case "peek":
		return fieldPeek
	}
	return 0
}

// hint helps with a name that is right but for its letters' case.
func hint(name string) string {
	if lower := strings.ToLower(name); fieldOf(lower) != 0 {
		return fmt.Sprintf(" (did you mean %q?)", lower)
	}
	return ""
}

// decodeField reads the value of a field.
func (req *checkRequest) decodeField(s *scanner, field int) (err error) {
	s.space()
	start := s.pos
	switch field {
	case fieldPolicy:
		req.policy, err = s.str(`"policy"`)
	case fieldKey:
		var key []byte
		if key, err = s.str(`"key"`); err != nil {
			return err
		}
		req.key = string(key)
		if weir.CheckKey(req.key) != nil {
			err = s.errorAt(start, `"key" has %d bytes: at most %d fit; hash longer ones`, len(key), weir.MaxKeyBytes)
		}
	case fieldCost:
		req.cost, err = s.integer(`"cost"`, weir.MaxCost)
	case fieldPeek:
		req.peek, err = s.boolean(`"peek"`)
	}
	return err
}
