package report

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// surveyRows returns a row for each of weir's values. A bound, if there is one, is
// what the ratio refers to, or else the best peer.
func surveyRows(a harness.Answers) []Row {
	var rows []Row
	for i, sub := range a.Survey.Subjects {
		if sub.Kind != harness.Weir {
			continue
		}
		for k, f := range a.Survey.Figures {
			row := Row{Case: strings.Join([]string{sub.Name, a.Survey.Name, heading(f)}, ", "), Weir: a.Values[i][k]}
			row.BestPeer, row.BestPeerName = bestSubject(a, k)
			switch {
			case sub.Judged(f):
				row.Against, row.Ratio, row.Goal = bounds(f), within(f, row.Weir), 1
			case row.BestPeerName != "" && f.More:
				row.Against, row.Ratio = row.BestPeerName, AtLeast(row.BestPeer, row.Weir)
			case row.BestPeerName != "" && f.AtLeast == 0:
				row.Against, row.Ratio = row.BestPeerName, AtMost(row.BestPeer, row.Weir)
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// bounds names what is good: "at most 24", "at least 3" or "0.999 to 1.0005".
func bounds(f harness.Figure) string {
	switch {
	case f.AtLeast == 0:
		return "at most " + number(f.AtMost)
	case f.AtMost == 0:
		return "at least " + number(f.AtLeast)
	}
	return number(f.AtLeast) + " to " + number(f.AtMost)
}

// within expresses the bounds as a ratio whose goal is 1, which is how far v is on
// the good side of the nearer one.
func within(f harness.Figure, v float64) float64 {
	ratio := math.Inf(1)
	if f.AtMost > 0 {
		ratio = AtMost(f.AtMost, v)
	}
	if f.AtLeast > 0 {
		ratio = min(ratio, AtLeast(f.AtLeast, v))
	}
	return ratio
}

// bestSubject returns the best value of a peer for figure k, and whose it is.
func bestSubject(a harness.Answers, k int) (best float64, name string) {
	for i, sub := range a.Survey.Subjects {
		if v := a.Values[i][k]; sub.Kind == harness.Peer && (name == "" || a.Survey.Figures[k].Better(v, best)) {
			best, name = v, sub.Name
		}
	}
	return best, name
}

// writeSurveyText writes a table, the bounds below it.
func writeSurveyText(w io.Writer, a harness.Answers) {
	fmt.Fprintf(w, "%s\n", a.Survey.Name)
	if a.Missing != "" {
		fmt.Fprintf(w, "(left out: %s)\n\n", a.Missing)
		return
	}
	for _, f := range a.Survey.Figures {
		fmt.Fprintf(w, "\t%s", heading(f))
	}
	fmt.Fprint(w, "\t\n")
	for i, sub := range a.Survey.Subjects {
		fmt.Fprint(w, sub.Name)
		for k, v := range a.Values[i] {
			fmt.Fprintf(w, "\t%s", value(a.Survey.Figures[k], v))
		}
		fmt.Fprintf(w, "\t%s\n", boundVerdict(a, i))
	}
	if a.Disturbed > 0 {
		fmt.Fprintf(w, "(answers counted although somebody else had a core meanwhile: %d)\n", a.Disturbed)
	}
	fmt.Fprintln(w)
}

// boundVerdict says which bounds a subject keeps, or nothing if there are none.
func boundVerdict(a harness.Answers, i int) string {
	var b strings.Builder
	for k, f := range a.Survey.Figures {
		if a.Survey.Subjects[i].Judged(f) {
			fmt.Fprintf(&b, "  %s %s: %s", f.Name, bounds(f), metOrShouted(f.Good(a.Values[i][k])))
		}
	}
	return b.String()
}

func writeSurveyMarkdown(b *bytes.Buffer, a harness.Answers) {
	writeHeading(b, a.Survey.Name, a.Survey.Note)
	if a.Missing != "" {
		fmt.Fprintf(b, "\nLeft out: %s.\n", a.Missing)
		return
	}
	if a.Disturbed > 0 {
		fmt.Fprintf(b, "\nAnswers counted although somebody else had a core meanwhile: %d.\n", a.Disturbed)
	}
	b.WriteString("\n|")
	for _, f := range a.Survey.Figures {
		fmt.Fprintf(b, " | %s", heading(f))
	}
	fmt.Fprintf(b, " |\n|---|%s\n", strings.Repeat("---:|", len(a.Survey.Figures)))
	for i, sub := range a.Survey.Subjects {
		fmt.Fprintf(b, "| %s", bold(sub.Name, sub.Kind))
		for k, v := range a.Values[i] {
			fmt.Fprintf(b, " | %s", value(a.Survey.Figures[k], v))
		}
		b.WriteString(" |\n")
	}
}

// writeBoundGoals adds the bounds to the table of goals.
func writeBoundGoals(b *bytes.Buffer, a harness.Answers) {
	for i, sub := range a.Survey.Subjects {
		for k, f := range a.Survey.Figures {
			if !sub.Judged(f) {
				continue
			}
			v := a.Values[i][k]
			fmt.Fprintf(b, "| %s, %s, %s | | %s | %s | %s |\n",
				sub.Name, a.Survey.Name, f.Name, withUnit(boundsSign(f), f), withUnit(value(f, v), f), metOrMissed(f.Good(v)))
		}
	}
}

// boundsSign is bounds in signs: "≤ 24", "≥ 3" or "0.999 to 1.0005".
func boundsSign(f harness.Figure) string {
	return strings.NewReplacer("at most", "≤", "at least", "≥").Replace(bounds(f))
}

// withUnit adds the figure's unit, if it has one.
func withUnit(s string, f harness.Figure) string {
	if f.Unit == "" {
		return s
	}
	return s + " " + f.Unit
}

// heading is a figure's name and unit: "memory, B/key".
func heading(f harness.Figure) string {
	if f.Unit == "" {
		return f.Name
	}
	return f.Name + ", " + f.Unit
}

// value writes whole numbers as they are and others to three digits or so. If the
// bounds are finer than that, it is written finer than the bounds, so that one sees
// on which side it is.
func value(f harness.Figure, v float64) string {
	fine := max(decimals(f.AtLeast), decimals(f.AtMost))
	switch {
	case fine > 2:
		return strconv.FormatFloat(v, 'f', fine+1, 64)
	case v == math.Trunc(v), v >= 1000:
		return harness.Grouped(int(math.Round(v)))
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// decimals counts what number writes behind the point.
func decimals(f float64) int {
	_, behind, _ := strings.Cut(number(f), ".")
	return len(behind)
}
