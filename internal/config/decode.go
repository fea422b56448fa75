package config

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/secret"
	"github.com/weirlimit/weir/server"
)

// decoder fills structs from a tree. It completes the tree on the way: defaults become
// nodes, short forms long ones, and ${NAME} the variable's value, so that the tree is
// then what is in force.
type decoder struct {
	*report
	environ  map[string]string
	dir      string // what relative paths are relative to
	exposed  bool   // the file is world-readable
	bounds   bounds // of the field that is being decoded
	settings []server.Setting
}

// reject notes a problem of a value, which is not known then.
func (d *decoder) reject(n *node, at path, format string, args ...any) {
	d.unknown[at.String()] = true
	d.complain(n.at, at, format, args...)
}

// partly notes a problem of a mapping, whose other fields are known.
func (d *decoder) partly(where place, at path, format string, args ...any) {
	d.complain(where, at, format, args...)
	d.problems[len(d.problems)-1].partial = true
	d.incomplete[at.String()] = true
}

// value decodes n into v.
func (d *decoder) value(n *node, v reflect.Value, at path) {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if isLeaf(v.Type()) {
		d.leaf(n, v, at)
		return
	}
	n.open(v.Type()) // nothing is a section of which all is commented out
	switch v.Kind() {
	case reflect.Struct:
		d.structure(n, v, at)
	case reflect.Map:
		d.entries(n, v, at)
	default:
		d.list(n, v, at)
	}
}

// mistyped notes that n is not what it must be.
func (d *decoder) mistyped(n *node, t reflect.Type, at path, want string) {
	if mayHide(t) {
		d.text.mask(n, isLeaf(t))
	}
	wrap := "%s"
	if t.Kind() == reflect.Slice {
		t, wrap = t.Elem(), "[%s]"
	}
	if h, ok := as[hinted](t); ok && n.kind == scalar && h.hint(n.text) != "" {
		want = fmt.Sprintf(wrap, h.hint(n.text))
	}
	d.reject(n, at, "is %v: must be %s", n.kind, want)
}

func (d *decoder) structure(n *node, v reflect.Value, at path) {
	t := v.Type()
	if n.kind != mapping {
		d.mistyped(n, t, at, "a mapping of "+strings.Join(namesOf(t), ", "))
		return
	}
	if p, ok := v.Addr().Interface().(prepared); ok {
		p.prepare(n)
	}
	d.refuseUnknown(n, t, at)
	d.maskSwallowed(n, t)
	for _, f := range fieldsOf(t) {
		d.field(n, f, v.Field(f.index), at.key(f.name))
	}
	names := namesOf(t) // the order in which fields are printed
	slices.SortStableFunc(n.pairs, func(a, b pair) int { return slices.Index(names, a.key) - slices.Index(names, b.key) })
}

// maskSwallowed masks values that have another field in them, which may be a secret: one wrong letter makes the single
// value "one: rpc: https://..." of two fields.
func (d *decoder) maskSwallowed(n *node, t reflect.Type) {
	for _, p := range n.pairs {
		if p.value.kind == scalar && !p.value.quoted && strings.Contains(p.value.text, ": ") && mayHide(t) {
			d.text.mask(p.value, false)
		}
	}
}

// field decodes one field of the struct at n, or its default.
func (d *decoder) field(n *node, f field, v reflect.Value, at path) {
	child := n.child(f.name)
	d.bounds = f.bounds
	switch {
	case child == nil && f.required:
		if !d.unknown[at.String()] { // it is not even misspelt
			d.partly(n.at, at[:len(at)-1], "has no %s: add one, such as %s: %s", f.name, f.name, f.example)
			d.unknown[at.String()] = true
		}
	case child != nil && child.kind == null && v.Kind() == reflect.Pointer && !isLeaf(v.Type().Elem()):
		n.remove(f.name) // it is commented out
	case child != nil:
		d.value(child, v, at)
	case f.fallback != "":
		child = newScalar(f.fallback, place{source: fromDefault})
		n.put(f.name, child)
		d.value(child, v, at)
	case v.Kind() == reflect.Struct && !isLeaf(v.Type()):
		child = newMapping(place{source: fromDefault})
		d.value(child, v, at)
		if len(child.pairs) > 0 {
			n.put(f.name, child)
		}
	}
}

// refuseUnknown takes what the struct has no field for out of the tree.
func (d *decoder) refuseUnknown(n *node, t reflect.Type, at path) {
	names := namesOf(t)
	n.pairs = slices.DeleteFunc(n.pairs, func(p pair) bool {
		if slices.Contains(names, p.key) {
			return false
		}
		where := at.key(p.key)
		if !at.isHarmless() || secretWords.MatchString(p.key) {
			d.text.mask(p.value, false) // a misspelt token is one
			if !fieldName.MatchString(p.key) {
				d.text.masks = append(d.text.masks, p.at) // and a colon is easily forgotten
				where = at
			}
		}
		d.partly(p.at, where, "%s", unknown("there is no such field", p.key, names))
		if near := nearest(p.key, names); near != "" && n.child(near) == nil {
			d.unknown[at.key(near).String()], d.incomplete[at.String()] = true, true
		}
		return true
	})
}

// isHarmless says whether no secret gets below a path, not even by a slip of an indent.
func (p path) isHarmless() bool {
	return len(p) > 0 && slices.Contains([]string{"policies", "budgets", "envoy"}, p[0].key)
}

// fieldName is what looks like the name of a field.
var fieldName = regexp.MustCompile(`^[A-Za-z_]{1,24}$`)

