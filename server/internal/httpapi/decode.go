package httpapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/internal/storeapi"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
)

// A form is a JSON object with known fields.
type form struct {
	what   string   // for example "a check"
	fields []string // at most 16
}

var (
	checkForm   = form{"a check", []string{"policy", "key", "keys", "cost", "peek", "max_wait_ms", "shadow"}}
	batchForm   = form{"a batch", []string{"checks", "atomic"}}
	reserveForm = form{"a reservation", []string{"policy", "key", "keys", "cost", "ttl_ms"}}
	commitForm  = form{"a commit", []string{"id", "used"}}
	cancelForm  = form{"a cancellation", []string{"id"}}
	renewForm   = form{"a renewal", []string{"id", "ttl_ms"}}
)

// Maximum sizes of a request.
const (
	maxChecks = 1000 // of a batch
	maxKeys   = 16
	maxUnits  = 16
)

// request is the body of any of the calls. Each has some of the fields.
type request struct {
	policy   []byte // may point into the body
	query    ruleset.Query
	peek     bool
	ttl      int64 // in ms
	id       string
	used     ruleset.Used
	atomic   bool
	batch    *batchItems // of a batch
	keyed    [4]ruleset.Attribute
	unitCost [4]ruleset.Cost
}

// batchItems are the checks of a batch. Its memory is reused.
type batchItems struct {
	policies [][]byte // may point into the body
	items    []ruleset.Item
	verdicts []ruleset.Verdict
	one      request // the check that is being read
}

func (b *batchItems) free() {
	clear(b.policies)
	clear(b.items)
	b.policies, b.items, b.one = b.policies[:0], b.items[:0], request{}
}

// read reads a check and adds it. Data in the memory of one is copied, because the next check
// reuses it.
func (b *batchItems) read(s *scanner) error {
	b.one = request{}
	if err := b.one.object(s, &checkForm); err != nil {
		return err
	}
	q := b.one.query
	q.Keys, q.Costs = slices.Clone(q.Keys), slices.Clone(q.Costs)
	b.policies = append(b.policies, b.one.policy)
	b.items = append(b.items, ruleset.Item{Query: q, Peek: b.one.peek})
	return nil
}

// decode reads a body, strictly: anything that parsers could interpret differently is an error, and
// so are unknown fields. It returns an *inputError.
func (req *request) decode(f *form, body []byte) error {
	s := scanner{text: body}
	if err := req.object(&s, f); err != nil {
		return err
	}
	if !s.atEnd() {
		return s.errorf("nothing may follow the object")
	}
	return nil
}

// object reads the fields of a form.
func (req *request) object(s *scanner, f *form) error {
	req.query.Cost, req.query.Implied = 1, true
	start := s.pos
	seen, err := req.fields(s, f)
	if err != nil {
		return err
	}
	for _, need := range []struct{ name, what string }{
		{"policy", "the name of a policy"},
		{"id", "what /v1/reserve returned"},
		{"checks", "a list of checks"},
	} {
		if slices.Contains(f.fields, need.name) && !f.has(seen, need.name) {
			return s.missing(start, need.name, need.what)
		}
	}
	if f == &commitForm {
		req.used.All = !f.has(seen, "used")
	}
	return nil
}

// missing returns the error of a missing field. For a check of a batch it has the offset of the
// check.
func (s *scanner) missing(start int, name, what string) error {
	if start > 0 {
		s.space()
		return s.errorAt(start, "%q is missing: %s", name, what)
	}
	return &inputError{offset: -1, problem: fmt.Sprintf("%q is missing: %s", name, what)}
}

func (f *form) has(seen int, name string) bool {
	i := slices.Index(f.fields, name)
	return i >= 0 && seen&(1<<i) != 0
}

// fields reads an object with the fields of a form. It returns which were there, as bits.
func (req *request) fields(s *scanner, f *form) (seen int, err error) {
	if !s.accept('{') {
		return 0, s.errorf("%s is a JSON object, not %s", f.what, s.kind())
	}
	for first := true; !s.accept('}'); first = false {
		if !first && !s.accept(',') {
			return seen, s.errorf("expected , or } after a value")
		}
		i, err := s.fieldName(f, seen)
		if err != nil {
			return seen, err
		}
		seen |= 1 << i
		if err := req.field(s, f.fields[i]); err != nil {
			return seen, err
		}
	}
	return seen, nil
}

// fieldName reads a name and its colon. Seen are the fields that were there already.
func (s *scanner) fieldName(f *form, seen int) (int, error) {
	name, start, err := s.name()
	if err != nil {
		return 0, err
	}
	i := f.index(name)
	switch {
	case i < 0:
		return 0, s.errorAt(start, "unknown field %s%s; %s has %s", call.Quote(string(name)), f.hint(string(name)), f.what, f.list())
	case seen&(1<<i) != 0:
		return 0, s.errorAt(start, "field %s stands there twice", call.Quote(string(name)))
	case !s.accept(':'):
		return 0, s.errorf("expected : after a name")
	}
	return i, nil
}

// name reads a name, and returns where it began.
func (s *scanner) name() (name []byte, start int, err error) {
	s.space()
	start = s.pos
	if s.peek() != '"' {
		return nil, start, s.errorf("expected the name of a field, in quotes")
	}
	name, err = s.str("a name")
	return name, start, err
}

