package adminapi

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/storeapi"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
	"github.com/weirlimit/weir/server/internal/strictjson"
)

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