func (d *decoder) entries(n *node, v reflect.Value, at path) {
	t := v.Type()
	if n.kind != mapping {
		d.mistyped(n, t, at, "a mapping of names to their settings")
		return
	}
	v.Set(reflect.MakeMapWithSize(t, len(n.pairs)))
	for _, p := range n.pairs {
		value := reflect.New(t.Elem()).Elem()
		d.value(p.value, value, at.key(p.key))
		v.SetMapIndex(reflect.ValueOf(p.key), value)
	}
}

func (d *decoder) list(n *node, v reflect.Value, at path) {
	if _, ok := v.Interface().(lone); ok {
		n.wrap()
	}
	if n.kind != sequence {
		d.mistyped(n, v.Type(), at, "a list, in [ ] or each after a -")
		return
	}
	d.bounds = bounds{math.MinInt64, math.MaxInt64}
	v.Set(reflect.MakeSlice(v.Type(), len(n.items), len(n.items)))
	for i, item := range n.items {
		d.value(item, v.Index(i), at.item(i))
	}
}

// leaf decodes a scalar and notes what it is.
func (d *decoder) leaf(n *node, v reflect.Value, at path) {
	switch {
	case n.kind == null && d.unknown[at.String()]:
		return // of which the environment's problem tells
	case n.kind == null:
		d.reject(n, at, "has no value: give it one, or leave it out")
		return
	case n.kind != scalar:
		d.mistyped(n, v.Type(), at, "a single value")
		return
	}
	if !d.substitute(n, v, at) {
		return
	}
	hidden := d.hide(n, v, at)
	if err := d.set(n, v); err != nil {
		text := err.Error()
		if h, ok := v.Addr().Interface().(hinted); ok && h.hint(n.text) != "" {
			text = h.hint(n.text)
		}
		if !hidden {
			text = quoted(n) + " " + text
		}
		d.reject(n, at, "%s", text)
		return
	}
	d.settings = append(d.settings, server.Setting{Path: at.String(), Value: d.shown(n, v), Source: n.at.String()})
}

// quoted returns a text as messages have it: numbers without quotes, unless the file has them.
func quoted(n *node) string {
	if isDigits(strings.TrimPrefix(n.text, "-")) && !n.quoted {
		return shorten(n.text)
	}
	return strconv.Quote(shorten(n.text))
}

// hide masks a secret. One that is masked already is not from here, but from a variable.
func (d *decoder) hide(n *node, v reflect.Value, at path) bool {
	s, ok := v.Addr().Interface().(secretive)
	if !ok || n.masked || !s.hides(n.text) {
		return n.masked
	}
	d.text.mask(n, true)
	if d.exposed && n.at.line > 0 && !isPublic(v, n.text) {
		d.warn(n.at, at, "the file with this secret is world-readable: chmod 600 it, or use ${NAME}")
	}
	return true
}

// isPublic reports whether the text of a value that is masked is no secret.
func isPublic(v reflect.Value, text string) bool {
	p, ok := v.Addr().Interface().(interface{ isPublic(text string) bool })
	return ok && p.isPublic(text)
}

// shown returns a value as settings have it.
func (d *decoder) shown(n *node, v reflect.Value) any {
	_, isText := v.Addr().Interface().(textual)
	switch {
	case n.masked && n.text != "":
		return secret.New(n.text) // prints as ***, and is another value if the secret is another
	case n.masked:
		return secret.Mask
	case isText:
		return n.text
	case v.CanInt():
		return v.Int()
	case v.CanUint():
		return int64(v.Uint()) //nolint:gosec // none has more than 32 bits
	case v.Kind() == reflect.Bool:
		return v.Bool()
	}
	return n.text
}

// set gives v the scalar's value. The error says what it must be.
func (d *decoder) set(n *node, v reflect.Value) error {
	if t, ok := v.Addr().Interface().(textual); ok {
		if p, ok := t.(interface{ relativeTo(dir string) }); ok {
			p.relativeTo(d.dir)
		}
		return t.set(n.text)
	}
	if e, ok := v.Interface().(enum); ok && !slices.Contains(e.choices(), n.text) {
		return fmt.Errorf("must be %s", either(e.choices()))
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(n.text))
	}
	switch {
	case v.Kind() == reflect.String:
		v.SetString(n.text)
		return nil
	case n.quoted:
		return fmt.Errorf("is in quotes: leave them out")
	case v.Kind() == reflect.Bool && n.text != "true" && n.text != "false":
		return fmt.Errorf("must be true or false")
	case v.Kind() == reflect.Bool:
		v.SetBool(n.text == "true")
		return nil
	}
	bits := v.Type().Bits()
	if v.CanUint() {
		i, err := parseInt(n.text, max(0, d.bounds.least), min(1<<bits-1, d.bounds.most))
		v.SetUint(uint64(i)) //nolint:gosec // it is not negative
		return err
	}
	i, err := parseInt(n.text, max(-1<<(bits-1), d.bounds.least), min(1<<(bits-1)-1, d.bounds.most))
	v.SetInt(i)
	return err
}

// parseInt takes whole numbers in digits only: no 1e6, no 0x10, no 010.
func parseInt(text string, least, most int64) (int64, error) {
	i, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err == nil && strconv.FormatInt(i, 10) == text && i >= least && i <= most:
		return i, nil
	case err == nil && strconv.FormatInt(i, 10) != text, !isDigits(strings.TrimPrefix(text, "-")):
		return 0, fmt.Errorf("must be a whole number in digits, such as 1000")
	}
	if most == math.MaxInt64 && i < least {
		return 0, fmt.Errorf("must be at least %d; leave it out for the default", least)
	}
	return 0, fmt.Errorf("must be between %d and %d", least, most)
}

func isDigits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// shorten keeps a message on its line.
func shorten(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}
