package budget

import (
	"cmp"
	"maps"
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// Costly are methods that a class can never call: they cost more of a unit than it ever has at once.
type Costly struct {
	Class   string // "" if the account has no classes
	Unit    string
	Most    int64 // the most that the class ever has at once
	Methods []string
}

// TooCostly returns which of some methods of the table a class can never call: such calls are refused with
// ErrTooCostly, which is worth a warning when a configuration is read. It returns nil for a configuration
// that is not valid.
func (c Config) TooCostly(methods ...string) (list []Costly) {
	full, err := c.checked()
	if err != nil || full.Costs == nil {
		return nil
	}
	p, err := full.policy()
	if err != nil {
		return nil
	}
	classes := []string{""}
	if len(full.Classes) > 0 {
		classes = classes[:0]
		for _, k := range full.Classes {
			classes = append(classes, k.Name)
		}
	}
	for _, class := range classes {
		most := capacities(p.Limits, class)
		for _, unit := range slices.Sorted(maps.Keys(most)) {
			if above := full.Costs.above(unit, most[unit], methods); len(above) > 0 {
				list = append(list, Costly{Class: class, Unit: unit, Most: most[unit], Methods: above})
			}
		}
	}
	return list
}

// capacities returns the most that a class ever has at once of each unit.
func capacities(limits []ruleset.Limit, class string) map[string]int64 {
	most := map[string]int64{}
	for _, l := range limits {
		p, err := weir.NewPolicy("x", l.Limit)
		if err != nil || l.Mode == ruleset.Shadow || l.Mode == ruleset.Off || l.Algorithm == weir.Concurrency {
			continue
		}
		if view, err := p.Class(class); err == nil {
			p = view
		}
		unit, n := cmp.Or(l.Unit, ruleset.Requests), p.Compiled().Capacity(0)
		if before, ok := most[unit]; !ok || n < before {
			most[unit] = n
		}
	}
	return most
}

// above returns which of some methods cost more than so much of a unit.
func (t *Table) above(unit string, most int64, methods []string) (above []string) {
	for _, method := range methods {
		if t.methods[method][unit] > most {
			above = append(above, method)
		}
	}
	slices.Sort(above)
	return above
}
