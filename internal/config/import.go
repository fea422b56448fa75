package config

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Note describes something that was left out or changed when a file of another program
// was imported.
type Note struct {
	File string
	Line int
	Path string // in that file, for example "descriptors[0].detailed_metric"
	Text string
}

func (n Note) String() string {
	if n.Line == 0 { // of a variable
		return fmt.Sprintf("%s: %s: %s", n.File, n.Path, n.Text)
	}
	return fmt.Sprintf("%s:%d: %s: %s", n.File, n.Line, n.Path, n.Text)
}

// Stdin is the name of a file that is read from standard input.
const Stdin = "standard input"

// ImportEnvoy turns a configuration of envoyproxy/ratelimit, which is one domain, into
// one of ours with an envoy section. Fields that have no meaning here are left out with a
// note; those that ratelimit does not have, either, are problems.
func ImportEnvoy(name string, data []byte) ([]byte, []Note, error) {
	content := plainText(data)
	r := newReport(content)
	tree := parseYAML(name, content, r)
	if tree == nil {
		return nil, nil, r.err(nil)
	}
	in := &envoyImport{report: r, name: name}
	in.descriptors(tree.child("descriptors"), path{}.key("descriptors"))
	if tree.kind == mapping && tree.child("compat") == nil {
		tree.put("compat", newScalar("envoy", place{source: fromDefault}))
	}
	root := newMapping(tree.at)
	root.put("envoy", &node{kind: sequence, items: []*node{tree}, at: tree.at})
	out := &Config{tree: root, loaded: contents{}}
	out.fill(&decoder{report: r}, readFile)
	for _, p := range r.problems {
		p.Path = strings.TrimPrefix(strings.TrimPrefix(p.Path, "envoy[0]"), ".") // as it is in that file
	}
	if err := r.err(nil); err != nil {
		return nil, nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Imported from %s.\n", strings.Map(oneColumn, name))
	p := &printer{}
	p.value(root.child("envoy"), "envoy:", "  ")
	_ = p.write(&b) // a Buffer takes everything
	return b.Bytes(), in.notes, nil
}

// envoyImport takes out of a tree what only ratelimit knows.
type envoyImport struct {
	*report
	name  string
	notes []Note
}

func (in *envoyImport) note(at place, where path, text string) {
	in.notes = append(in.notes, Note{in.name, at.line, where.String(), text})
}

// withoutMeaning are fields of descriptors that have no effect here, and why.
var withoutMeaning = map[string]string{
	"detailed_metric": "left out: metrics here have no series per value",
	"value_to_metric": "left out: metrics here have no series per value",
	"metadata":        "left out: responses here have no metadata",
}

func (in *envoyImport) descriptors(list *node, at path) {
	if list == nil {
		return
	}
	for i, d := range list.items {
		where := at.item(i)
		d.pairs = slices.DeleteFunc(d.pairs, func(p pair) bool { return in.isWithoutMeaning(p, where) })
		for _, name := range []string{"shadow_mode", "quota_mode", "share_threshold"} {
			truth(d.child(name))
		}
		if key := d.child("key"); key != nil && strings.Contains(key.text, "*") {
			in.complain(key.at, where.key("key"), "a * in a key is not a pattern here, only one in a value: list the keys")
		}
		in.limit(d.child("rate_limit"), where.key("rate_limit"))
		in.descriptors(d.child("descriptors"), where.key("descriptors"))
	}
}

// isWithoutMeaning notes a field that is left out, unless it is off.
func (in *envoyImport) isWithoutMeaning(p pair, at path) bool {
	why, ok := withoutMeaning[p.key]
	if !ok {
		return false
	}
	truth(p.value)
	if p.value.text != "false" {
		in.note(p.at, at.key(p.key), why)
	}
	return true
}

// limit writes a limit the way it is written here: ratelimit takes units in any case,
// and what is absent as 0.
func (in *envoyImport) limit(l *node, at path) {
	if l == nil || l.kind != mapping {
		return
	}
	if unit := l.child("unit"); unit != nil {
		unit.text = strings.ToLower(unit.text)
	}
	unlimited, per := l.child("unlimited"), l.child("requests_per_unit")
	truth(unlimited)
	switch isUnlimited := unlimited != nil && unlimited.text == "true"; {
	case isUnlimited && per != nil:
		l.remove("requests_per_unit")
		in.note(per.at, at.key("requests_per_unit"), "left out: the limit is unlimited")
	case !isUnlimited && per == nil:
		l.put("requests_per_unit", newScalar("0", l.at))
		in.note(l.at, at, "has no requests_per_unit, which means 0: it refuses everything")
	}
}

// truth writes true and false the way they are written here.
func truth(n *node) {
	if n == nil || n.kind != scalar || n.quoted {
		return
	}
	switch strings.ToLower(n.text) {
	case "true", "yes", "on", "y":
		n.text = "true"
	case "false", "no", "off", "n":
		n.text = "false"
	}
}
