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

// tooCostly are methods that a class can never call under a limit, because they cost more than the limit ever has
// at once for that class, which is the one that gets the least.
type tooCostly struct {
	limit, class string // "" if that is so in all classes
	most         int64
	methods      string
}

// warnTooCostly warns of such methods. Such calls are refused one by one; who configures the account should know
// before. What a preset does not admit is its choice: a note if it was changed, and otherwise only for who looks for it. What the
// configuration before, if there was one, did not admit either is not repeated.
func (c *Config) warnTooCostly(before *Config) {
	level, ofPreset := slog.LevelWarn, []tooCostly(nil)
	if c.Preset != "" {
		unchanged, _ := Config{Name: c.Name, Preset: c.Preset}.withPreset() // it was checked before
		level, ofPreset = slog.LevelInfo, unchanged.tooCostly()
	}
	known := before.tooCostly()
	for _, x := range c.tooCostly() {
		switch {
		case slices.Contains(known, x):
		case slices.Contains(ofPreset, x):
			x.log(c, slog.LevelDebug)
		default:
			x.log(c, level)
		}
	}
}

func (x *tooCostly) log(c *Config, level slog.Level) {
	text := "budget: some methods cost more than the limit can ever take at once; raise the burst"
	if x.class != "" {
		text = "budget: some methods cost more than the class can ever take at once; use another class or raise the burst"
	}
	c.Logger.Log(context.Background(), level, text, "account", c.Name, "limit", x.limit, "class", x.class, "at_most", x.most, "methods", x.methods)
}

// tooCostly returns what is too costly under each limit, nothing for no configuration.
func (c *Config) tooCostly() (list []tooCostly) {
	if c == nil || c.Costs == nil {
		return nil
	}
	p, err := c.policy()
	if err != nil { // it was checked before
		return nil
	}
	for _, l := range p.Limits {
		if l.Mode == ruleset.Shadow || l.Mode == ruleset.Off {
			continue
		}
		class, most := leastCapacity(l.Limit)
		if methods := c.Costs.above(cmp.Or(l.Unit, ruleset.Requests), most); len(methods) > 0 {
			list = append(list, tooCostly{limitName(l), class, most, shortList(methods)})
		}
	}
	return list
}

// leastCapacity returns the most that a limit ever has at once for the class that gets the least. The class is "" if
// there is none, or all get the same.
func leastCapacity(l weir.Limit) (class string, least int64) {
	l.Pace = ""
	p, err := weir.NewPolicy("x", l)
	if err != nil { // it was checked before
		return "", weir.MaxCost
	}
	least, greatest := int64(weir.MaxCost), int64(0)
	for _, name := range p.ClassNames() {
		view, err := p.Class(name)
		if err != nil {
			continue
		}
		greatest = max(greatest, view.Capacity())
		if view.Capacity() < least {
			class, least = name, view.Capacity()
		}
	}
	switch {
	case len(p.ClassNames()) == 0:
		return "", p.Capacity()
	case least == greatest:
		return "", least
	}
	return class, least
}

// above returns the methods that cost more than so many of a unit, in order. Sending a transaction, which programs
// can least do without, is the first one.
func (t *Table) above(unit string, most int64) []string {
	const send = "eth_sendRawTransaction"
	names := slices.Sorted(func(yield func(string) bool) {
		for name, cost := range maps.All(t.methods) {
			if cost[unit] > most && !yield(name) {
				return
			}
		}
	})
	if i := slices.Index(names, send); i > 0 {
		names = slices.Insert(slices.Delete(names, i, i+1), 0, send)
	}
	return names
}

// shortList returns the first names of a list.
func shortList(names []string) string {
	const shown = 5
	if len(names) > shown {
		return strings.Join(names[:shown], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}
