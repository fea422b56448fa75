package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sort"
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
	in.misspelt()
	pools := in.pools()
	c, err := budget.FromEnv(in.list)
	in.note(err)
	if in.own == 0 && len(pools) == 0 && len(r.problems) == 0 {
		r.complain(place{source: name}, nil, "has none of the variables %s, ETHEREUM_RPC_PRIMARY, ETHEREUM_RPC_URLS", strings.Join(budget.Variables(), ", "))
	}
	if err := r.err(nil); err != nil {
		return nil, nil, err
	}
	root := newMapping(place{})
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Imported from %s.", strings.Map(oneColumn, name))
	list := accounts(pools)
	if len(list) == 0 && in.own > 0 { // the variables are about a budget whose calls other programs make
		list = []string{""}
	}
	if len(list) > 0 {
		b.WriteString(" Add your plan's monthly limit, which these variables do not have: docs/budgets.md.")
		root.put("budgets", budgetsNode(&c, list))
	}
	b.WriteString("\n")
	in.neverSent(&c, list)
	for _, n := range in.noted {
		fmt.Fprintf(&b, "# %s: %s\n", n.Path, n.Text)
	}
	if len(pools) > 0 {
		root.put("routes", routesNode(pools, list))
		b.WriteString(in.poolComments(pools, name))
	}
	p := &printer{}
	p.mapping(root, "")
	_ = p.write(&b) // a Buffer takes everything
	if _, err := Parse(name, b.Bytes(), poolEnviron(pools), nil); err != nil {
		return nil, nil, err
	}
	return b.Bytes(), append(in.notes(), in.noted...), nil
}

// alchemyImport collects variables.
type alchemyImport struct {
	*report
	list   []string // NAME=value
	places map[string]place
	own    int    // of those that budget.FromEnv reads
	noted  []Note // notes that are comments of the result, too
	others []Note // about variables of the environment whose names may be misspelt, and about values that need quotes
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
			text, problem := unquoted(value)
			isPool := poolVariable.MatchString(variable)
			if problem != "" && (isOwn(variable) || isPool) {
				in.complain(at, path{}.key(variable), "%s", problem)
				continue
			}
			if isPool && needsQuotes(value, text) {
				in.others = append(in.others, Note{name, number, variable, "has no quotes, which a shell that reads the file needs: put the value in quotes"})
			}
			in.add(variable, text, at)
		}
	}
}

// unquoted returns a value without its quotes or the comment after it, and what is wrong with it.
func unquoted(value string) (text, problem string) {
	value = strings.TrimSpace(value)
	if value == "" || value[0] != '"' && value[0] != '\'' {
		value, _, _ = strings.Cut(value, " #")
		return strings.TrimSpace(value), ""
	}
	text, rest, closed := strings.Cut(value[1:], value[:1])
	switch rest = strings.TrimSpace(rest); {
	case !closed:
		return "", "has no closing quote: add it to the end of the line"
	case rest != "" && rest[0] != '#':
		return "", "has something behind its closing quote, where only a # comment may be"
	}
	return text, ""
}

// needsQuotes reports whether a shell would read a value without quotes differently. text is the value without its comment.
func needsQuotes(value, text string) bool {
	value = strings.TrimSpace(value)
	return value != "" && value[0] != '"' && value[0] != '\'' && strings.ContainsAny(text, " \t&;|<>()$`\\")
}

// misspelt notes variables whose names are almost those of a variable: as problems if they are in the file. The
// environment may have variables of other programs, so of those there is a note.
func (in *alchemyImport) misspelt() {
	for variable, at := range in.places {
		near := nearVariable(variable)
		switch {
		case near == "":
		case at.line > 0:
			in.complain(at, path{}.key(variable), "unknown variable: did you mean %s?", near)
		default:
			in.others = append(in.others, Note{"the environment", 0, variable, "is ignored: did you mean " + near + "?"})
		}
	}
	slices.SortFunc(in.others, func(a, b Note) int { return strings.Compare(a.Path, b.Path) })
}

