package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/fielderr"
	"github.com/weirlimit/weir/ruleset"
)

// ImportAlchemy turns the environment variables of a compute-unit budget, which budget.FromEnv reads, into a
// configuration with a budgets section; and those of pools of accounts, such as ETHEREUM_RPC_URLS, into routes. The data
// is a file with a line NAME=value for each; those of environ replace them. Other variables are ignored, and if there
// is none of them, that is a problem. Addresses have keys in them, so the configuration refers to variables.
func ImportAlchemy(name string, data []byte, environ []string) ([]byte, []Note, error) {
	r := newReport("")
	r.text.lines = nil // a file of variables has secrets, so no line is shown
	in := &alchemyImport{report: r, places: map[string]place{}}
	in.file(name, plainText(data))
	in.environment(environ)
	pools := in.pools()
	if in.own == 0 && len(pools) == 0 && len(r.problems) == 0 {
		r.complain(place{source: name}, nil, "has none of the variables %s, ETHEREUM_RPC_PRIMARY, ETHEREUM_RPC_URLS", strings.Join(budget.Variables(), ", "))
	}
	if err := r.err(nil); err != nil {
		return nil, nil, err
	}
	c, err := budget.FromEnv(in.list)
	in.note(err)
	if err := r.err(nil); err != nil {
		return nil, nil, err
	}
	root := newMapping(place{})
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Imported from %s. Add the month of your plan: docs/budgets.md.\n", strings.Map(oneColumn, name))
	list := accounts(pools)
	root.put("budgets", budgetsNode(&c, list))
	if len(pools) > 0 {
		root.put("routes", routesNode(pools, list))
		b.WriteString(poolComments(pools))
	}
	p := &printer{}
	p.mapping(root, "")
	_ = p.write(&b) // a Buffer takes everything
	if _, err := Parse(name, b.Bytes(), poolEnviron(pools), nil); err != nil {
		return nil, nil, err
	}
	return b.Bytes(), in.notes(), nil
}

// alchemyImport collects variables.
type alchemyImport struct {
	*report
	list   []string // NAME=value
	places map[string]place
	own    int // of those that budget.FromEnv reads
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// file reads the lines of a file. They may begin with export, have quotes, and end with a comment.
func (in *alchemyImport) file(name, content string) {
	number := 0
	for line := range strings.Lines(content) {
		number++
		text := strings.TrimSpace(line)
		if text == "" || text[0] == '#' {
			continue
		}
		variable, value, ok := strings.Cut(strings.TrimPrefix(text, "export "), "=")
		at := place{source: name, line: number, column: 1}
		switch _, twice := in.places[variable]; {
		case !ok || !variableName.MatchString(variable):
			in.complain(at, nil, "is not a variable: write NAME=value")
		case twice:
			in.complain(at, path{}.key(variable), "is there twice")
		default:
			in.add(variable, unquoted(value), at)
		}
	}
}

// unquoted returns a value without its quotes or the comment after it.
func unquoted(value string) string {
	value = strings.TrimSpace(value)
	if n := len(value); n > 1 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
		return value[1 : n-1]
	}
	value, _, _ = strings.Cut(value, " #")
	return strings.TrimSpace(value)
}

// environment adds the variables of the environment.
func (in *alchemyImport) environment(environ []string) {
	for _, text := range environ {
		if variable, value, ok := strings.Cut(text, "="); ok {
			in.add(variable, value, place{source: variable})
		}
	}
}

func (in *alchemyImport) add(variable, value string, at place) {
	in.list, in.places[variable] = append(in.list, variable+"="+value), at
	for _, own := range budget.Variables() {
		if variable == own {
			in.own++
		}
	}
}

// note notes the problems of variables where they are.
func (in *alchemyImport) note(err error) {
	for _, e := range fielderr.Split(err) {
		bad, ok := errors.AsType[*fielderr.Error](e)
		if !ok {
			in.complain(place{}, nil, "%v", e)
			continue
		}
		name := fmt.Sprint(bad.Path[0])
		at, where := in.places[name], path{}.key(name)
		if at.line == 0 { // of the environment, or the default of a variable that is not set
			at, where = place{source: name}, nil
		}
		in.complain(at, where, "%s", bad.Text())
	}
}

// notes returns what is taken over in another way.
func (in *alchemyImport) notes() []Note {
	const name = "ALCHEMY_WINDOW_SIZE_MS"
	at, ok := in.places[name]
	if !ok {
		return nil
	}
	return []Note{{at.source, at.line, name, "is the burst, how much may be used at once: the limits are a rate and the provider's ten seconds, whatever the window"}}
}

// mappingOf returns a mapping with one key.
func mappingOf(key string, value *node) *node {
	n := newMapping(place{})
	n.put(key, value)
	return n
}

// budgetNode returns a budget of budget.FromEnv as the file has it.
func budgetNode(c *budget.Config) *node {
	out := newMapping(place{})
	limits := &node{kind: sequence}
	for i := range c.Limits {
		limits.items = append(limits.items, limitNode(&c.Limits[i]))
	}
	out.put("limits", limits)
	classes := newMapping(place{})
	for _, k := range c.Classes {
		classes.put(k.Name, mappingOf("guaranteed", numberNode(k.Guaranteed)))
	}
	out.put("classes", classes)
	out.put("costs", costsNode(c.Costs))
	thresholds := newMapping(place{})
	thresholds.put("warning", newScalar(strconv.Itoa(*c.Thresholds.Warning)+"%", place{}))
	thresholds.put("pause", newScalar(strconv.Itoa(*c.Thresholds.Pause)+"%", place{}))
	out.put("thresholds", thresholds)
	return out
}

func numberNode(n int64) *node { return newScalar(strconv.FormatInt(n, 10), place{}) }

// limitNode returns a limit with what is not the default.
func limitNode(l *ruleset.Limit) *node {
	out := newMapping(place{})
	if l.Name != "" {
		out.put("name", newScalar(l.Name, place{}))
	}
	out.put("rate", numberNode(l.Rate))
	out.put("per", newScalar(l.Per.String(), place{}))
	if l.Burst != 0 {
		out.put("burst", numberNode(l.Burst))
	}
	if l.Algorithm != weir.Auto {
		out.put("algorithm", newScalar(l.Algorithm.String(), place{}))
	}
	out.put("unit", newScalar(l.Unit, place{}))
	if l.OnError != 0 {
		out.put("on_error", newScalar(l.OnError.String(), place{}))
	}
	return out
}

// costsNode returns a table that comes with weir, with another default for methods that it does not list.
func costsNode(t *budget.Table) *node {
	info := t.Info()
	byDefault := newMapping(place{})
	cost, _ := t.Cost("a method that no table lists") // it has a default
	for _, u := range info.Units {
		byDefault.put(u.Name, numberNode(cost[u.Name]))
	}
	out := mappingOf("table", newScalar(info.Name, place{}))
	out.put("unknown", mappingOf("default", byDefault))
	return out
}
