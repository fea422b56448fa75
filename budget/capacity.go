package budget

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// warnTooCostly warns of methods that some class can never call, because they cost more than a limit ever has
// at once for it. Such calls are refused one by one; who configures the account should know before. What a
// preset does not admit is its choice, and only worth a note.
func (c *Config) warnTooCostly() {
	if c.Costs == nil {
		return
	}
	p, err := c.policy()
	if err != nil { // it was checked before
		return
	}
	level := slog.LevelWarn
	if c.Preset != "" {
		level = slog.LevelInfo
	}
	for _, l := range p.Limits {
		if l.Mode == ruleset.Shadow || l.Mode == ruleset.Off {
			continue
		}
		class, most := leastCapacity(l.Limit)
		if methods := c.Costs.above(cmp.Or(l.Unit, ruleset.Requests), most); len(methods) > 0 {
			c.Logger.Log(context.Background(), level, "budget: some methods cost more than a limit ever has at once, so that they are always refused: raise its burst",
				"account", c.Name, "limit", limitName(l), "class", class, "at_most", most, "methods", shortList(methods))
		}
	}
}

// leastCapacity returns the most that a limit ever has at once for the class that gets the least, "" if it has no
// classes.
func leastCapacity(l weir.Limit) (class string, most int64) {
	l.Pace = ""
	p, err := weir.NewPolicy("x", l)
	if err != nil { // it was checked before
		return "", weir.MaxCost
	}
	most = weir.MaxCost
	for _, name := range p.ClassNames() {
		if view, err := p.Class(name); err == nil && view.Capacity() < most {
			class, most = name, view.Capacity()
		}
	}
	if len(p.ClassNames()) == 0 {
		most = p.Capacity()
	}
	return class, most
}

// above returns the methods that cost more than so many of a unit, in order.
func (t *Table) above(unit string, most int64) []string {
	return slices.Sorted(func(yield func(string) bool) {
		for name, cost := range maps.All(t.methods) {
			if cost[unit] > most && !yield(name) {
				return
			}
		}
	})
}

// shortList returns the first names of a list.
func shortList(names []string) string {
	const shown = 5
	if len(names) > shown {
		return strings.Join(names[:shown], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}
