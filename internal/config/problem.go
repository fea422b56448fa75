package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is something that is wrong with a configuration, or that is worth a warning.
type Problem struct {
	File   string // the file's name, a variable's such as "WEIR__STORE__KIND", a flag's or "default"
	Line   int    // from 1; 0 if it is not in a file
	Column int    // from 1, in characters
	Path   string // for example "policies.api.limits[2].rate"; "" if it is about the whole
	Text   string // what is wrong and what to do, on one line
	Shown  string // the line of the file with a mark under the place; secrets are masked. Only the first 50 problems have it

	at      place
	partial bool // a field of the value is missing or does not exist; the others are known
}

// Where returns file:line:column, or what of it there is.
func (p *Problem) Where() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Summary returns where the problem is and what it is, on one line.
func (p *Problem) Summary() string {
	if p.Path == "" {
		return p.Where() + ": " + p.Text
	}
	return p.Where() + ": " + p.Path + ": " + p.Text
}

// Error returns the Summary and, on two lines more, the place in the file.
func (p *Problem) Error() string { return strings.TrimSuffix(p.Summary()+"\n"+p.Shown, "\n") }

// Error is everything that is wrong with a configuration.
type Error struct {
	Problems []*Problem // in the order of the file, those of the environment last
	loaded   contents   // what was read until then
}

// maxShown is how many problems Error prints, and have their line shown. A file may be one
// long line, and all of it wrong: to show that for each of 20,000 problems takes minutes.
const maxShown = 50

// Error returns all problems, one after the other.
func (e *Error) Error() string {
	var lines []string
	for _, p := range e.Problems[:min(len(e.Problems), maxShown)] {
		lines = append(lines, p.Error())
	}
	if more := len(e.Problems) - maxShown; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// report collects problems. They are shown only at the end, when it is known what is
// secret.
type report struct {
	text     *text
	problems []*Problem
	warnings []*Problem

	// unknown are paths of values that are missing or could not be decoded, incomplete those of
	// mappings in which one is missing or misspelt.
	unknown, incomplete map[string]bool
}

func newReport(content string) *report {
	return &report{text: newText(content), unknown: map[string]bool{}, incomplete: map[string]bool{}}
}

// complain notes a problem.
func (r *report) complain(at place, where path, format string, args ...any) {
	r.problems = append(r.problems, newProblem(at, where, format, args))
}

// warn notes what is no problem yet.
func (r *report) warn(at place, where path, format string, args ...any) {
	r.warnings = append(r.warnings, newProblem(at, where, format, args))
}

func newProblem(at place, where path, format string, args []any) *Problem {
	return &Problem{File: at.source, Line: at.line, Column: at.column, Path: where.String(), Text: fmt.Sprintf(format, args...), at: at}
}

// finish returns problems in order, the first ones with their place in the text.
func (r *report) finish(list []*Problem) []*Problem {
	slices.SortStableFunc(list, func(a, b *Problem) int {
		return cmp.Or(b2i(a.Line == 0)-b2i(b.Line == 0), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.File, b.File))
	})
	for _, p := range list[:min(len(list), maxShown)] {
		if p.Line > 0 {
			p.Shown = r.text.show(p.at)
		}
	}
	return list
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// err returns the problems as an error, nil if there are none.
func (r *report) err(loaded contents) error {
	if len(r.problems) == 0 {
		return nil
	}
	return &Error{Problems: r.finish(r.problems), loaded: loaded}
}
