package config

import (
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// The shapes of values. The structs of this package say what a file may have; the
// decoder, the environment, the schema and the documentation all read them here.

// enum is a type with a fixed set of values. It is a string, or has UnmarshalText.
type enum interface{ choices() []string }

// textual is a type that is made from a text. The error says what it must be, for
// example "must be a duration such as 25ms".
type textual interface{ set(text string) error }

// described tells the schema which texts a textual type takes.
type described interface {
	pattern() (expression, example string)
}

// substituted is a type whose whole value may be ${NAME}, a variable of the environment.
type substituted interface{ substitutes() }

// secretive is a type whose text may have to be kept from being shown.
type secretive interface{ hides(text string) bool }

// shorthand is a struct that may be written as the value of one of its fields.
type shorthand interface{ shorthand() string }

// lone is a list of mappings that may be written as one of them alone.
type lone interface{ lone() }

// prepared is a struct that has defaults which depend on its other fields.
type prepared interface{ prepare(n *node) }

// field is a field of a struct as files know it.
type field struct {
	name     string
	index    int
	typ      reflect.Type // what a pointer points to
	fallback string       // the default's text, "" if there is none
	example  string
	required bool
	bounds
}

// bounds are what a number may be.
type bounds struct{ least, most int64 }

var shapes sync.Map // reflect.Type -> []field

// fieldsOf returns the fields of a struct in the order in which they are printed.
func fieldsOf(t reflect.Type) []field {
	if known, ok := shapes.Load(t); ok {
		return known.([]field)
	}
	var list []field
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Tag.Get("yaml") == "" {
			continue
		}
		out := field{name: f.Tag.Get("yaml"), index: i, typ: f.Type, fallback: f.Tag.Get("default"), example: f.Tag.Get("example")}
		if f.Type.Kind() == reflect.Pointer {
			out.typ = f.Type.Elem()
		}
		out.bounds = bounds{math.MinInt64, math.MaxInt64}
		for rule := range strings.SplitSeq(f.Tag.Get("jsonschema"), ",") {
			name, number, _ := strings.Cut(rule, "=")
			switch n, _ := strconv.ParseInt(number, 10, 64); name {
			case "required":
				out.required = true
			case "minimum":
				out.least = n
			case "maximum":
				out.most = n
			}
		}
		list = append(list, out)
	}
	shapes.Store(t, list)
	return list
}

func namesOf(t reflect.Type) []string {
	var names []string
	for _, f := range fieldsOf(t) {
		names = append(names, f.name)
	}
	return names
}

// as returns a type's zero value as an interface that it or its pointer implements.
func as[T any](t reflect.Type) (T, bool) {
	v, ok := reflect.New(t).Interface().(T)
	return v, ok
}

// isLeaf says whether values of a type are scalars.
func isLeaf(t reflect.Type) bool {
	if _, ok := as[textual](t); ok {
		return true
	}
	if _, ok := as[enum](t); ok {
		return true
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map, reflect.Slice, reflect.Pointer:
		return false
	}
	return true
}

// mayHide says whether a type has something secretive in it.
func mayHide(t reflect.Type) bool {
	return mayHideBelow(t, map[reflect.Type]bool{})
}

func mayHideBelow(t reflect.Type, seen map[reflect.Type]bool) bool {
	if _, ok := as[secretive](t); ok {
		return true
	}
	if seen[t] || isLeaf(t) {
		return false
	}
	seen[t] = true
	if t.Kind() != reflect.Struct {
		return mayHideBelow(t.Elem(), seen)
	}
	for _, f := range fieldsOf(t) {
		if mayHideBelow(f.typ, seen) {
			return true
		}
	}
	return false
}
