package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// node is a value of the configuration, as the file has it, the environment or the
// defaults. Together they are a tree that everything else is made from: the typed File,
// what is printed, and where a problem is.
type node struct {
	kind   kind
	text   string // of a scalar
	quoted bool   // a scalar in quotes, or a block
	masked bool   // a scalar that is not shown
	pairs  []pair // of a mapping
	items  []*node
	at     place
}

type pair struct {
	key   string
	at    place // of the key
	value *node
}

type kind uint8

const (
	null kind = iota
	scalar
	mapping
	sequence
)

var kindNames = [...]string{"nothing", "a single value", "a mapping", "a list"}

func (k kind) String() string { return kindNames[k] }

// place is where a value comes from.
type place struct {
	source string // the name of a file, of a variable or of a flag, or fromDefault
	line   int    // from 1; 0 if source is no file
	column int    // from 1, in characters
	width  int    // how many characters the text has there
	lines  int    // on how many more lines it goes on
}

const fromDefault = "default"

func (p place) String() string {
	if p.line == 0 {
		return p.source
	}
	return p.source + ":" + strconv.Itoa(p.line)
}

func newMapping(at place) *node { return &node{kind: mapping, at: at} }

func newScalar(text string, at place) *node { return &node{kind: scalar, text: text, at: at} }

// open makes n the mapping or list that a type is, if there is nothing yet or only the short form.
func (n *node) open(t reflect.Type) {
	if _, ok := as[lone](t); ok {
		n.wrap()
	}
	short, ok := as[shorthand](t)
	switch {
	case n.kind == null && t.Kind() == reflect.Slice:
		n.kind = sequence
	case n.kind == null:
		n.kind = mapping
	case ok && n.kind == scalar:
		long := *n
		*n = *newMapping(n.at)
		n.put(short.shorthand(), &long)
	}
}

// child returns the value of a key, or nil.
func (n *node) child(key string) *node {
	if i := n.index(key); i >= 0 {
		return n.pairs[i].value
	}
	return nil
}

func (n *node) index(key string) int {
	if n == nil {
		return -1
	}
	return slices.IndexFunc(n.pairs, func(p pair) bool { return p.key == key })
}

// put gives a key a value, in the place of the one it has.
func (n *node) put(key string, value *node) {
	if i := n.index(key); i >= 0 {
		n.pairs[i] = pair{key, value.at, value}
		return
	}
	n.pairs = append(n.pairs, pair{key, value.at, value})
}

// remove removes a key.
func (n *node) remove(key string) {
	n.pairs = slices.DeleteFunc(n.pairs, func(p pair) bool { return p.key == key })
}

// path is where a value is in the tree, for example policies.api.limits[0].rate.
type path []step

// step is a key or, if key is "", a place in a list.
type step struct {
	key   string
	index int
	name  bool // the step is a key, even if that is ""
}

func (p path) key(key string) path { return append(slices.Clip(p), step{key: key, name: true}) }
func (p path) item(i int) path     { return append(slices.Clip(p), step{index: i}) }

// String returns the path as people write it. Keys that could be mistaken are quoted.
func (p path) String() string {
	var b strings.Builder
	for i, s := range p {
		switch {
		case !s.name:
			fmt.Fprintf(&b, "[%d]", s.index)
			continue
		case i > 0:
			b.WriteByte('.')
		}
		if isPlainKey(s.key) {
			b.WriteString(s.key)
		} else {
			b.WriteString(strconv.Quote(s.key))
		}
	}
	return b.String()
}

func isPlainKey(key string) bool {
	return key != "" && !strings.ContainsFunc(key, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_*", r)
	})
}

// find returns where the path's value is, or the nearest value around it that there is.
func (n *node) find(p path) place {
	for _, s := range p {
		next := n.step(s)
		if next == nil {
			break
		}
		n = next
	}
	return n.at
}

// step returns what is one step below n, or nil.
func (n *node) step(s step) *node {
	switch {
	case s.name:
		return n.child(s.key)
	case s.index < len(n.items):
		return n.items[s.index]
	}
	return nil
}
