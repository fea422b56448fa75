package ruleset

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
)

// Classes returns the names of the classes that share the policy's limits, nil if there are none.
// The caller must not change it.
func (r *Rule) Classes() []string { return r.classes }

// DefaultClass returns the class of queries that name none, "" if there are no classes.
func (r *Rule) DefaultClass() string { return r.defaultClass }

// UrgentClass returns the class with the greatest guaranteed share, the first of several, "" if there are no classes.
// A class that takes what others leave cannot keep work of this one waiting.
func (r *Rule) UrgentClass() string { return r.urgentClass }

// ClassOf returns the class of a query: the one that it names, else the default.
func (r *Rule) ClassOf(q *Query) string {
	for _, class := range r.classes {
		if class == q.Class {
			return class // and not the query's text, which may be a part of its request
		}
	}
	return r.defaultClass
}

// checkClass returns an error if the rule does not have a class.
func (r *Rule) checkClass(class string) error {
	switch {
	case class == "" || slices.Contains(r.classes, class):
		return nil
	case len(r.classes) == 0:
		return &InputError{"class", fmt.Sprintf("is %q, and the policy has no classes", class)}
	}
	return &InputError{"class", fmt.Sprintf("is %q, which the policy does not have; it has %s", class, strings.Join(r.classes, ", "))}
}

// charged returns the group's policy for charges of a class.
func (g *group) charged(class string) *weir.Policy {
	if class == "" || g.policy.ClassName() == class {
		return g.policy
	}
	if p, err := g.policy.Class(class); err == nil {
		return p
	}
	return g.policy
}

// classesFor returns the classes of a limit for one that replaces it: with the same parts of its
// rate and burst.
func (l Limit) classesFor(o Limit) weir.Classes {
	list := l.Classes.List()
	for i := range list {
		c := &list[i]
		c.Guaranteed = partOf(o.Rate, c.Guaranteed, l.Rate)
		c.Burst = partOf(cmp.Or(o.Burst, o.Rate), c.Burst, cmp.Or(l.Burst, l.Rate))
	}
	return weir.ClassesOf(list...)
}

// urgentClass returns the class with the greatest guaranteed share, the first of several.
func urgentClass(list []weir.Class) string {
	most := list[0]
	for _, c := range list {
		if c.Guaranteed > most.Guaranteed {
			most = c
		}
	}
	return most.Name
}

// partOf returns n × part / all, rounded down. It returns part if that is not a part of all, so that
// whoever compiles it reports the same problem.
func partOf(n, part, all int64) int64 {
	if n < 1 || part < 0 || part > all || all < 1 {
		return part
	}
	high, low := bits.Mul64(uint64(n), uint64(part))
	out, _ := bits.Div64(high, low, uint64(all)) // at most n
	return int64(out)                            //nolint:gosec // as n
}

// classes finds the classes of a rule, and checks that only one limit has them and that limits pace
// only these.
func (c *compiler) classes(at Error, r *Rule) {
	for i, l := range r.limits {
		list := l.Classes.List()
		if len(list) == 0 {
			continue
		}
		at.Limit = i
		if r.classes != nil {
			c.complain(at, "classes", "another limit of the policy has classes already; give them to the one with the shortest period")
			return
		}
		p, err := weir.NewPolicy("x", l.Limit)
		if err != nil { // checkLimit has reported it
			return
		}
		r.classes, r.defaultClass, r.urgentClass = p.ClassNames(), p.ClassName(), urgentClass(list)
	}
	for i, l := range r.limits {
		at.Limit = i
		for name := range strings.SplitSeq(l.Pace, ",") {
			if name = strings.TrimSpace(name); l.Pace != "" && !slices.Contains(r.classes, name) {
				c.complain(at, "pace", "%q is no class of the policy", name)
			}
		}
	}
}
