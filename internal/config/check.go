package config

import (
	"errors"
	"reflect"
	"strings"

	"github.com/weirlimit/weir/internal/fielderr"
)

// section is a part of the file that becomes settings of the daemon. The types of File's fields
// implement it, so a new section is one line in File and a file of its own with
//
//   - a struct whose fields have comments and tags: yaml, default, example, and jsonschema with
//     required, minimum and maximum, which the decoder checks, too;
//   - check, which makes the types of the daemon of it, in c.out, and notes by c.wrong or
//     c.invalid what is wrong. at is where the section is.
//
// The schema, Print, the environment and the tables of docs/config.md follow from the struct.
type section interface{ check(c *checker, at path) }

// checker looks at what the file says as a whole, and makes of it what the daemon takes.
type checker struct {
	*report
	file *File
	tree *node
	read FileReader
	out  *Config
}

// all checks every section.
func (c *checker) all() {
	v := reflect.ValueOf(c.file).Elem()
	for _, f := range fieldsOf(v.Type()) {
		value := v.Field(f.index)
		if value.Kind() != reflect.Pointer {
			value = value.Addr()
		}
		if s, ok := value.Interface().(section); ok && !value.IsNil() {
			s.check(c, path{}.key(f.name))
		}
	}
}

// wrong notes a problem of the field at a path, unless its value is not known because of another
// problem.
func (c *checker) wrong(at path, format string, args ...any) {
	if c.isKnown(at) && !c.incomplete[at.String()] { // of which has been said what is missing
		c.complain(c.at(at), at, format, args...)
	}
}

// isKnown says whether neither the value at a path nor one around it is missing or wrong.
func (c *checker) isKnown(at path) bool {
	for i := range at {
		if c.unknown[at[:i+1].String()] {
			return false
		}
	}
	return true
}

// invalid notes the problems that a package has found in its configuration, which was made of
// what is at a path. shape is the type that the path has in the file. The names of its fields, as
// Go has them, are those of the package's.
func (c *checker) invalid(err error, shape reflect.Type, at path) {
	for _, e := range fielderr.Split(err) {
		bad, ok := errors.AsType[*fielderr.Error](e)
		if !ok {
			c.wrong(at, "%v", e)
			continue
		}
		where, t := at, shape
		for _, step := range bad.Path {
			where, t = where.into(step, t)
		}
		c.wrong(where, "%s", bad.Text())
	}
}

// into returns the path that is one step below, and the type there. It is p if the file has no such
// field.
func (p path) into(step any, t reflect.Type) (path, reflect.Type) {
	switch step := step.(type) {
	case int:
		return p.item(step), t.Elem()
	case string:
		if t.Kind() == reflect.Map {
			return p.key(step), t.Elem()
		}
		for _, f := range fieldsOf(t) {
			if t.Field(f.index).Name == step {
				return p.key(f.name), f.typ
			}
		}
	}
	return p, t
}

// at returns where the value at a path is or, if it is not there, what is around it.
func (c *checker) at(at path) place { return c.tree.find(at) }

// failed says whether a value at or below a path has a problem already.
func (c *checker) failed(at path) bool {
	for _, p := range c.problems {
		if !p.partial && isBelow(p.Path, at) {
			return true
		}
	}
	return false
}

// isUnknown says whether a value at or below a path is not known.
func (c *checker) isUnknown(at path) bool {
	for p := range c.unknown {
		if isBelow(p, at) {
			return true
		}
	}
	return false
}

func isBelow(p string, at path) bool {
	rest, ok := strings.CutPrefix(p, at.String())
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// keys returns the names of the mapping at a path in the order in which they were written.
func (c *checker) keys(at path) (list []string) {
	n := c.tree
	for _, s := range at {
		if n = n.step(s); n == nil {
			return nil
		}
	}
	for _, p := range n.pairs {
		list = append(list, p.key)
	}
	return list
}
