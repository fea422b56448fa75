package faults

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/faults/internal/history"
	"github.com/weirlimit/weir/faults/internal/report"
	"github.com/weirlimit/weir/faults/internal/rig"
)

// B is the burst of every key, and r its rate per second.
const (
	B = rig.Burst
	r = rig.Rate
)

var limit = history.Limit{Rate: r, Burst: B}

// patience bounds waits for what must happen at all; how soon it must, figures say.
const patience = time.Minute

// trial is one row being tried.
type trial struct {
	*testing.T
	row   *report.Row
	began machine
	late  []report.Figure // times that were missed
}

// try begins a row. In the short form rows run side by side.
func try(t *testing.T, id, fault, must string) *trial {
	t.Helper()
	if !long {
		t.Parallel()
	}
	tr := &trial{T: t, row: results.Begin(id, fault, must), began: look()}
	t.Cleanup(tr.end) // the last one: by then all processes of the row have ended
	return tr
}

// end judges the times that were missed, unless others had the machine.
func (tr *trial) end() {
	tr.Helper()
	others := look().othersSince(tr.began)
	if long { // else other rows are among the others
		tr.note("others had", "%.0f %%", 100*others)
	}
	switch {
	case others > mostOthers:
		tr.row.Busy()
	case long:
		for _, f := range tr.late {
			tr.Errorf("%s: %v", tr.row.ID, f)
		}
	}
	if tr.Failed() {
		tr.row.Fail()
	}
}

// mostOthers is the part of the processors' time that others may have had for times to
// be judged.
const mostOthers = 0.1

// pick returns what the long form has, or the short one.
func pick[T any](inLong, inShort T) T {
	if long {
		return inLong
	}
	return inShort
}

// mix is the load: calls for hot keys have twice their limit.
func mix() rig.Mix {
	return pick(
		rig.Mix{Rate: 600, Hot: 2, Cold: 18, HotShare: 2.0 / 3},
		rig.Mix{Rate: 240, Hot: 1, Cold: 9, HotShare: 0.8},
	)
}

// fleet starts daemons with a store.
func (tr *trial) fleet(n int, args ...string) *rig.Fleet {
	tr.Helper()
	return rig.StartFleet(tr, program, n, args...)
}

// note adds a figure that is not judged.
func (tr *trial) note(name, format string, args ...any) {
	tr.Helper()
	tr.add(report.Figure{Name: name, Value: fmt.Sprintf(format, args...)}, true)
}

// atMost judges a count. The formula says where the bound comes from.
func (tr *trial) atMost(name string, value, bound float64, formula string) {
	tr.Helper()
	const rounding = 1e-6
	text := "≤ " + number(bound)
	if formula != "" && formula != number(bound) {
		text += " = " + formula
	}
	tr.add(report.Figure{Name: name, Value: number(value), Bound: text, Met: value <= bound+rounding}, true)
}

// atLeast judges a count the other way round.
func (tr *trial) atLeast(name string, value, bound float64, formula string) {
	tr.Helper()
	tr.add(report.Figure{Name: name, Value: number(value), Bound: "≥ " + number(bound) + " = " + formula, Met: value >= bound}, true)
}

// ratio judges how much of what two things did one of them did. On a busy machine the one
// that needs more of it does less: the short form, beside other rows, asks for half.
func (tr *trial) ratio(name string, value, bound float64) {
	tr.Helper()
	bound = pick(bound, bound/2)
	f := report.Figure{Name: name, Value: fmt.Sprintf("%.2f", value), Bound: fmt.Sprintf("≥ %.2f ± 10 %%", bound), Met: value >= 0.9*bound}
	if long {
		tr.addTime(f)
		return
	}
	tr.add(f, true)
}

// wholeRate judges that a key under full load gets its rate. Where a daemon decided
// alone that is not sure: it may have owed what it gave.
func (tr *trial) wholeRate(name string, value float64, tier rig.Tier) {
	tr.Helper()
	if tier.Decisions.Fallback > 0 {
		tr.note(name, "%.1f/s", value)
		return
	}
	tr.atLeast(name, value, 0.9*r, "90 % of 100/s")
}

// none judges a count that must be 0.
func (tr *trial) none(name string, value int) {
	tr.Helper()
	tr.add(report.Figure{Name: name, Value: fmt.Sprint(value), Bound: "= 0", Met: value == 0}, true)
}

// stalled tells how many calls are left out of all times.
func (tr *trial) stalled(list []history.Decision) {
	tr.Helper()
	n := 0
	for _, d := range list {
		if d.Stalled {
			n++
		}
	}
	tr.note("calls in standstills of the machine", "%.1f %%", 100*float64(n)/float64(max(1, len(list))))
}

// within judges a time, in the long form: other rows run beside a short one.
func (tr *trial) within(name string, value, bound time.Duration) {
	tr.Helper()
	tr.addTime(report.Figure{Name: name, Value: brief(value), Bound: "≤ " + brief(bound), Met: value <= bound})
}

// countWithin judges a count by arrival times as a time is judged, in the long form: on a busy machine what was sent before
// arrives later.
func (tr *trial) countWithin(name string, value, bound int) {
	tr.Helper()
	tr.addTime(report.Figure{Name: name, Value: fmt.Sprint(value), Bound: fmt.Sprintf("≤ %d", bound), Met: value <= bound})
}

// withinIf judges a time, or only tells it.
func (tr *trial) withinIf(judged bool, name string, value, bound time.Duration) {
	tr.Helper()
	if !judged {
		tr.note(name, "%s", brief(value))
		return
	}
	tr.within(name, value, bound)
}

// addTime adds a figure that depends on how busy the machine is. It is judged at the end.
func (tr *trial) addTime(f report.Figure) {
	tr.Helper()
	f.Time = true
	tr.add(f, false)
	if !f.Met {
		tr.late = append(tr.late, f)
	}
}

// add logs a figure, and fails the test if it is judged and its bound does not hold.
func (tr *trial) add(f report.Figure, judged bool) {
	tr.Helper()
	tr.row.Add(f)
	tr.Log(f)
	if judged && f.Bound != "" && !f.Met {
		tr.Errorf("%s: %v", tr.row.ID, f)
	}
}

// judge looks at a history: all answers are decisions, and no key has more than the
// bound allows.
func (tr *trial) judge(list []history.Decision, bound float64, formula string) {
	tr.Helper()
	tr.note("calls", "%d", len(list))
	failed := history.Failures(list)
	tr.none("without a decision", len(failed))
	for i, d := range failed {
		if i == 3 {
			break
		}
		tr.Logf("no decision: %+v", d)
	}
	_, excess := history.Worst(history.Excesses(list, limit))
	tr.atMost("E", excess, bound, formula)
	tr.note("refusals of keys below their limit", "%d", coldRefusals(list))
}

// coldRefusals counts what a limit that is not used up has refused: in an outage a
// daemon's share may be too small for what comes to it.
func coldRefusals(list []history.Decision) (n int) {
	for _, d := range list {
		if d.Status == 200 && !d.Allowed && strings.HasPrefix(d.Key, "cold") {
			n++
		}
	}
	return n
}

func number(x float64) string {
	if x == math.Trunc(x) {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.1f", x)
}

// brief writes a duration with about three digits.
func brief(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}
