package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// riverPrefix begins the names of variables that change what a file of River says.
const riverPrefix = "RIVER_RATELIMITS_"

// variables applies the environment to River's file.
func (in *riverImport) variables(environ []string) {
	o := &overlay{report: in.report, set: map[string]string{}}
	slices.Sort(environ)
	for _, e := range environ {
		name, value, ok := strings.Cut(e, "=")
		if ok && strings.HasPrefix(name, riverPrefix) {
			in.variable(o, assignment{name, strings.Split(strings.TrimPrefix(name, "RIVER_"), "_"), value})
		}
	}
}

// variable applies a variable. One that names no field is a problem that names the nearest.
func (in *riverImport) variable(o *overlay, a assignment) {
	before := len(in.problems)
	to := target{node: in.tree, typ: reflect.TypeFor[riverFile]()}
	for i := range a.parts {
		if !o.step(&to, a, i) {
			if len(in.problems) > before {
				in.problems[before].Text = "names no field: " + in.nearestVariable(a)
				in.problems[before].Path = ""
			}
			return
		}
	}
	if !isLeaf(to.typ) {
		in.complain(a.place(), nil, "names no field: %s", in.nearestVariable(a))
		return
	}
	if n := o.value(to.typ, a, to.at); n != nil {
		*to.node = *n
	}
}

// nearestVariable names the variable that is most like another one, and its field. Those of an
// endpoint's limit are compared by the endpoint's name.
func (in *riverImport) nearestVariable(a assignment) string {
	wanted, list := strings.Join(a.parts[1:], ""), in.riverVariables()
	same := slices.DeleteFunc(slices.Clone(list), func(c riverVariable) bool { return !strings.HasSuffix(c.name, "_"+a.parts[len(a.parts)-1]) })
	if len(same) > 0 { // of the same field
		list = same
	}
	var best, field string
	score := -1.0
	for _, c := range list {
		if s := likeness(wanted, c.like); s > score {
			best, field, score = c.name, c.field, s
		}
	}
	return fmt.Sprintf("the nearest is %s, which sets %s", best, field)
}

// riverVariable is the name of a variable, the path of its field, and what its name is like.
type riverVariable struct{ name, field, like string }

// riverVariables returns those of all fields, and those of the file's endpoints.
func (in *riverImport) riverVariables() (list []riverVariable) {
	var add func(t reflect.Type, at path, like string)
	add = func(t reflect.Type, at path, like string) {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch {
		case isLeaf(t):
			var parts []string
			for _, s := range at {
				if s.name {
					parts = append(parts, strings.ToUpper(s.key))
				} else {
					parts = append(parts, fmt.Sprint(s.index))
				}
			}
			list = append(list, riverVariable{"RIVER_" + strings.Join(parts, "_"), at.String(), like})
		case t.Kind() == reflect.Struct:
			for _, f := range fieldsOf(t) {
				add(f.typ, at.key(f.name), like+strings.ToUpper(f.name))
			}
		case t == reflect.TypeFor[[]riverEndpoint]():
			n := in.nodeAt(at)
			for i := range n.len() {
				endpoint := n.items[i].child("endpoint")
				if endpoint == nil {
					continue
				}
				method := endpoint.text[strings.LastIndexByte(endpoint.text, '/')+1:]
				add(t.Elem(), at.item(i), strings.ToUpper(method))
			}
		}
	}
	add(reflect.TypeFor[riverLimits](), path{}.key("rateLimits"), "")
	return list
}

// len returns how many items a list has.
func (n *node) len() int {
	if n == nil {
		return 0
	}
	return len(n.items)
}

// likeness returns how much two texts have in common, from 0 to 1: the share of their pairs of letters
// (Dice's coefficient).
func likeness(a, b string) float64 {
	pairs := map[string]int{}
	for i := range max(0, len(a)-1) {
		pairs[a[i:i+2]]++
	}
	common := 0
	for i := range max(0, len(b)-1) {
		if pairs[b[i:i+2]] > 0 {
			pairs[b[i:i+2]]--
			common++
		}
	}
	return 2 * float64(common) / float64(max(1, len(a)+len(b)-2))
}
