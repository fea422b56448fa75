package config

import (
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/weirlimit/weir/ruleset"
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

	name     string // the file's, "" for none
	tree     *node
	settings []Setting
	server   server.Config
	loaded   contents
}

// Load reads a configuration file. With no path, everything has its default. The
// environment, which os.Environ returns, and then flags change what the file says. The
// error is an *Error with everything that is wrong.
func Load(path string, environ []string, flags ...Flag) (*Config, error) {
	if path == "" {
		return parse("", nil, 0, environ, readFile, flags)
	}
	data, mode, err := readFile(path)
	if err != nil {
		loaded := contents{}
		loaded.note(path, data, err)
		return nil, &Error{Problems: []*Problem{{File: path, Text: fmt.Sprintf("cannot be read: %v", err)}}, loaded: loaded}
	}
	return parse(path, data, mode, environ, readFile, flags)
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
	tree := parseYAML(orDefault(name), content, r)
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
	o := &overlay{report: r, set: map[string]string{}}
	variables, ours := o.variables(environ)
	for _, a := range ours {
		o.apply(tree, a)
	}
	o.set = map[string]string{}
	for _, a := range flagAssignments(flags) {
		o.apply(tree, a)
	}
	out := &Config{name: name, tree: tree, loaded: loaded}
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
	c.settings = d.settings
	check := &checker{report: d.report, file: &c.File, tree: c.tree, read: read, out: c}
	check.all()
}

func orDefault(name string) string {
	if name == "" {
		return fromDefault
	}
	return name
}

// Name returns the name of the file, "" if there was none.
func (c *Config) Name() string { return c.name }

// Files returns the files that the configuration was made from: its own, and those with
// secrets and certificates.
func (c *Config) Files() []string { return slices.Sorted(maps.Keys(c.loaded)) }

// Settings returns every value that is in force, and where it comes from. Secrets are
// masked.
func (c *Config) Settings() []Setting { return slices.Clone(c.settings) }

// Policies returns the policies in the order of the file.
func (c *Config) Policies() []ruleset.Policy { return slices.Clone(c.server.Live.Policies) }

// LogLevel returns the least level that is logged.
func (c *Config) LogLevel() slog.Level { return c.File.Log.Level.Level }
