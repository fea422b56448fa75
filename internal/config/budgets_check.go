package config

import (
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/fielderr"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server"
)

func (list *Budgets) check(c *checker, root path) {
	names := c.keys(root)
	if len(names) > server.MaxBudgets {
		c.wrong(root, "there are %d: at most %d fit", len(names), server.MaxBudgets)
	}
	for _, name := range names {
		file := (*list)[name]
		b := &budgetChecker{checker: c, file: &file, root: root.key(name), name: name}
		b.checkName()
		out := b.config()
		b.note(out.Validate())
		c.out.server.Live.Budgets = append(c.out.server.Live.Budgets, out)
	}
}

// budgetChecker makes the configuration of a budget, and finds the places of its problems.
type budgetChecker struct {
	*checker
	file    *Budget
	root    path // where the budget is
	name    string
	classes []string // in the order of the file
	prepaid []string // the units, in the order of the file
}

// checkName refuses a name that a policy has.
func (b *budgetChecker) checkName() {
	whose := ""
	if _, taken := b.checker.file.Policies[b.name]; taken {
		whose = "a policy"
	}
	if g := b.out.server.Live.Guard; g != nil && slices.ContainsFunc(g.Policies(), func(p ruleset.Policy) bool { return p.Name == b.name }) {
		whose = "a policy of the guard"
	}
	if whose != "" {
		b.complain(b.keyPlace(b.root), b.root, "is also the name of %s, and a budget is a policy, too: rename one of them", whose)
	}
}

// config returns the configuration of package budget.
func (b *budgetChecker) config() budget.Config {
	f := b.file
	out := budget.Config{Name: b.name, Preset: string(f.Preset), Limits: b.limits(), Pace: f.Pace, OnError: f.OnError.OnError, Thresholds: b.thresholds()}
	if f.Classes != nil {
		out.Classes = b.classList()
	}
	for _, unit := range b.keys(b.root.key("prepaid")) {
		b.prepaid = append(b.prepaid, unit)
		out.Limits = append(out.Limits, budget.Prepaid(unit, int64(f.Prepaid[unit])))
	}
	if f.Costs != nil {
		out.Costs = b.costs()
	}
	return out
}

// limits returns the limits of the file, which have neither classes nor keys of their own.
func (b *budgetChecker) limits() []ruleset.Limit {
	root := b.root.key("limits")
	for i := range b.file.Limits {
		l, at := &b.file.Limits[i], root.item(i)
		if len(l.Classes) > 0 {
			b.wrong(at.key("classes"), "are those of the budget: move them to %s", b.root.key("classes"))
			l.Classes = nil
		}
		if l.By != "" {
			b.wrong(at.key("by"), "is for policies: a budget has one key, the account's")
			l.By = ""
		}
	}
	return limitsAt(b.checker, b.file.Limits, root)
}

// classList returns the classes, an empty list if the file says that there are none.
func (b *budgetChecker) classList() []budget.Class {
	list, root := []budget.Class{}, b.root.key("classes")
	for _, name := range b.keys(root) {
		k := (*b.file.Classes)[name]
		b.classes = append(b.classes, name)
		list = append(list, budget.Class{
			Name: name, Share: float64(k.Guaranteed.Part) / 100, Guaranteed: k.Guaranteed.Units, Burst: k.Burst, NoBorrow: !k.Borrow,
		})
	}
	return list
}

// thresholds returns the thresholds. Those that could not be decoded have their default.
func (b *budgetChecker) thresholds() (out budget.Thresholds) {
	f, at := &b.file.Thresholds, b.root.key("thresholds")
	if f.Resume != nil && *f.Resume == budget.Off {
		b.wrong(at.key("resume"), "must be a percentage: without it, a pause would never end")
		f.Resume = nil
	}
	for _, t := range []struct {
		name string
		from *Threshold
		to   **int
	}{{"warning", f.Warning, &out.Warning}, {"pause", f.Pause, &out.Pause}, {"critical", f.Critical, &out.Critical}, {"resume", f.Resume, &out.Resume}} {
		if t.from != nil && b.isKnown(at.key(t.name)) {
			*t.to = new(int(*t.from))
		}
	}
	return out
}

