package httpapi

import (
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/compiled"
	"github.com/weirlimit/weir/internal/jsonrpc"
	"github.com/weirlimit/weir/internal/storeapi"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/server/internal/strictjson"
)

type form = strictjson.Form

var (
	checkForm   = form{What: "a check", Fields: []string{"policy", "key", "keys", "cost", "class", "method", "methods", "peek", "max_wait_ms", "shadow"}}
	batchForm   = form{What: "a batch", Fields: []string{"checks", "atomic"}}
	reserveForm = form{What: "a reservation", Fields: []string{"policy", "key", "keys", "cost", "class", "method", "methods", "max_wait_ms", "ttl_ms"}}
	commitForm  = form{What: "a commit", Fields: []string{"id", "used"}}
	cancelForm  = form{What: "a cancellation", Fields: []string{"id"}}
	renewForm   = form{What: "a renewal", Fields: []string{"id", "ttl_ms"}}
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
func (b *batchItems) read(s *strictjson.Reader) error {
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
// so are unknown fields. It returns an *strictjson.Error.
func (req *request) decode(f *form, body []byte) error {
	s := strictjson.New(body)
	if err := req.object(s, f); err != nil {
		return err
	}
	return s.End()
}

// object reads the fields of a form.
func (req *request) object(s *strictjson.Reader, f *form) error {
	req.query.Cost, req.query.Implied = 1, true
	start := s.Offset()
	seen, err := s.Object(f, func(name string) error { return req.field(s, name) })
	if err != nil {
		return err
	}
	req.used.All = seen.Lacks("used")
	for _, need := range []struct{ name, what string }{
		{"policy", "the name of a policy"},
		{"id", "what /v1/reserve returned"},
		{"checks", "a list of checks"},
	} {
		if seen.Lacks(need.name) {
			if start == 0 { // not a check of a batch, where the offset tells which
				start = strictjson.Nowhere
			}
			return strictjson.Errorf(start, "%q is missing: %s", need.name, need.what)
		}
	}
	return nil
}

// field reads the value of a field.
func (req *request) field(s *strictjson.Reader, name string) (err error) {
	switch name {
	case "policy":
		req.policy, err = s.Bytes(`"policy"`)
	case "key":
		req.query.Key, err = readKey(s, `"key"`)
	case "keys":
		err = req.keys(s)
	case "cost":
		req.query.Implied, err = readCost(s, `"cost"`, &req.query.Cost, &req.query.Costs, req.unitCost[:0])
	case "class":
		var class []byte
		class, err = s.Bytes(`"class"`)
		req.query.Class = string(class)
	case "method", "methods":
		err = req.methods(s, name)
	case "peek":
		req.peek, err = s.Boolean(`"peek"`)
	case "shadow":
		req.query.Shadow, err = s.Boolean(`"shadow"`)
	case "max_wait_ms":
		var ms int64
		ms, err = s.Integer(`"max_wait_ms"`, ruleset.MaxWait.Milliseconds())
		req.query.MaxWait = call.Milliseconds(ms)
	case "ttl_ms":
		req.ttl, err = s.Integer(`"ttl_ms"`, compiled.MaxTTL.Milliseconds())
	case "id":
		var id []byte
		id, err = s.Bytes(`"id"`)
		req.id = string(id)
	case "used":
		var inUnits bool
		inUnits, err = readCost(s, `"used"`, &req.used.Cost, &req.used.Costs, nil)
		req.used.HaveCost = !inUnits
	case "atomic":
		req.atomic, err = s.Boolean(`"atomic"`)
	case "checks":
		err = req.checks(s)
	}
	return err
}

// readKey reads a string that is a key.
func readKey(s *strictjson.Reader, what string) (string, error) {
	start := s.Offset()
	text, err := s.Bytes(what)
	if err != nil {
		return "", err
	}
	key := string(text)
	if storeapi.CheckKey(key) != nil {
		return "", strictjson.Errorf(start, "%s has %d bytes: at most %d fit; hash longer ones", what, len(key), weir.MaxKeyBytes)
	}
	return key, nil
}

// keys reads the attributes that limits are by.
func (req *request) keys(s *strictjson.Reader) error {
	list := req.keyed[:0]
	err := s.Entries(`"keys"`, call.MaxKeys, func(name string) error {
		value, err := readKey(s, "a value of \"keys\"")
		list = append(list, ruleset.Attribute{Name: name, Value: value})
		return err
	})
	req.query.Keys = list
	return err
}

// readCost reads a number into cost, or an object of units into costs, which uses the memory of list.
func readCost(s *strictjson.Reader, what string, cost *int64, costs *[]ruleset.Cost, list []ruleset.Cost) (inUnits bool, err error) {
	if s.Peek() != '{' {
		*cost, err = s.Integer(what, weir.MaxCost)
		return false, err
	}
	err = s.Entries(what, call.MaxUnits, func(unit string) error {
		n, err := s.Integer("a value of "+what, weir.MaxCost)
		list = append(list, ruleset.Cost{Unit: unit, Amount: n})
		return err
	})
	*costs = list
	return true, err
}

// methods reads what the request calls: one method, or those of a batch.
func (req *request) methods(s *strictjson.Reader, name string) error {
	start, list := s.Offset(), req.query.Methods
	if list != nil {
		return strictjson.Errorf(start, `"method" is one call and "methods" are those of a batch: say one of the two`)
	}
	if name == "method" {
		method, err := s.Text(`"method"`, jsonrpc.MaxMethod)
		req.query.Methods = []string{method}
		return err
	}
	err := s.List(`"methods"`, func(i int) error {
		if i == call.MaxMethods {
			return strictjson.Errorf(s.Offset(), `"methods" may have %d entries`, call.MaxMethods)
		}
		method, err := s.Text(`a value of "methods"`, jsonrpc.MaxMethod)
		list = append(list, method)
		return err
	})
	if err == nil && len(list) == 0 {
		return strictjson.Errorf(start, `"methods" is empty: the methods of a batch, such as ["eth_call", "eth_getLogs"]`)
	}
	req.query.Methods = list
	return err
}

// checks reads the list of a batch.
func (req *request) checks(s *strictjson.Reader) error {
	return s.List(`"checks"`, func(i int) error {
		if i == call.MaxChecks {
			return strictjson.Errorf(s.Offset(), "a batch may have %d checks", call.MaxChecks)
		}
		pause(i)
		return req.batch.read(s)
	})
}