func (f *form) index(name []byte) int {
	for i, field := range f.fields {
		if string(name) == field {
			return i
		}
	}
	return -1
}

// hint helps with a name that is right but for its letters' case.
func (f *form) hint(name string) string {
	if lower := strings.ToLower(name); slices.Contains(f.fields, lower) {
		return fmt.Sprintf(" (did you mean %q?)", lower)
	}
	return ""
}

func (f *form) list() string {
	last := len(f.fields) - 1
	if last == 0 {
		return f.fields[0] + " alone"
	}
	return strings.Join(f.fields[:last], ", ") + " and " + f.fields[last]
}

// field reads the value of a field.
func (req *request) field(s *scanner, name string) (err error) {
	switch name {
	case "policy":
		req.policy, err = s.str(`"policy"`)
	case "key":
		req.query.Key, err = s.key(`"key"`)
	case "keys":
		err = req.keys(s)
	case "cost":
		err = req.cost(s)
	case "peek":
		req.peek, err = s.boolean(`"peek"`)
	case "shadow":
		req.query.Shadow, err = s.boolean(`"shadow"`)
	case "max_wait_ms":
		var ms int64
		ms, err = s.integer(`"max_wait_ms"`, ruleset.MaxWait.Milliseconds())
		req.query.MaxWait = millisecond(ms)
	case "ttl_ms":
		req.ttl, err = s.integer(`"ttl_ms"`, compiled.MaxTTL.Milliseconds())
	case "id":
		var id []byte
		id, err = s.str(`"id"`)
		req.id = string(id)
	case "used":
		err = req.usedCost(s)
	case "atomic":
		req.atomic, err = s.boolean(`"atomic"`)
	case "checks":
		err = req.checks(s)
	}
	return err
}

// key reads a string that is a key.
func (s *scanner) key(what string) (string, error) {
	s.space()
	start := s.pos
	text, err := s.str(what)
	if err != nil {
		return "", err
	}
	key := string(text)
	if storeapi.CheckKey(key) != nil {
		return "", s.errorAt(start, "%s has %d bytes: at most %d fit; hash longer ones", what, len(key), weir.MaxKeyBytes)
	}
	return key, nil
}

// entries reads an object whose names the caller chooses, at most so many.
func (s *scanner) entries(what string, most int, entry func(name string) error) error {
	if !s.accept('{') {
		return s.errorf("%s is a JSON object, not %s", what, s.kind())
	}
	seen := make([]string, 0, 4)
	for first := true; !s.accept('}'); first = false {
		if !first && !s.accept(',') {
			return s.errorf("expected , or } after a value")
		}
		text, start, err := s.name()
		if err != nil {
			return err
		}
		name := string(text)
		switch {
		case slices.Contains(seen, name):
			return s.errorAt(start, "%s has %s twice", what, call.Quote(name))
		case len(seen) == most:
			return s.errorAt(start, "%s may have %d entries", what, most)
		case !s.accept(':'):
			return s.errorf("expected : after a name")
		}
		seen = append(seen, name)
		if err := entry(name); err != nil {
			return err
		}
	}
	return nil
}

// keys reads the attributes that limits are by.
func (req *request) keys(s *scanner) error {
	list := req.keyed[:0]
	err := s.entries(`"keys"`, maxKeys, func(name string) error {
		value, err := s.key("a value of \"keys\"")
		list = append(list, ruleset.Attribute{Name: name, Value: value})
		return err
	})
	req.query.Keys = list
	return err
}

// cost reads a number or an object of units.
func (req *request) cost(s *scanner) (err error) {
	s.space()
	if s.peek() != '{' {
		req.query.Implied = false
		req.query.Cost, err = s.integer(`"cost"`, weir.MaxCost)
		return err
	}
	req.query.Costs, err = s.units(`"cost"`, req.unitCost[:0])
	return err
}

// usedCost reads what was used: a number or an object of units.
func (req *request) usedCost(s *scanner) (err error) {
	s.space()
	if s.peek() != '{' {
		req.used.HaveCost = true
		req.used.Cost, err = s.integer(`"used"`, weir.MaxCost)
		return err
	}
	req.used.Costs, err = s.units(`"used"`, nil)
	return err
}

// units reads an object of units, and appends them to list.
func (s *scanner) units(what string, list []ruleset.Cost) ([]ruleset.Cost, error) {
	err := s.entries(what, maxUnits, func(unit string) error {
		n, err := s.integer("a value of "+what, weir.MaxCost)
		list = append(list, ruleset.Cost{Unit: unit, Amount: n})
		return err
	})
	return list, err
}

// checks reads the list of a batch.
func (req *request) checks(s *scanner) error {
	if !s.accept('[') {
		return s.errorf(`"checks" is a list, not %s`, s.kind())
	}
	for first := true; !s.accept(']'); first = false {
		if !first && !s.accept(',') {
			return s.errorf("expected , or ] after a check")
		}
		s.space()
		if len(req.batch.items) == maxChecks {
			return s.errorf("a batch may have %d checks", maxChecks)
		}
		pause(len(req.batch.items))
		if err := req.batch.read(s); err != nil {
			return err
		}
	}
	return nil
}