// costs returns the table, nil if it is not known.
func (b *budgetChecker) costs() *budget.Table {
	f, at := b.file.Costs, b.root.key("costs")
	table := b.table(at)
	if table == nil {
		return nil
	}
	o := budget.Overrides{Methods: map[string]budget.Amounts{}}
	for method, amounts := range f.Methods {
		o.Methods[method] = amounts.amounts()
	}
	if u := f.Unknown; u != nil && !b.isUnknown(at.key("unknown")) {
		o.Unknown = &budget.Unknown{Refuse: bool(u.Refuse), Default: u.Default.amounts()}
	}
	changed, err := table.With(o)
	for _, e := range fielderr.Split(err) {
		bad, _ := errors.AsType[*fielderr.Error](e)
		b.wrong(at.below(bad.Path, reflect.TypeFor[Costs]()), "%s", bad.Text())
	}
	return changed
}

// amounts returns the amounts of package budget.
func (a Amounts) amounts() budget.Amounts {
	out := make(budget.Amounts, len(a))
	for unit, n := range a {
		out[unit] = int64(n)
	}
	return out
}

// table returns the table that the costs at a path begin with, nil if there is none.
func (b *budgetChecker) table(at path) *budget.Table {
	f := b.file.Costs.Table
	switch {
	case f.Builtin != "":
		table, _ := budget.BuiltinTable(f.Builtin) // set has found it
		return table
	case f.Name != "":
		return b.tableFile(f.Path, at.key("table"))
	case !b.isKnown(b.root.key("preset")):
		return nil // the problem is noted there
	case b.file.Preset != "":
		p, _ := budget.Preset(string(b.file.Preset)) // the decoder knows those there are
		return p.Costs
	}
	b.wrong(at.key("table"), "is missing: add one, such as table: alchemy, or the path of a file with the costs")
	return nil
}

// tableFile returns the table in a file.
func (b *budgetChecker) tableFile(p Path, at path) *budget.Table {
	data, _, ok := b.content(p, at)
	if !ok {
		return nil
	}
	table, err := budget.ParseTable(data)
	for _, e := range fielderr.Split(err) {
		b.complain(b.at(at), at, "%s: %s", p.Name, strings.TrimPrefix(e.Error(), "budget: "))
	}
	return table
}

// inBudgets turns what is written in Go into what is in the file.
var inBudgets = strings.NewReplacer("Warning", "warning", "Pause", "pause", "Critical", "critical", "Classes: []Class{}", "`classes: {}`")

// note notes the problems of package budget where they are.
func (b *budgetChecker) note(err error) {
	for _, e := range fielderr.Split(err) {
		bad, ok := errors.AsType[*fielderr.Error](e)
		if !ok {
			b.wrong(b.root, "%v", e)
			continue
		}
		at, text := b.pathOf(bad.Path), inBudgets.Replace(inFiles.Replace(bad.Text()))
		switch {
		case b.mayFollow(bad.Path, at):
		case len(at) == len(b.root): // the name
			b.complain(b.keyPlace(at), at, "%s", text)
		default:
			b.wrong(at, "%s", text)
		}
	}
}

// mayFollow reports whether a problem may be there only because of a field that is not known.
func (b *budgetChecker) mayFollow(steps []any, at path) bool {
	if limit := at.limit(); limit != nil {
		return b.isUnknown(limit) && !slices.Contains(independent, at[len(at)-1].key)
	}
	if steps[0] == "Thresholds" {
		return b.isUnknown(b.root.key("thresholds"))
	}
	fromPreset := steps[0] == "Limits" || steps[0] == "Classes" || steps[0] == "Costs"
	return fromPreset && !b.isKnown(b.root.key("preset"))
}

// pathOf returns the path of a field that package budget names.
func (b *budgetChecker) pathOf(steps []any) path {
	t := reflect.TypeFor[Budget]()
	switch {
	case len(steps) == 0 || steps[0] == "name":
		return b.root
	case len(steps) < 2:
	case steps[0] == "Classes":
		at := b.root.key("classes").key(b.classes[steps[1].(int)])
		if steps[2] == "Share" {
			return at.key("guaranteed")
		}
		return at.below(steps[2:], reflect.TypeFor[Class]())
	case steps[0] == "Limits" && steps[1].(int) >= len(b.file.Limits):
		return b.root.key("prepaid").key(b.prepaid[steps[1].(int)-len(b.file.Limits)])
	}
	return b.root.below(steps, t)
}
