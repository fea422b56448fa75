package adminapi

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/storeapi"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/strictjson"
)

// attributePrefix begins the parameters that give the attributes limits are by, such as
// keys.ip.
const attributePrefix = "keys."

// params returns the parameters of a query. One that is not among known, or that comes
// twice, is an error. If known has attributePrefix, so are those that begin with it.
func (c *call) params(known ...string) (map[string]string, error) {
	values, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return nil, problemf(http.StatusBadRequest, "the query is malformed: escape what is not a letter or digit as %%XX, and separate by &")
	}
	out := make(map[string]string, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		isAttribute := strings.HasPrefix(name, attributePrefix) && slices.Contains(known, attributePrefix)
		switch {
		case !isAttribute && (name == attributePrefix || !slices.Contains(known, name)):
			return nil, problemf(http.StatusBadRequest, "unknown parameter %s; this call has %s", strictjson.Quote(name), paramNames(known))
		case len(values[name]) > 1:
			return nil, problemf(http.StatusBadRequest, "parameter %s stands there twice", strictjson.Quote(name))
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
func need(p map[string]string, name, what string) error {
	if p[name] == "" {
		return problemf(http.StatusBadRequest, "parameter %q is missing: %s", name, what)
	}
	return nil
}

// attributes returns what the parameters that begin with attributePrefix give, sorted.
func attributes(p map[string]string) ([]ruleset.Attribute, error) {
	var list []ruleset.Attribute
	for _, param := range slices.Sorted(maps.Keys(p)) {
		if name, ok := strings.CutPrefix(param, attributePrefix); ok {
			list = append(list, ruleset.Attribute{Name: name, Value: p[param]})
		}
	}
	if len(list) > maxKeys {
		return nil, problemf(http.StatusBadRequest, "there are %d parameters keys.NAME: at most %d fit", len(list), maxKeys)
	}
	return list, nil
}

// checkKeys refuses keys that no limiter takes.
func checkKeys(key string, keys []ruleset.Attribute) error {
	for _, k := range append([]ruleset.Attribute{{Name: "key", Value: key}}, keys...) {
		if storeapi.CheckKey(k.Value) != nil {
			return problemf(http.StatusBadRequest, "the key %s has %d bytes: at most %d fit", strictjson.Quote(k.Name), len(k.Value), weir.MaxKeyBytes)
		}
	}
	return nil
}

// rule returns the policy called name, or a problem.
func (c *call) rule(name string) (*ruleset.Rule, error) {
	if rule := c.state.Rules.Rule(name); rule != nil {
		return rule, nil
	}
	return nil, problemf(http.StatusNotFound, "no policy is called %s; GET /admin/v1/policies lists those there are", strictjson.Quote(name))
}
