package ruleset

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/storeapi"
)

// An index finds the override of a key. The zero value has none.
type index struct {
	exact    map[string]*Variant // the last for each key
	prefixes map[string]*Variant // the last for each prefix
	lengths  []int               // of the prefixes, the longest first
}

func (x *index) isEmpty() bool { return x == nil || len(x.exact)+len(x.prefixes) == 0 }

// prefixAt returns the variant for the longest prefix of a key, and its length; or nil.
func (x *index) prefixAt(key string, now time.Time) (*Variant, int) {
	for _, n := range x.lengths {
		if n > len(key) {
			continue
		}
		if v := x.prefixes[key[:n]].at(now); v != nil {
			return v, n
		}
	}
	return nil, -1
}

// place returns the map for the keys of an override, and the key or prefix in it.
func (x *index) place(o *Override) (map[string]*Variant, string) {
	if prefix, isPattern := strings.CutSuffix(o.Key, "*"); isPattern {
		return x.prefixes, prefix
	}
	return x.exact, o.Key
}

// of returns the last variant for the keys of an override, or nil.
func (x *index) of(o *Override) *Variant {
	variants, key := x.place(o)
	return variants[key]
}

// add adds a variant. Of several for the same keys, the last one that has not expired applies.
func (x *index) add(v *Variant) {
	if x.exact == nil {
		x.exact, x.prefixes = map[string]*Variant{}, map[string]*Variant{}
	}
	variants, key := x.place(v.override)
	v.before, variants[key] = variants[key], v
	if key == v.override.Key {
		return
	}
	if i, known := slices.BinarySearchFunc(x.lengths, len(key), func(a, b int) int { return b - a }); !known {
		x.lengths = slices.Insert(x.lengths, i, len(key))
	}
}

// without returns a copy that does not have the variants for the keys of an override.
func (x *index) without(o *Override) *index {
	next := &index{maps.Clone(x.exact), maps.Clone(x.prefixes), slices.Clone(x.lengths)}
	variants, key := next.place(o)
	delete(variants, key) // the length of a prefix stays, and finds nothing
	return next
}

// ofOperators returns the overrides of operators, which may be none.
func (r *Rule) ofOperators() *index { return cmp.Or(r.operators.Load(), &index{}) }

// Override puts an override of an operator in force, in place of an earlier one for the same keys. It
// goes before those of the policy for the same keys, and takes effect at once. Its error joins an
// *Error for each problem; then nothing changes. Override and RemoveOverride must not be called
// concurrently. Each costs as much as copying the list of a policy's overrides.
func (r *Rule) Override(o Override) error {
	v, err := r.compileOverride(&o)
	if err != nil {
		return err
	}
	next := r.ofOperators().without(&o)
	next.add(v)
	r.operators.Store(next)
	return nil
}

// CheckOverride returns the error that Override would return.
func (r *Rule) CheckOverride(o Override) error {
	_, err := r.compileOverride(&o)
	return err
}

// RemoveOverride removes an override of an operator.
func (r *Rule) RemoveOverride(key string) {
	r.operators.Store(r.ofOperators().without(&Override{Key: key}))
}

// compileOverride compiles an override of an operator. Policies that did not change are reused, so
// that stores can look them up by pointer.
func (r *Rule) compileOverride(o *Override) (*Variant, error) {
	c := compiler{previous: r}
	v := c.overrideVariant(r, o)
	return v, errors.Join(c.problems...)
}

// overrideVariant compiles an override. It returns nil if that is invalid.
func (c *compiler) overrideVariant(r *Rule, o *Override) *Variant {
	at := Error{Policy: r.policy.Name, Override: o.Key, Limit: -1}
	before := len(c.problems)
	switch {
	case r.policy.NoOverrides:
		c.complain(at, "overrides", "the policy takes no overrides: change its limits in the configuration")
	case o.Key == "":
		c.complain(at, "overrides", "an override needs a key, such as alice or partner-*")
	case strings.Contains(strings.TrimSuffix(o.Key, "*"), "*"):
		c.complain(at, "overrides", "a * may only stand at the end")
	case storeapi.CheckKey(o.Key) != nil:
		c.complain(at, "overrides", "a key has at most %d bytes", weir.MaxKeyBytes)
	case len(o.Limits) == 0:
		c.complain(at, "limits", "there is none, so it changes nothing")
	default:
		own := c.replace(at, o.Limits, r.limits)
		if len(c.problems) == before {
			return c.variant(at, r, o, own)
		}
	}
	return nil
}
