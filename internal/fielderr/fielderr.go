// Package fielderr is the error of a configuration of which a field is wrong. Packages return
// it from Validate and the like; package config finds by it the line of the file.
package fielderr

import (
	"fmt"
	"strings"
)

// Error says which field is wrong and why.
type Error struct {
	// Package is whose field it is, for example "redisconn".
	Package string

	// Path leads to the field: names of fields and keys of maps are strings, places in slices are
	// ints. For example {"Addrs", 0}.
	Path []any

	// Value is what the field has, nil if that is not to be shown.
	Value any

	// Problem is what is wrong and what to do, for example "must not be negative".
	Problem string
}

// New returns an Error without a value.
func New(pkg string, problem string, path ...any) *Error {
	return &Error{Package: pkg, Path: path, Problem: problem}
}

// Text returns the value and the problem, such as "-1: must not be negative".
func (e *Error) Text() string {
	switch e.Value.(type) {
	case nil:
		return e.Problem
	case string:
		return fmt.Sprintf("%q: %s", e.Value, e.Problem)
	}
	return fmt.Sprintf("%v: %s", e.Value, e.Problem)
}

// Error returns the path and the text, such as "redisconn: DB -1: must not be negative".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Package + ": ")
	for i, step := range e.Path {
		if _, isIndex := step.(int); isIndex {
			fmt.Fprintf(&b, "[%d]", step)
			continue
		}
		if i > 0 {
			b.WriteByte('.')
		}
		if step == "" {
			step = `""`
		}
		fmt.Fprint(&b, step)
	}
	if e.Value == nil {
		b.WriteByte(':')
	}
	return b.String() + " " + e.Text()
}

// Split returns the errors that err joins, and those that they join.
func Split(err error) (list []error) {
	many, ok := err.(interface{ Unwrap() []error })
	switch {
	case err == nil:
		return nil
	case !ok:
		return []error{err}
	}
	for _, e := range many.Unwrap() {
		list = append(list, Split(e)...)
	}
	return list
}
