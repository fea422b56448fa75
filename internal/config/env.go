package config

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// The environment sets any field by one rule: WEIR and the steps of the field's path,
// in capitals, with two underscores between them. WEIR__STORE__KIND=redis is
//
//	store: {kind: redis}
//
// and WEIR__POLICIES__API__LIMITS__0__RATE=5 the rate of the first limit of policy api.
// A name of a mapping's key matches whatever its case is, and _ also matches - and a
// point; a key that is not there yet is added in small letters. A list is added to
// at its end. Names with one underscore, as Kubernetes makes for a service called weir, are
// ignored.
const (
	prefix    = "WEIR__"
	separator = "__"
)

// Flag is a value of the command line. It wins over the environment and the file.
type Flag struct {
	Name  string // what messages call it, for example "--http"
	Path  string // the field's, for example "listen.http", with points between names
	Value string
}

// assignment is a value that comes from outside the file.
type assignment struct {
	source string
	parts  []string
	value  string
}

func (a *assignment) place() place { return place{source: a.source} }

// overlay puts assignments into a tree.
type overlay struct {
	*report
	set map[string]string // path -> the source that set it
}

// variables returns the environment, and what of it is ours, in the order in which it is
// put in: what is around something first.
func (o *overlay) variables(environ []string) (map[string]string, []assignment) {
	all := make(map[string]string, len(environ))
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok {
			all[name] = value
		}
	}
	var ours []assignment
	for name, value := range all {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			ours = append(ours, assignment{name, strings.Split(rest, separator), value})
		}
	}
	slices.SortFunc(ours, func(a, b assignment) int {
		return cmp.Or(len(a.parts)-len(b.parts), slices.CompareFunc(a.parts, b.parts, comparePart))
	})
	return all, ours
}

// comparePart puts numbers into their order.
func comparePart(a, b string) int {
	if isDigits(a) && isDigits(b) {
		return cmp.Or(len(a)-len(b), strings.Compare(a, b))
	}
	return strings.Compare(a, b)
}

func flagAssignments(flags []Flag) []assignment {
	var list []assignment
	for _, f := range flags {
		list = append(list, assignment{f.Name, strings.Split(f.Path, "."), f.Value})
	}
	return list
}

// apply puts an assignment into the tree.
func (o *overlay) apply(tree *node, a assignment) {
	if slices.Contains(a.parts, "") {
		o.complain(a.place(), nil, "must be %s and the steps of a field's path with %s between them, such as WEIR__STORE__KIND", prefix, separator)
		return
	}
	to := target{node: &tree, typ: reflect.TypeFor[File]()}
	for i := 0; i < len(a.parts); i++ {
		if !o.step(&to, a, i) {
			return
		}
		if short, ok := as[shorthand](to.typ); ok && i == len(a.parts)-1 && !isMapping(a) {
			a.parts = append(slices.Clone(a.parts), short.shorthand()) // the fields beside it stay
		}
	}
	if n := o.value(to.typ, a, to.at); n != nil {
		*to.node = n
	} else {
		o.unknown[to.at.String()] = true
	}
}

// target is where an assignment goes: a place in the tree, and the type that belongs there.
type target struct {
	node **node
	typ  reflect.Type
	at   path
}

// step moves the target to what part i of the assignment names below it, and adds that to the
// tree. It returns false if there is no such thing.
func (o *overlay) step(to *target, a assignment, i int) bool {
	step := a.parts[i]
	if isLeaf(to.typ) {
		o.complain(a.place(), to.at, "is a single value, so nothing can be below it")
		return false
	}
	n, key := container(*to.node, to.typ, a), ""
	*to.node = n
	switch to.typ.Kind() {
	case reflect.Slice:
		return o.item(to, a, step)
	case reflect.Map:
		var found []string
		for _, p := range n.pairs {
			if envName(p.key) == envName(step) {
				found = append(found, p.key)
			}
		}
		if len(found) > 1 {
			o.complain(a.place(), to.at, "could be any of %s: set it in the file", strings.Join(found, ", "))
			return false
		}
		key, to.typ = strings.Join(append(found, strings.ToLower(step))[:1], ""), to.typ.Elem()
	default:
		f := slices.IndexFunc(fieldsOf(to.typ), func(f field) bool { return strings.EqualFold(f.name, step) })
		if f < 0 {
			o.complain(a.place(), to.at.key(strings.ToLower(step)), "%s", o.unknownVariable(a, i, namesOf(to.typ)))
			return false
		}
		key, to.typ = fieldsOf(to.typ)[f].name, fieldsOf(to.typ)[f].typ
	}
	if n.kind != mapping {
		return false // of which the decoder tells
	}
	if n.child(key) == nil {
		n.put(key, &node{at: a.place()})
	}
	to.node, to.at = &n.pairs[n.index(key)].value, to.at.key(key)
	to.pointee()
	return true
}

