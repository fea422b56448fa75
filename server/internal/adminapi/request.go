package adminapi

import (
	"bytes"
	"encoding"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/storeapi"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/server/internal/strictjson"
)

type form = strictjson.Form

var (
	resetForm    = form{What: "a reset", Fields: []string{"policy", "key", "keys"}}
	overrideForm = form{What: "an override", Fields: []string{"policy", "key", "limits", "ttl_s", "until"}}
	pardonForm   = form{What: "a pardon", Fields: []string{"subject"}}
	limitForm    = form{What: "a limit", Fields: []string{"name", "rate", "per", "burst", "algorithm", "initial", "max_debt", "on_error"}}
)

// How much a request may bring.
const (
	maxBody = 16 << 10
	maxText = 64 // bytes of a name, a period, a time
	maxTTL  = 10 * 365 * 24 * time.Hour
)

// never is the until of an override that does not end.
const never = "never"

// request is what a call brings. Each has some of the fields.
type request struct {
	policy string
	key    string
	keys   []ruleset.Attribute
	limits []ruleset.Limit
	ttl    time.Duration // 0 if until says it
	until  time.Time     // the zero time is never
}

// decode reads the query and the body.
func (x *exchange) decode(rt *route) (err error) {
	if x.params, err = parseParams(x.r.URL.RawQuery, rt.params); err != nil {
		return err
	}
	if rt.body == nil {
		err = x.readParams()
		if rt.action != "" && x.names.name != "" { // for the audit log
			x.req.policy, x.req.key = x.names.name, strictjson.Clip(x.names.alias)
		}
		return err
	}
	var body bytes.Buffer
	if bad := call.ReadBody(x.w, x.r, &body, maxBody); bad != nil {
		return bad
	}
	if err := x.req.read(rt.body, body.Bytes()); err != nil {
		return call.Invalid("%v", err)
	}
	return nil
}

// read fills in the request. It returns a *strictjson.Error.
func (req *request) read(f *form, body []byte) error {
	r := strictjson.New(body)
	seen, err := r.Object(f, func(name string) error { return req.field(r, name) })
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return err
	}
	return incomplete(f, seen)
}

// incomplete refuses a request that says too little, or too much.
func incomplete(f *form, seen strictjson.Seen) error {
	problem := ""
	switch {
	case f == &pardonForm:
		if seen.Lacks("subject") {
			problem = `"subject" is missing: whose penalty ends, such as user:alice`
		}
	case seen.Lacks("policy"):
		problem = `"policy" is missing: the name of a policy`
	case f != &overrideForm:
	case seen.Lacks("key"):
		problem = `"key" is missing: who gets other numbers, such as alice or partner-*`
	case seen.Lacks("limits"):
		problem = `"limits" is missing: the numbers, such as [{"rate":500,"per":"1s"}]`
	case seen.Has("ttl_s") && seen.Has("until"):
		problem = `"ttl_s" and "until" both say when it ends: leave one out`
	case seen.Lacks("ttl_s") && seen.Lacks("until"):
		problem = `"ttl_s" or "until" is missing: an override ends, unless it says "until":"never"`
	}
	if problem == "" {
		return nil
	}
	return strictjson.Errorf(strictjson.Nowhere, "%s", problem)
}

// field reads the value of a field.
func (req *request) field(r *strictjson.Reader, name string) (err error) {
	switch name {
	case "policy":
		req.policy, err = r.Text(`"policy"`, maxBody)
	case "key":
		req.key, err = r.Text(`"key"`, weir.MaxKeyBytes)
	case "subject": // the audit log has it as a key
		req.key, err = r.Text(`"subject"`, weir.MaxKeyBytes)
	case "keys":
		err = req.readKeys(r)
	case "limits":
		err = r.List(`"limits"`, func(i int) error { return req.readLimit(r, i) })
	case "ttl_s":
		err = req.readTTL(r)
	case "until":
		err = req.readUntil(r)
	}
	return err
}

// readKeys reads the attributes that limits are by.
func (req *request) readKeys(r *strictjson.Reader) error {
	return r.Entries(`"keys"`, call.MaxKeys, func(name string) error {
		value, err := r.Text(`a value of "keys"`, weir.MaxKeyBytes)
		req.keys = append(req.keys, ruleset.Attribute{Name: name, Value: value})
		return err
	})
}

func (req *request) readTTL(r *strictjson.Reader) error {
	at := r.Offset()
	seconds, err := r.Integer(`"ttl_s"`, int64(maxTTL/time.Second))
	if err == nil && seconds == 0 {
		err = strictjson.Errorf(at, `"ttl_s" must be at least 1`)
	}
	req.ttl = time.Duration(seconds) * time.Second
	return err
}

