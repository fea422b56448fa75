package config

import (
	"errors"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/ruleset"
)

// Classes are kinds of work that share a limit, by name. Their order is that of the file.
type Classes map[string]Class

// Class is a kind of work with a guaranteed share of a limit, which it lends to the others while
// it is idle.
type Class struct {
	// Guaranteed is what the class always gets: a share of the rate such as 60%, rounded down to
	// whole units, or a number of units per period. The default is 0: what the others leave.
	Guaranteed Share `yaml:"guaranteed" example:"60%"`

	// Burst is how many units of its share the class may save up. The default is that share of
	// the limit's burst.
	Burst int64 `yaml:"burst" example:"100" jsonschema:"minimum=1"`

	// Borrow is whether the class may use what the others leave idle. Its own idle share is lent
	// in any case.
	Borrow bool `yaml:"borrow" default:"true" example:"false"`
}

// Share is a part of a limit's rate: a percentage, or a number of units per period.
type Share struct {
	Part  ruleset.Share // of the rate, if Units is 0
	Units int64
}

func (s *Share) set(text string) (err error) {
	if strings.HasSuffix(text, "%") {
		p := new(Percent)
		err = p.set(text)
		*s = Share{Part: p.Share}
		return err
	}
	*s = Share{}
	if s.Units, err = parseInt(text, 0, algo.MaxRate); err != nil {
		return errors.New("must be a share of the rate such as 60%, or a whole number of units per period such as 300")
	}
	return nil
}

func (*Share) pattern() (string, string) { return `^[0-9]{1,3}(\.[0-9]{1,2})?%$`, "60%" }

// of returns the share in units of a rate, rounded down.
func (s Share) of(rate int64) int64 {
	part, all := int64(s.Part), int64(ruleset.All)
	return s.Units + rate/all*part + rate%all*part/all
}

// of returns the classes of a limit with a rate. They are at a path.
func (list Classes) of(c *checker, rate int64, at path) weir.Classes {
	var out []weir.Class
	for _, name := range c.keys(at) {
		k := list[name]
		out = append(out, weir.Class{Name: name, Guaranteed: k.Guaranteed.of(rate), Burst: k.Burst, NoBorrow: !k.Borrow})
	}
	return weir.ClassesOf(out...)
}

// classes returns the classes of the limit at a path.
func (l *Limit) classes(c *checker, at path) weir.Classes {
	if at = at.key("classes"); len(l.Classes) > 0 && l.Per.isCalendar() {
		c.wrong(at, "are for a limit per duration, such as per: 1s; for a limit per day or month, name classes in pace")
		c.unknown[at.String()] = true
	}
	return l.Classes.of(c, int64(l.Rate), at)
}

// classNames returns the names of all classes, of policies and of budgets.
func (c *checker) classNames() (names []string) {
	policies := path{}.key("policies")
	for _, policy := range c.keys(policies) {
		limits := policies.key(policy).key("limits")
		for i := range c.file.Policies[policy].Limits {
			names = append(names, c.keys(limits.item(i).key("classes"))...)
		}
	}
	budgets := path{}.key("budgets")
	for _, name := range c.keys(budgets) {
		b := c.file.Budgets[name]
		if b.Classes != nil {
			names = append(names, c.keys(budgets.key(name).key("classes"))...)
		} else {
			names = append(names, budget.Config{Preset: string(b.Preset)}.ClassNames()...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// field returns the path of a field as errors of package ruleset name it, which may be a class's:
// classes.realtime.burst.
func (p path) field(name string) path {
	class, ok := strings.CutPrefix(name, "classes.")
	if !ok {
		return p.key(name)
	}
	dot := strings.LastIndexByte(class, '.')
	return p.key("classes").key(class[:dot]).key(class[dot+1:])
}
