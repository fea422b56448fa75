package config

import (
	"cmp"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/weirlimit/weir/server"
)

// Config is a valid configuration: the file, the environment, flags and defaults together, in
// the types of the packages that use it. It is not changed after Load.
type Config struct {
	// File is what is in force, in the form of the file.
	File File

	// Store is what the store is made from.
	Store StoreSettings

	// Warnings are what is no error, for example a token in a file that others can read.
	Warnings []*Problem

	tree   *node
	server server.Config
	loaded contents
}

// Load reads a configuration file. With no path, everything has its default. The
// environment, which os.Environ returns, and then flags change what the file says. The
// error is an *Error with everything that is wrong.
func Load(path string, environ []string, flags ...Flag) (*Config, error) {
	if path == "" {
		return parse("", nil, 0, environ, readRegular, flags)
	}
	data, mode, err := readFile(path)
	if err != nil {
		loaded := contents{}
		loaded.note(path, data, err)
		return nil, &Error{Problems: []*Problem{{File: path, Text: fmt.Sprintf("cannot be read: %v", err)}}, loaded: loaded}
	}
	return parse(path, data, mode, environ, readRegular, flags)
}

// Parse is Load for a file's content. Files that it names are read by read; nil means
// those of the file system. They are relative to the directory of name.
func Parse(name string, data []byte, environ []string, read FileReader, flags ...Flag) (*Config, error) {
	if read == nil {
		read = readFile
	}
	return parse(name, data, 0, environ, read, flags)
}

func parse(name string, data []byte, mode fs.FileMode, environ []string, read FileReader, flags []Flag) (*Config, error) {
	content := plainText(data)
	r := newReport(content)
	loaded := contents{}
	if name != "" {
		loaded.note(name, data, nil)
	}
	tree := parseYAML(cmp.Or(name, fromDefault), content, r)
	if tree == nil {
		return nil, r.err(loaded)
	}
	if tree.kind == null {
		if name != "" { // it is being written, or all of it was commented out, tokens of clients included
			r.complain(tree.at, nil, "there is nothing in the file but comments or spaces: write {} if everything shall have its default")
			return nil, r.err(loaded)
		}
		tree.kind = mapping
	}
	variables, ours := variables(environ)
	r.overlay(tree, ours)
	var given []assignment
	for _, f := range flags {
		given = append(given, assignment{f.Name, strings.Split(f.Path, "."), f.Value})
	}
	r.overlay(tree, given)
	out := &Config{tree: tree, loaded: loaded}
	d := &decoder{report: r, environ: variables, dir: filepath.Dir(name), exposed: mode&worldReadable != 0}
	out.fill(d, read)
	if err := r.err(loaded); err != nil {
		return nil, err
	}
	out.Warnings = r.finish(r.warnings)
	return out, nil
}

// fill makes everything else of the tree. What is wrong is in the decoder's report.
func (c *Config) fill(d *decoder, read FileReader) {
	d.value(c.tree, reflect.ValueOf(&c.File).Elem(), nil)
	c.server.Live.Effective = d.settings
	check := &checker{report: d.report, file: &c.File, tree: c.tree, read: read, out: c}
	check.all()
}

// Server returns the part of the configuration that is the server's. The caller adds the
// Limiter, the log and what else is not in a file.
func (c *Config) Server() server.Config { return c.server }

// HasDefaultPolicy reports whether the only policy is the one that there is because the configuration has none.
func (c *Config) HasDefaultPolicy() bool {
	policies := c.tree.child("policies")
	return policies != nil && policies.at.source == fromDefault
}

// Live returns what a running server can take over from the configuration. Effective is every value
// that is in force, and where it comes from, with secrets masked.
func (c *Config) Live() server.Live { return c.server.Live }