// nearVariable returns the variable that a name may be a misspelling of, "" if it is one of them or like none. A name
// that budget.FromEnv does not take for its own has two letters wrong at most, one if it is that of a pool.
func nearVariable(name string) string {
	if slices.Contains(budget.Variables(), name) || poolVariable.MatchString(name) {
		return ""
	}
	upper := strings.ToUpper(name)
	for _, v := range budget.Variables() {
		if distance(upper, v) <= 2 {
			return v
		}
	}
	chain, rest, _ := strings.Cut(upper, "_")
	for _, v := range []string{"RPC_PRIMARY", "RPC_URLS"} {
		if chain != "" && distance(rest, v) <= 1 {
			return chain + "_" + v
		}
	}
	return ""
}

// isOwn reports whether budget.FromEnv reads a variable.
func isOwn(variable string) bool { return slices.Contains(budget.Variables(), variable) }

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
	if isOwn(variable) {
		in.own++
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
		if nearVariable(name) != "" && in.places[name].line > 0 {
			continue // misspelt has said so
		}
		at, where := in.places[name], path{}.key(name)
		if at.line == 0 { // of the environment, or the default of a variable that is not set
			at, where = place{source: name}, nil
		}
		if !isOwn(name) {
			in.complain(at, where, "%s", unknown("unknown variable of a budget", name, budget.Variables()))
			continue
		}
		in.complain(at, where, "%s", bad.Text())
	}
}

// notes returns what is taken over in another way.
func (in *alchemyImport) notes() []Note {
	const name = "ALCHEMY_WINDOW_SIZE_MS"
	at, ok := in.places[name]
	if !ok {
		return in.others
	}
	return append(in.others, Note{at.source, at.line, name, "is the burst, how much may be used at once: the limits are a rate and the provider's ten seconds, whatever the window"})
}

// neverSent notes a budget under which transactions can never be sent by requests that name no class.
func (in *alchemyImport) neverSent(c *budget.Config, accounts []string) {
	const method, unit = "eth_sendRawTransaction", "throughput"
	cost, unlisted := c.Costs.Cost(method)
	p, err := c.Policy()
	if len(accounts) == 0 || unlisted != nil || err != nil { // the configuration is checked later
		return
	}
	note := func(format string, args ...any) {
		in.noted = append(in.noted, Note{"budgets", 0, method, fmt.Sprintf(format, args...)})
	}
	for _, l := range slices.Backward(p.Limits) { // the first one has the classes
		has, err := weir.NewPolicy(c.Name, l.Limit)
		if err != nil || l.Unit != unit || has.Capacity() >= cost[unit] {
			continue
		}
		if len(has.ClassNames()) == 0 {
			note("no request can ever send it, because it costs %d units of %s and the limit %s has at most %d at once", cost[unit], unit, l.Name, has.Capacity())
			return
		}
		remedies := []string{}
		for _, name := range has.ClassNames() {
			if of, err := has.Class(name); err == nil && of.Capacity() >= cost[unit] {
				remedies = append(remedies, "send it with the class "+name)
			}
		}
		if burst := enoughBurst(l.Limit, cost[unit]); burst > 0 {
			remedies = append(remedies, fmt.Sprintf("raise burst to %d", burst))
		}
		if len(remedies) == 0 {
			remedies = append(remedies, "change the shares of the classes and raise burst")
		}
		note("requests without a class are of %s and can never send it, because it costs %d units of %s and they have at most %d at once: %s",
			has.ClassName(), cost[unit], unit, has.Capacity(), either(remedies))
		return
	}
}

// enoughBurst returns a burst with which a limit admits a cost without a class, 0 if there is none.
func enoughBurst(l weir.Limit, cost int64) int64 {
	const step, most = 50, 1000 // to a round number
	n := sort.Search(most, func(i int) bool {
		l.Burst = int64(i) * step
		p, err := weir.NewPolicy("x", l)
		return err == nil && p.Capacity() >= cost
	})
	if n == most {
		return 0
	}
	return int64(n) * step
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