func (req *request) readUntil(r *strictjson.Reader) error {
	at := r.Offset()
	text, err := r.Text(`"until"`, maxText)
	if err != nil || text == never {
		return err
	}
	req.until, err = time.Parse(time.RFC3339, text)
	if err != nil || req.until.IsZero() {
		return strictjson.Errorf(at, `"until" must be a time such as 2026-05-17T12:00:00Z, or "never"`)
	}
	req.until = req.until.UTC()
	return nil
}

// readLimit reads limit i of an override.
func (req *request) readLimit(r *strictjson.Reader, i int) error {
	var l ruleset.Limit
	seen, err := r.Object(&limitForm, func(name string) error {
		return readNumber(r, &l.Limit, name, fmt.Sprintf(`"limits[%d].%s"`, i, name))
	})
	if err == nil && !seen.Has("rate") {
		return strictjson.Errorf(strictjson.Nowhere, `"limits[%d].rate" is missing: how many units per period`, i)
	}
	req.limits = append(req.limits, l)
	return err
}

// readNumber reads the value of a limit's field. Whether it makes sense is for the compiler
// of policies to say.
func readNumber(r *strictjson.Reader, l *weir.Limit, name, what string) (err error) {
	switch name {
	case "name":
		l.Name, err = r.Text(what, maxText)
	case "rate":
		l.Rate, err = r.Integer(what, math.MaxInt64)
	case "burst":
		l.Burst, err = r.Integer(what, math.MaxInt64)
	case "max_debt":
		l.MaxDebt, err = r.Integer(what, math.MaxInt64)
	case "per":
		err = parse(r, what, &l.Per)
	case "algorithm":
		err = parse(r, what, &l.Algorithm)
	case "initial":
		err = parse(r, what, &l.Initial)
	case "on_error":
		err = parse(r, what, &l.OnError)
	}
	return err
}

// parse reads a string that stands for something.
func parse(r *strictjson.Reader, what string, value encoding.TextUnmarshaler) error {
	at := r.Offset()
	text, err := r.Text(what, maxText)
	if err != nil {
		return err
	}
	if err := value.UnmarshalText([]byte(text)); err != nil {
		return strictjson.Errorf(at, "%s: %s", what, strings.TrimPrefix(err.Error(), "weir: "))
	}
	return nil
}

// attributePrefix begins the parameters that give the attributes limits are by, such as
// keys.ip.
const attributePrefix = "keys."

// parseParams returns the parameters of a query. One that is not among known, or that comes
// twice, is an error. If known has attributePrefix, so are those that begin with it.
func parseParams(query string, known []string) (map[string]string, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, call.Invalid("the query is malformed: escape what is not a letter or digit as %%XX, and separate by &")
	}
	out := make(map[string]string, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		isAttribute := strings.HasPrefix(name, attributePrefix) && slices.Contains(known, attributePrefix)
		switch {
		case !isAttribute && (name == attributePrefix || !slices.Contains(known, name)):
			return nil, call.Invalid("unknown parameter %s; this call has %s", strictjson.Quote(name), paramNames(known))
		case len(values[name]) > 1:
			return nil, call.Invalid("parameter %s stands there twice", strictjson.Quote(name))
		}
		out[name] = values[name][0]
	}
	return out, nil
}

func paramNames(known []string) string {
	if len(known) == 0 {
		return "none"
	}
	return strings.ReplaceAll(strictjson.And(known), attributePrefix, attributePrefix+"NAME")
}

// need returns the problem of a parameter that is not there.
func (x *exchange) need(name, what string) error {
	if x.params[name] == "" {
		return call.Invalid("parameter %q is missing: %s", name, what)
	}
	return nil
}

// readParams fills in what the query says. Attributes are sorted. Keys that no limiter takes are
// refused.
func (x *exchange) readParams() error {
	x.req.policy = x.params["policy"]
	given := []ruleset.Attribute{{Name: "key", Value: x.params["key"]}}
	for _, param := range slices.Sorted(maps.Keys(x.params)) {
		if name, ok := strings.CutPrefix(param, attributePrefix); ok {
			given = append(given, ruleset.Attribute{Name: name, Value: x.params[param]})
		}
	}
	if n := len(given) - 1; n > call.MaxKeys {
		return call.Invalid("there are %d parameters keys.NAME: at most %d fit", n, call.MaxKeys)
	}
	for _, k := range given {
		if storeapi.CheckKey(k.Value) != nil {
			return call.Invalid("the key %s has %d bytes: at most %d fit", strictjson.Quote(k.Name), len(k.Value), weir.MaxKeyBytes)
		}
	}
	x.req.key, x.req.keys = given[0].Value, given[1:]
	return nil
}

// rule returns the policy called name, or a problem.
func (x *exchange) rule(name string) (*ruleset.Rule, error) {
	if rule := x.state.Rules.Rule(name); rule != nil {
		return rule, nil
	}
	return nil, call.Errorf(call.NotFound, "no policy is called %s; GET /admin/v1/policies lists those there are", strictjson.Quote(name))
}
