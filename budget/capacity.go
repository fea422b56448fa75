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
	limit, class string // class is "" if that is so in all classes
	most         int64
	methods      map[string]int64 // what each costs; AnyMethod are those that are not listed
}

func (x *tooCostly) equal(o *tooCostly) bool {
	return x.limit == o.limit && x.class == o.class && x.most == o.most && maps.Equal(x.methods, o.methods)
}

// warnTooCostly warns of such methods. Such calls are refused one by one; who configures the account should know
// before. What a preset does not admit as it comes, such as traces, is its choice and no warning, but a line for who looks for it.
// What the configuration before, if there was one, did not admit either is not repeated.
func (c *Config) warnTooCostly(before *Config) {
	known, ofPreset := before.tooCostly(), c.tooCostlyByPreset()
	for _, x := range c.tooCostly() {
		if slices.ContainsFunc(known, func(o tooCostly) bool { return o.equal(&x) }) {
			continue
		}
		configured, expected := x.split(ofPreset)
		configured.log(c, slog.LevelWarn)
		expected.log(c, slog.LevelDebug)
	}
}

// tooCostlyByPreset returns what is too costly in the configuration's preset as it comes, nothing without one.
func (c *Config) tooCostlyByPreset() []tooCostly {
	if c.Preset == "" {
		return nil
	}
	preset, err := Config{Name: c.Name, Preset: c.Preset}.withPreset()
	if err != nil { // it was checked before
		return nil
	}
	return preset.tooCostly()
}

// split divides the methods into those that are expected, since they cost the same in the preset and are too costly there under
// the same limit, and the others.
func (x *tooCostly) split(ofPreset []tooCostly) (others, expected tooCostly) {
	others, expected = *x, *x
	others.methods, expected.methods = map[string]int64{}, map[string]int64{}
	i := slices.IndexFunc(ofPreset, func(o tooCostly) bool { return o.limit == x.limit })
	for name, cost := range x.methods {
		if i >= 0 && ofPreset[i].methods[name] == cost {
			expected.methods[name] = cost
		} else {
			others.methods[name] = cost
		}
	}
	return others, expected
}

// log writes a line, unless no method is too costly.
func (x *tooCostly) log(c *Config, level slog.Level) {
	if len(x.methods) == 0 {
		return
	}
	text := "budget: some methods cost more than the limit can ever take at once; raise the burst"
	if x.class != "" {
		text = "budget: some methods cost more than the class can ever take at once; use another class or raise the burst"
	}
	c.Logger.Log(context.Background(), level, text, "account", c.Name, "limit", x.limit, "class", x.class, "at_most", x.most, "methods", shortList(x.names()))
}

// names returns the methods in order. Sending a transaction, which programs can least do without, is the first one.
func (x *tooCostly) names() []string {
	const send = "eth_sendRawTransaction"
	names := slices.Sorted(maps.Keys(x.methods))
	if i := slices.Index(names, send); i > 0 {
		names = slices.Insert(slices.Delete(names, i, i+1), 0, send)
	}
	return names
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
			list = append(list, tooCostly{limitName(l), class, most, methods})
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

// above returns the methods that cost more than so many of a unit, with their costs.
func (t *Table) above(unit string, most int64) map[string]int64 {
	methods := map[string]int64{}
	for name, cost := range t.methods {
		if cost[unit] > most {
			methods[name] = cost[unit]
		}
	}
	if cost := t.unknown.Default[unit]; cost > most {
		methods[AnyMethod] = cost
	}
	return methods
}

// shortList returns the first names of a list.
func shortList(names []string) string {
	const shown = 5
	if len(names) > shown {
		return strings.Join(names[:shown], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}
