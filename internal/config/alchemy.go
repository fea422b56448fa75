package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/fielderr"
	"github.com/weirlimit/weir/ruleset"
)

// ImportAlchemy turns the variables of budget.FromEnv into a configuration with a budgets section. They are
// lines of the form NAME=value in a file, as shells and container tools read them; those of environ go
// before them.
func ImportAlchemy(name string, data []byte, environ []string) ([]byte, []Note, error) {
	r := newReport(plainText(data))
	lines, at := environLines(name, string(plainText(data)))
	c, err := budget.FromEnv(append(lines, environ...))
	for _, e := range fielderr.Split(err) {
		bad, ok := errors.AsType[*fielderr.Error](e)
		if !ok {
			return nil, nil, e
		}
		variable := fmt.Sprint(bad.Path[0])
		where, listed := at[variable]
		if !listed {
			where = place{source: "environment variable " + variable}
		}
		r.complain(where, nil, "%s %s", variable, bad.Text())
	}
	if err := r.err(nil); err != nil {
		return nil, nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Imported from %s.\n", strings.Map(oneColumn, name))
	writeBudget(&b, &c)
	note := Note{File: name, Path: "ALCHEMY_CU_PER_SECOND", Text: "3 % of the rates stays free, so that calls that take longer on their way than others do not exceed the provider's ten seconds"}
	if _, err := Parse("the result", b.Bytes(), nil, nil); err != nil {
		return nil, nil, err
	}
	return b.Bytes(), []Note{note}, nil
}

// environLines returns the assignments of a file of variables, and where they are.
func environLines(name, text string) (list []string, at map[string]place) {
	at = map[string]place{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimPrefix(strings.TrimSpace(line), "export ")
		variable, value, ok := strings.Cut(line, "=")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		variable, value = strings.TrimSpace(variable), strings.TrimSpace(value)
		if n := len(value); n > 1 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
			value = value[1 : n-1]
		}
		list = append(list, variable+"="+value)
		at[variable] = place{source: name, line: i + 1, column: 1}
	}
	return list, at
}

// writeBudget writes a configuration of budget.FromEnv.
func writeBudget(b *bytes.Buffer, c *budget.Config) {
	fmt.Fprintf(b, "budgets:\n  %s:\n    limits:\n", c.Name)
	for _, l := range c.Limits {
		fmt.Fprintf(b, "      - {%s}\n", limitText(l))
	}
	b.WriteString("    classes:\n")
	for _, class := range c.Classes {
		fmt.Fprintf(b, "      %s: {guaranteed: %d}\n", class.Name, class.Guaranteed)
	}
	unknown := c.Costs.Unknown().Default
	fmt.Fprintf(b, "    costs: {table: %s, unknown: {default: {cu: %d, throughput: %d}}}\n", c.Costs.Info().Name, unknown["cu"], unknown["throughput"])
	fmt.Fprintf(b, "    thresholds: {warning: %d%%, pause: %d%%}\n", *c.Thresholds.Warning, *c.Thresholds.Pause)
}

func limitText(l ruleset.Limit) string {
	text := fmt.Sprintf("rate: %d, per: %s", l.Rate, l.Per.Duration())
	if l.Name != "" {
		text = fmt.Sprintf("name: %s, %s", l.Name, text)
	}
	if l.Burst != 0 {
		text += fmt.Sprintf(", burst: %d", l.Burst)
	}
	if l.Algorithm != weir.Auto {
		text += ", algorithm: " + l.Algorithm.String()
	}
	if l.OnError != weir.OnError(0) {
		text += ", on_error: " + l.OnError.String()
	}
	return text + ", unit: " + l.Unit
}
