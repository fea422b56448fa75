package strictjson

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Form is an object with known fields.
type Form struct {
	What   string   // for example "a check"
	Fields []string // at most 64
}

// Seen is the fields of a form that an object had.
type Seen struct {
	form *Form
	bits uint64
}

// Has reports whether the object had a field of the form.
func (s Seen) Has(name string) bool {
	i := slices.Index(s.form.Fields, name)
	return i >= 0 && s.bits&(1<<i) != 0
}

// Lacks reports whether the form has a field that the object did not have.
func (s Seen) Lacks(name string) bool { return slices.Contains(s.form.Fields, name) && !s.Has(name) }

// Object reads an object with the fields of a form, and calls field to read the value of each.
func (r *Reader) Object(f *Form, field func(name string) error) (Seen, error) {
	seen := Seen{form: f}
	err := r.members(f.What, func(name []byte, start int) error {
		i := slices.IndexFunc(f.Fields, func(known string) bool { return known == string(name) })
		switch {
		case i < 0:
			return Errorf(start, "unknown field %s%s; %s has %s", Quote(string(name)), f.hint(string(name)), f.What, And(f.Fields))
		case seen.bits&(1<<i) != 0:
			return Errorf(start, "field %s stands there twice", Quote(string(name)))
		}
		seen.bits |= 1 << i
		return field(f.Fields[i])
	})
	return seen, err
}

// Entries reads an object whose names the caller chooses, at most so many, and calls entry to read
// the value of each.
func (r *Reader) Entries(what string, most int, entry func(name string) error) error {
	seen := make([]string, 0, 4)
	return r.members(what, func(text []byte, start int) error {
		name := string(text)
		switch {
		case slices.Contains(seen, name):
			return Errorf(start, "%s has %s twice", what, Quote(name))
		case len(seen) == most:
			return Errorf(start, "%s may have %d entries", what, most)
		}
		seen = append(seen, name)
		return entry(name)
	})
}

// members reads an object, and calls member for each name, with its offset, to read the value.
func (r *Reader) members(what string, member func(name []byte, start int) error) error {
	if !r.accept('{') {
		return r.errorf("%s is a JSON object, not %s", what, r.kind())
	}
	for first := true; !r.accept('}'); first = false {
		if !first && !r.accept(',') {
			return r.errorf("expected , or } after a value")
		}
		start := r.Offset()
		if r.peek() != '"' {
			return r.errorf("expected the name of a field, in quotes")
		}
		name, err := r.Bytes("a name")
		if err != nil {
			return err
		}
		if !r.accept(':') {
			return r.errorf("expected : after a name")
		}
		if err := member(name, start); err != nil {
			return err
		}
	}
	return nil
}

// List reads an array, and calls item to read each of its values.
func (r *Reader) List(what string, item func(i int) error) error {
	if !r.accept('[') {
		return r.errorf("%s is a list, not %s", what, r.kind())
	}
	for i := 0; !r.accept(']'); i++ {
		if i > 0 && !r.accept(',') {
			return r.errorf("expected , or ] after a value")
		}
		if err := item(i); err != nil {
			return err
		}
	}
	return nil
}

// hint helps with a name that is right but for its letters' case.
func (f *Form) hint(name string) string {
	if lower := strings.ToLower(name); slices.Contains(f.Fields, lower) {
		return fmt.Sprintf(" (did you mean %q?)", lower)
	}
	return ""
}

// And lists names as people do: "a, b and c", or "a alone".
func And(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return names[0] + " alone"
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// maxQuoted is how many bytes of a caller's text an error repeats.
const maxQuoted = 64

// Quote returns a caller's text in a form that is safe to show: quoted, control characters escaped,
// cut to whole characters in maxQuoted bytes.
func Quote(s string) string {
	head := Clip(s)
	if len(head) < len(s) {
		return strconv.QuoteToASCII(head) + "…"
	}
	return strconv.QuoteToASCII(s)
}

// Clip returns the beginning of a caller's text, as much as Quote shows.
func Clip(s string) string { return Cut(s, maxQuoted) }

// Cut returns the beginning of a text: whole characters in at most so many bytes.
func Cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}
