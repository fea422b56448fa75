package adminapi

import (
	"slices"

	"github.com/weirlimit/weir/ruleset"
)

// Where an override comes from.
const (
	fromFile     = "file"
	fromOperator = "operator"
	fromUnknown  = "unknown" // the store that would know cannot be asked
)

// origins are the overrides that operators have set, nil if the store cannot be asked.
type origins map[target]*ruleset.Override

// target is what an override is for.
type target struct{ policy, key string }

// origins asks the store. If it does not answer, the call is answered without.
func (a *api) origins(x *exchange) origins {
	list, err := a.ListOverrides(x.r.Context())
	if err != nil {
		a.Log.Warn("cannot read the operators' overrides", "error", err)
		return nil
	}
	from := make(origins, len(list))
	for i := range list {
		from[target{list[i].Policy, list[i].Key}] = &list[i].Override
	}
	return from
}

// of returns where an override of a rule comes from. The file may have one for a key for
// which an operator has set another.
func (from origins) of(rule *ruleset.Rule, o *ruleset.Override) string {
	if from == nil {
		return fromUnknown
	}
	if set := from[target{rule.Name(), o.Key}]; set != nil && same(set, o) {
		return fromOperator
	}
	return fromFile
}

// same says whether two overrides are.
func same(a, b *ruleset.Override) bool {
	return a.Key == b.Key && a.Until.Equal(b.Until) && slices.Equal(a.Limits, b.Limits)
}