// item moves the target to a place in a list.
func (o *overlay) item(to *target, a assignment, step string) bool {
	n := *to.node
	if n.kind != sequence {
		return false // of which the decoder tells
	}
	i, err := strconv.Atoi(step)
	if err != nil || i < 0 || i > len(n.items) || strconv.Itoa(i) != step {
		o.complain(a.place(), to.at, "is a list of %d: %q must be a number from 0 to %d", len(n.items), shorten(step), len(n.items))
		return false
	}
	if i == len(n.items) {
		n.items = append(n.items, &node{at: a.place()})
	}
	to.node, to.typ, to.at = &n.items[i], to.typ.Elem(), to.at.item(i)
	to.pointee()
	return true
}

func (to *target) pointee() {
	if to.typ.Kind() == reflect.Pointer {
		to.typ = to.typ.Elem()
	}
}

// isMapping says whether what is assigned is a whole mapping, or wants to be one. An
// address such as [::1]:8080 is no YAML at all.
func isMapping(a assignment) bool {
	n := parseYAML(a.source, a.value, newReport(a.value))
	return n != nil && n.kind == mapping || strings.HasPrefix(strings.TrimSpace(a.value), "{")
}

// unknownVariable names the variable that was meant by part i.
func (o *overlay) unknownVariable(a assignment, i int, names []string) string {
	near := nearest(a.parts[i], names)
	if near == "" || !strings.HasPrefix(a.source, prefix) {
		return unknown("there is no such field", a.parts[i], names)
	}
	meant := slices.Clone(a.parts)
	meant[i] = envName(near)
	return "there is no such field: did you mean " + prefix + strings.Join(meant, separator) + "?"
}

// container returns n, or something new if it cannot have something in it.
func container(n *node, t reflect.Type, a assignment) *node {
	if _, ok := as[lone](t); ok {
		n.wrap()
	}
	switch short, ok := as[shorthand](t); {
	case n.kind == null && t.Kind() == reflect.Slice:
		return &node{kind: sequence, at: a.place()}
	case n.kind == null:
		return newMapping(a.place())
	case ok && n.kind == scalar:
		long := newMapping(n.at)
		long.put(short.shorthand(), n)
		return long
	}
	return n
}

// value makes a node of what is assigned. A single value is taken as it is; for mappings
// and lists it is YAML.
func (o *overlay) value(t reflect.Type, a assignment, at path) *node {
	from := a.place()
	if other := o.set[at.String()]; other != "" {
		o.complain(from, at, "%s sets it, too", other)
		return nil
	}
	o.set[at.String()] = a.source
	if a.value == "" {
		o.complain(from, at, "is empty: give it a value, or do not set it")
		return nil
	}
	if isLeaf(t) {
		return newScalar(a.value, from)
	}
	own := newReport(a.value)
	n := parseYAML(a.source, a.value, own)
	for _, p := range own.problems {
		o.complain(from, at, "%s", p.Text)
	}
	if n != nil {
		n.comeFrom(from)
	}
	return n
}

// comeFrom sets the place of everything in n.
func (n *node) comeFrom(at place) {
	n.at = at
	for i := range n.pairs {
		n.pairs[i].at = at
		n.pairs[i].value.comeFrom(at)
	}
	for _, item := range n.items {
		item.comeFrom(at)
	}
}

// envName returns how a key is written in the name of a variable.
func envName(key string) string {
	return strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(key))
}
