package adminapi

import (
	"encoding"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

var (
	resetForm    = form{"a reset", []string{"policy", "key", "keys"}}
	overrideForm = form{"an override", []string{"policy", "key", "limits", "ttl_s", "until"}}
	limitForm    = form{"a limit", []string{"name", "rate", "per", "burst", "algorithm", "initial", "max_debt", "on_error"}}
)

// How much a request may bring.
const (
	maxKeys = 16
	maxText = 64 // bytes of a name, a period, a time
	maxTTL  = 10 * 365 * 24 * time.Hour
)

// never is the until of an override that does not end.
const never = "never"

// request is what a call that changes something brings. Each has some of the fields.
type request struct {
	policy string
	key    string
	keys   []ruleset.Attribute
	limits []ruleset.Limit
	ttl    time.Duration // 0 if until says it
	until  time.Time     // the zero time is never
}

// decodeReset reads the body of POST /admin/v1/keys/reset.
func decodeReset(c *call) error { return c.decode(&resetForm) }

// decodePut reads the body of PUT /admin/v1/keys/override.
func decodePut(c *call) error { return c.decode(&overrideForm) }

// decodeRemove reads the query of DELETE /admin/v1/keys/override.
func decodeRemove(c *call) error {
	p, err := c.params("policy", "key")
	if err != nil {
		return err
	}
	c.req.policy = p["policy"]
	if err := checkKeys(p["key"], nil); err != nil {
		return err
	}
	c.req.key = p["key"]
	if err := need(p, "policy", "the name of a policy"); err != nil {
		return err
	}
	return need(p, "key", "whose override it is")
}

// decode reads a body.
func (c *call) decode(f *form) error {
	if err := c.noParams(); err != nil {
		return err
	}
	body, err := c.body()
	if err != nil {
		return err
	}
	if err := c.req.read(f, body); err != nil {
		return problemf(http.StatusBadRequest, "%v", err)
	}
	return nil
}

// read fills in the request. It returns an *inputError.
func (req *request) read(f *form, body []byte) error {
	r, err := newReader(body)
	if err != nil {
		return err
	}
	seen, err := r.object(f, func(name string) error { return req.field(r, name) })
	if err != nil {
		return err
	}
	return f.check(seen)
}

// check refuses a request that says too little, or too much.
func (f *form) check(seen []string) error {
	has := func(name string) bool { return slices.Contains(seen, name) }
	lacks := func(name string) bool { return slices.Contains(f.fields, name) && !has(name) }
	switch {
	case lacks("policy"):
		return &inputError{-1, `"policy" is missing: the name of a policy`}
	case f != &overrideForm:
		return nil
	case lacks("key"):
		return &inputError{-1, `"key" is missing: who gets other numbers, such as alice or partner-*`}
	case lacks("limits"):
		return &inputError{-1, `"limits" is missing: the numbers, such as [{"rate":500,"per":"1s"}]`}
	case has("ttl_s") && has("until"):
		return &inputError{-1, `"ttl_s" and "until" both say when it ends: leave one out`}
	case lacks("ttl_s") && lacks("until"):
		return &inputError{-1, `"ttl_s" or "until" is missing: an override ends, unless it says "until":"never"`}
	}
	return nil
}

// field reads the value of a field.
func (req *request) field(r *reader, name string) (err error) {
	switch name {
	case "policy":
		req.policy, err = r.str(`"policy"`, maxBody)
	case "key":
		req.key, err = r.str(`"key"`, weir.MaxKeyBytes)
	case "keys":
		err = req.readKeys(r)
	case "limits":
		err = r.array(`"limits"`, func(i int) error { return req.readLimit(r, i) })
	case "ttl_s":
		err = req.readTTL(r)
	case "until":
		err = req.readUntil(r)
	}
	return err
}

// readKeys reads the attributes that limits are by.
func (req *request) readKeys(r *reader) error {
	return r.entries(`"keys"`, maxKeys, func(name string) error {
		value, err := r.str(`a value of "keys"`, weir.MaxKeyBytes)
		req.keys = append(req.keys, ruleset.Attribute{Name: name, Value: value})
		return err
	})
}

func (req *request) readTTL(r *reader) error {
	seconds, err := r.integer(`"ttl_s"`, int64(maxTTL/time.Second))
	if err == nil && seconds == 0 {
		err = r.errorf(`"ttl_s" must be at least 1`)
	}
	req.ttl = time.Duration(seconds) * time.Second
	return err
}

func (req *request) readUntil(r *reader) error {
	text, err := r.str(`"until"`, maxText)
	if err != nil || text == never {
		return err
	}
	req.until, err = time.Parse(time.RFC3339, text)
	if err != nil || req.until.IsZero() {
		return r.errorf(`"until" must be a time such as 2026-05-17T12:00:00Z, or "never"`)
	}
	req.until = req.until.UTC()
	return nil
}

// readLimit reads limit i of an override.
func (req *request) readLimit(r *reader, i int) error {
	var l ruleset.Limit
	seen, err := r.object(&limitForm, func(name string) error {
		return readNumber(r, &l.Limit, name, fmt.Sprintf(`"limits[%d].%s"`, i, name))
	})
	if err == nil && !slices.Contains(seen, "rate") {
		return &inputError{-1, fmt.Sprintf(`"limits[%d].rate" is missing: how many units per period`, i)}
	}
	req.limits = append(req.limits, l)
	return err
}

// readNumber reads the value of a limit's field. Whether it makes sense is for the compiler
// of policies to say.
func readNumber(r *reader, l *weir.Limit, name, what string) (err error) {
	switch name {
	case "name":
		l.Name, err = r.str(what, maxText)
	case "rate":
		l.Rate, err = r.integer(what, math.MaxInt64)
	case "burst":
		l.Burst, err = r.integer(what, math.MaxInt64)
	case "max_debt":
		l.MaxDebt, err = r.integer(what, math.MaxInt64)
	case "per":
		err = r.parse(what, &l.Per)
	case "algorithm":
		err = r.parse(what, &l.Algorithm)
	case "initial":
		err = r.parse(what, &l.Initial)
	case "on_error":
		err = r.parse(what, &l.OnError)
	}
	return err
}

// parse reads a string that stands for something.
func (r *reader) parse(what string, value encoding.TextUnmarshaler) error {
	text, err := r.str(what, maxText)
	if err != nil {
		return err
	}
	if err := value.UnmarshalText([]byte(text)); err != nil {
		return r.errorf("%s: %s", what, strings.TrimPrefix(err.Error(), "weir: "))
	}
	return nil
}
