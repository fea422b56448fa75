package config

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// ImportSuibase turns the links of a suibase.yaml into a route with the endpoints that they are. The route is called
// what the workdir is, which is the directory of the file.
func ImportSuibase(name string, data []byte) ([]byte, []Note, error) {
	content := plainText(data)
	r := newReport(content)
	tree := parseYAML(name, content, r)
	if tree == nil {
		return nil, nil, r.err(nil)
	}
	in := &suibaseImport{report: r, name: name}
	route := in.route(tree)
	if err := r.err(nil); err != nil {
		return nil, nil, err
	}
	root := newMapping(place{})
	root.put("routes", mappingOf(workdir(name), route))
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Imported from %s.\n", strings.Map(oneColumn, name))
	p := &printer{}
	p.mapping(root, "")
	_ = p.write(&b) // a Buffer takes everything
	out := &Config{tree: root, loaded: contents{}}
	out.fill(&decoder{report: r}, readFile)
	for _, p := range r.problems {
		p.Path = strings.Replace(strings.TrimPrefix(p.Path, "routes."+workdir(name)+"."), "upstreams", "links", 1) // as it is in that file
	}
	if err := r.err(nil); err != nil {
		return nil, nil, err
	}
	return b.Bytes(), in.notes, nil
}

var notInRoutes = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// workdir returns the name of a file's route.
func workdir(file string) string {
	name := filepath.Base(filepath.Dir(file))
	if base := filepath.Base(file); base != "suibase.yaml" || name == "." || name == "/" {
		name = strings.TrimSuffix(base, filepath.Ext(base))
	}
	if name = strings.Trim(notInRoutes.ReplaceAllString(name, "-"), "-"); name == "" || len(name) > 48 {
		return "sui"
	}
	return name
}

// suibaseImport makes a route of links.
type suibaseImport struct {
	*report
	name  string
	notes []Note
}

func (in *suibaseImport) note(at place, where path, text string) {
	in.notes = append(in.notes, Note{in.name, at.line, where.String(), text})
}

// route returns the route of a file.
func (in *suibaseImport) route(tree *node) *node {
	out := newMapping(tree.at)
	out.put("kind", newScalar("jsonrpc", place{}))
	out.put("probe", mappingOf("method", newScalar("sui_getChainIdentifier", place{})))
	list := &node{kind: sequence, at: tree.at}
	links := tree.child("links")
	switch {
	case links == nil || links.kind != sequence:
		in.complain(tree.at, nil, "has no links: they are a list, as in links: [{alias: sui.io, rpc: \"https://fullnode.testnet.sui.io\"}]")
		return out
	case len(links.items) == 0:
		in.complain(links.at, path{}.key("links"), "is empty")
	}
	for _, p := range tree.pairs {
		if p.key != "links" {
			in.note(p.at, path{}.key(p.key), "left out: only links are endpoints")
		}
	}
	for i, link := range links.items {
		list.items = append(list.items, in.link(link, path{}.key("links").item(i)))
	}
	out.put("upstreams", list)
	return out
}

// linkFields are the fields of a link, which have the same names here.
var linkFields = []string{"alias", "rpc", "ws", "priority", "selectable", "monitored", "max_per_secs", "max_per_min"}

// link returns the endpoint that a link is.
func (in *suibaseImport) link(link *node, at path) *node {
	if link.kind != mapping {
		in.complain(link.at, at, "is %v: must be a mapping of %s", link.kind, strings.Join(linkFields, ", "))
		return link
	}
	out := newMapping(link.at)
	for _, name := range linkFields {
		value := link.child(name)
		if value == nil || value.kind == null { // which means the same there
			continue
		}
		where := at.key(name)
		switch name {
		case "selectable", "monitored":
			truth(value)
		case "priority":
			if value.text == "0" {
				value.text = "1"
				in.note(value.at, where, "0 becomes 1, which is the first here")
			}
		case "rpc", "ws":
			if value.kind == scalar && !publicURL.MatchString(value.text) && !wholeVariable.MatchString(value.text) {
				in.note(value.at, where, "may have a key in it: put it into a variable and write \"${NAME}\" instead")
			}
			value.quoted = true
		}
		out.put(name, value)
	}
	for _, p := range link.pairs {
		if out.child(p.key) == nil && p.value.kind != null {
			in.note(p.at, at.key(p.key), "left out: a link has no such field")
		}
	}
	return out
}
