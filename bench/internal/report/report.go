package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// Report is everything that one run found out.
type Report struct {
	Machine  Machine
	Date     time.Time
	Settings harness.Settings
	Sections []Section
}

// Rows returns the rows of all sections.
func (r *Report) Rows() []Row {
	var rows []Row
	for _, s := range r.Sections {
		rows = append(rows, s.Rows()...)
	}
	return rows
}

// WriteJSON writes one object per line and row.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	for _, row := range r.Rows() {
		row.Weir, row.BestPeer = round(row.Weir), round(row.BestPeer)
		row.Ratio = down(row.Ratio, 3)
		if err := enc.Encode(row); err != nil {
			return err
		}
	}
	return nil
}

// round keeps five decimals.
func round(f float64) float64 { return math.Round(f*1e5) / 1e5 }

// down cuts a ratio to so many decimals, so that no goal is met by rounding.
func down(ratio float64, decimals int) float64 {
	scale := math.Pow10(decimals)
	return math.Floor(ratio*scale) / scale
}

// WriteText writes tables for a terminal.
func (r *Report) WriteText(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, s := range r.Sections {
		for _, res := range s.Results {
			writeCaseText(tw, res)
		}
		for _, a := range s.Answers {
			writeSurveyText(tw, a)
		}
	}
	fmt.Fprintln(tw, r.goalSummary())
	return tw.Flush()
}

func writeCaseText(w io.Writer, res harness.Result) {
	fmt.Fprintf(w, "%s\n", res.Case.Name)
	fmt.Fprintf(w, "\tns/op\tmedian\tallocs/op\tratio\t  against %s\n", against(res))
	for i, con := range res.Case.Contenders {
		m := res.Measurements[i]
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%s\t%.2f\t%s\n",
			con.Name, m.Best, m.Median, number(m.Allocs), down(res.Ratio(i), 2), verdict(res, i))
	}
	if res.Disturbed > 0 {
		fmt.Fprintf(w, "(runs counted although somebody else had a core meanwhile: %d)\n", res.Disturbed)
	}
	fmt.Fprintln(w)
}

// verdict says whether a contender met its goal, or nothing if it has none.
func verdict(r harness.Result, i int) string {
	con := r.Case.Contenders[i]
	switch {
	case con.AtMost > 0:
		return fmt.Sprintf("  goal %s: %s", atMostTime(con), metOrShouted(r.Figure(i) <= con.AtMost))
	case con.Goal > 0:
		return fmt.Sprintf("  goal %s: %s", number(con.Goal), metOrShouted(r.Ratio(i) >= con.Goal))
	}
	return ""
}

func metOrShouted(met bool) string {
	if met {
		return "met"
	}
	return "MISSED"
}

// goalSummary counts the goals met, in one line.
func (r *Report) goalSummary() string {
	met, goals := 0, 0
	for _, row := range r.Rows() {
		if row.Goal == 0 {
			continue
		}
		goals++
		if row.Met() {
			met++
		}
	}
	return fmt.Sprintf("%d of %d goals met, allocations included.", met, goals)
}

// number writes 2.5 as 2.5 and 3 as 3.
func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
