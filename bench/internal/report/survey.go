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
			case f.AtMost > 0:
				row.Against, row.Ratio, row.Goal = "at most "+number(f.AtMost), AtMost(f.AtMost, row.Weir), 1
			case row.BestPeerName != "":
				row.Against, row.Ratio = row.BestPeerName, AtMost(row.BestPeer, row.Weir)
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// bestSubject returns the least value of a peer for figure k, and whose it is.
func bestSubject(a harness.Answers, k int) (best float64, name string) {
	best = math.Inf(1)
	for i, sub := range a.Survey.Subjects {
		if v := a.Values[i][k]; sub.Kind == harness.Peer && v < best {
			best, name = v, sub.Name
		}
	}
	if name == "" {
		return 0, ""
	}
	return best, name
}

// writeSurveyText writes a table, the bounds below it.
func writeSurveyText(w io.Writer, a harness.Answers) {
	fmt.Fprintf(w, "%s\n", a.Survey.Name)
	for _, f := range a.Survey.Figures {
		fmt.Fprintf(w, "\t%s", heading(f))
	}
	fmt.Fprint(w, "\t\n")
	for i, sub := range a.Survey.Subjects {
		fmt.Fprint(w, sub.Name)
		for _, v := range a.Values[i] {
			fmt.Fprintf(w, "\t%s", value(v))
		}
		fmt.Fprintf(w, "\t%s\n", boundVerdict(a, i))
	}
	fmt.Fprintln(w)
}

// boundVerdict says which bounds a subject keeps, or nothing if there are none.
func boundVerdict(a harness.Answers, i int) string {
	if a.Survey.Subjects[i].Kind != harness.Weir {
		return ""
	}
	var b strings.Builder
	for k, f := range a.Survey.Figures {
		if f.AtMost == 0 {
			continue
		}
		verdict := "met"
		if a.Values[i][k] > f.AtMost {
			verdict = "MISSED"
		}
		fmt.Fprintf(&b, "  %s at most %s: %s", f.Name, number(f.AtMost), verdict)
	}
	return b.String()
}

func writeSurveyMarkdown(b *bytes.Buffer, a harness.Answers) {
	writeHeading(b, a.Survey.Name, a.Survey.Note)
	b.WriteString("\n|")
	for _, f := range a.Survey.Figures {
		fmt.Fprintf(b, " | %s", heading(f))
	}
	fmt.Fprintf(b, " |\n|---|%s\n", strings.Repeat("---:|", len(a.Survey.Figures)))
	for i, sub := range a.Survey.Subjects {
		fmt.Fprintf(b, "| %s", bold(sub.Name, sub.Kind))
		for _, v := range a.Values[i] {
			fmt.Fprintf(b, " | %s", value(v))
		}
		b.WriteString(" |\n")
	}
}

// writeBoundGoals adds the bounds to the table of goals.
func writeBoundGoals(b *bytes.Buffer, a harness.Answers) {
	for i, sub := range a.Survey.Subjects {
		for k, f := range a.Survey.Figures {
			if sub.Kind != harness.Weir || f.AtMost == 0 {
				continue
			}
			v := a.Values[i][k]
			fmt.Fprintf(b, "| %s, %s, %s | | ≤ %s %s | %s %s | %s |\n",
				sub.Name, a.Survey.Name, f.Name, number(f.AtMost), f.Unit, value(v), f.Unit, metOrMissed(v <= f.AtMost))
		}
	}
}

// heading is a figure's name and unit: "memory, B/key".
func heading(f harness.Figure) string {
	if f.Unit == "" {
		return f.Name
	}
	return f.Name + ", " + f.Unit
}

// value writes whole numbers as they are and others to three digits or so.
func value(v float64) string {
	switch {
	case v == math.Trunc(v), v >= 1000:
		return harness.Grouped(int(math.Round(v)))
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}
