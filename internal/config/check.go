package config

import (
	"strings"
)

// checker looks at what the file says as a whole, and makes of it what the daemon takes.
type checker struct {
	*report
	file  *File
	tree  *node
	files *files
	out   *Config

	undecoded map[string]bool // paths of what has no value because that was wrong
}

// wrong notes a problem of the field at a path, unless it could not even be decoded.
func (c *checker) wrong(at path, format string, args ...any) {
	for i := range at {
		if c.undecoded[at[:i+1].String()] {
			return
		}
	}
	c.complain(c.at(at), at, format, args...)
}

// at returns where the value at a path is or, if it is not there, what is around it.
func (c *checker) at(at path) place { return c.tree.find(at) }

// failed says whether something at or below a path has a problem already.
func (c *checker) failed(at path) bool {
	prefix := at.String()
	for _, p := range c.problems {
		rest, ok := strings.CutPrefix(p.Path, prefix)
		if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return false
}

// keys returns the names of a mapping in the order in which they were written.
func (c *checker) keys(name string) []string {
	var list []string
	if n := c.tree.child(name); n != nil {
		for _, p := range n.pairs {
			list = append(list, p.key)
		}
	}
	return list
}

// noteUndecoded notes what the decoder has complained of.
func (c *checker) noteUndecoded() {
	c.undecoded = map[string]bool{}
	for _, p := range c.problems {
		c.undecoded[p.Path] = true
	}
}

// all checks every section.
func (c *checker) all() {
	c.noteUndecoded()
	c.listeners()
	c.clients()
	c.operators()
	c.store()
	c.policies()
	c.forwardAuth()
	c.hosts()
	c.tracing()
	c.domains(c.file.Envoy, path{}.key("envoy"))
}
