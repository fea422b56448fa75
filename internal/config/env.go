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
	at := place{source: a.source}
	if slices.Contains(a.parts, "") {
		o.complain(at, nil, "must be %s and the steps of a field's path with %s between them, such as WEIR__STORE__KIND", prefix, separator)
		return
	}
	o.put(tree, reflect.TypeFor[File](), a, a.parts, nil)
}

// put sets the value that the remaining parts name below n, and returns what is there
// then. It returns nil if that cannot be.
func (o *overlay) put(n *node, t reflect.Type, a assignment, parts []string, at path) *node {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if len(parts) == 0 {
		short, ok := as[shorthand](t)
		if !ok || isMapping(a) {
			return o.value(t, a, at)
		}
		parts = []string{short.shorthand()} // the fields beside it stay
	}
	if isLeaf(t) {
		o.complain(place{source: a.source}, at, "is a single value, so nothing can be below it")
		return nil
	}
	n = container(n, t, a)
	switch t.Kind() {
	case reflect.Slice:
		return o.item(n, t, a, parts, at)
	case reflect.Map:
		return o.entry(n, t, a, parts, at)
	}
	names := namesOf(t)
	i := slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(name, parts[0]) })
	if i < 0 {
		o.complain(place{source: a.source}, at.key(strings.ToLower(parts[0])), "%s", o.unknownVariable(a, parts, names))
		return nil
	}
	return o.into(n, names[i], fieldsOf(t)[i].typ, a, parts, at)
}

// isMapping says whether what is assigned is a whole mapping, or wants to be one. An
// address such as [::1]:8080 is no YAML at all.
func isMapping(a assignment) bool {
	n := parseYAML(a.source, a.value, newReport(a.value))
	return n != nil && n.kind == mapping || strings.HasPrefix(strings.TrimSpace(a.value), "{")
}

// unknownVariable names the variable that was meant.
func (o *overlay) unknownVariable(a assignment, parts, names []string) string {
	near := nearest(parts[0], names)
	if near == "" || !strings.HasPrefix(a.source, prefix) {
		return unknown("there is no such field", parts[0], names)
	}
	meant := slices.Clone(a.parts)
	meant[len(meant)-len(parts)] = envName(near)
	return "there is no such field: did you mean " + prefix + strings.Join(meant, separator) + "?"
}

// container returns n, or something new if it cannot have something in it.
func container(n *node, t reflect.Type, a assignment) *node {
	at := place{source: a.source}
	if t.Kind() == reflect.Slice {
		if n == nil || n.kind == null {
			return &node{kind: sequence, at: at}
		}
		return n
	}
	if short, ok := as[shorthand](t); ok && n != nil && n.kind == scalar {
		long := *n
		*n = *newMapping(n.at)
		n.put(short.shorthand(), &long)
	}
	if n == nil || n.kind == null {
		return newMapping(at)
	}
	return n
}

// into puts what the parts after the first say below a key.
func (o *overlay) into(n *node, key string, t reflect.Type, a assignment, parts []string, at path) *node {
	if n.kind != mapping {
		return nil // of which the decoder tells
	}
	value := o.put(n.child(key), t, a, parts[1:], at.key(key))
	if value == nil {
		return nil
	}
	if i := n.index(key); i >= 0 {
		n.pairs[i].value = value
	} else {
		n.put(key, value)
	}
	return n
}

// entry finds the key of a mapping that a part means.
func (o *overlay) entry(n *node, t reflect.Type, a assignment, parts []string, at path) *node {
	key, found := strings.ToLower(parts[0]), []string(nil)
	for _, p := range n.pairs {
		if envName(p.key) == envName(parts[0]) {
			found = append(found, p.key)
		}
	}
	switch {
	case len(found) > 1:
		o.complain(place{source: a.source}, at, "could be any of %s: set it in the file", strings.Join(found, ", "))
		return nil
	case len(found) == 1:
		key = found[0]
	}
	return o.into(n, key, t.Elem(), a, parts, at)
}

// item finds the place in a list that a part means.
func (o *overlay) item(n *node, t reflect.Type, a assignment, parts []string, at path) *node {
	if n.kind != sequence {
		return nil // of which the decoder tells
	}
	i, err := strconv.Atoi(parts[0])
	if err != nil || i < 0 || i > len(n.items) || strconv.Itoa(i) != parts[0] {
		o.complain(place{source: a.source}, at, "is a list of %d: %q must be a number from 0 to %d", len(n.items), shorten(parts[0]), len(n.items))
		return nil
	}
	var old *node
	if i < len(n.items) {
		old = n.items[i]
	}
	value := o.put(old, t.Elem(), a, parts[1:], at.item(i))
	switch {
	case value == nil:
		return nil
	case i == len(n.items):
		n.items = append(n.items, value)
	default:
		n.items[i] = value
	}
	return n
}

// value makes a node of what is assigned. A single value is taken as it is; for mappings
// and lists it is YAML.
func (o *overlay) value(t reflect.Type, a assignment, at path) *node {
	from := place{source: a.source}
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
