package modes

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/internal/svg"
	"github.com/weirlimit/weir/tiered"
)

// The marks between which Rewrite puts the figures.
const (
	beginMark = "<!-- Written by `make modes` from here on; do not edit. -->"
	endMark   = "<!-- Written by `make modes` up to here. -->"
)

var errMarks = errors.New("the page lacks the marks between which figures go")

// Rewrite returns a page with these figures in place of those it has.
func (f Figures) Rewrite(page []byte) ([]byte, error) {
	before, rest, found := bytes.Cut(page, []byte(beginMark))
	_, after, ends := bytes.Cut(rest, []byte(endMark))
	if !found || !ends {
		return nil, errMarks
	}
	return slices.Concat(before, []byte(beginMark+"\n\n"), f.Markdown(), []byte("\n"+endMark), after), nil
}

// Markdown returns the figures as tables, with the charts.
func (f Figures) Markdown() []byte {
	var b bytes.Buffer
	f.writeConditions(&b)
	f.writeRooms(&b)
	f.writeAttacks(&b)
	return b.Bytes()
}

func (f Figures) writeConditions(b *bytes.Buffer) {
	fmt.Fprintf(b, `%s, %d cores, %s, %s without persistence, %s.

A node is a `+"`tiered.Limiter`"+` with a store and a bus of its own, so with connections of its own; but all nodes are in one process, and share the cores with each other and with Redis. `+"`Timeout`"+` is %v, because loops that
never stop keep everything else from a processor for longer than 10 ms; an answer without Redis would be an error, and there was none.
`, f.Machine.CPU, f.Machine.Cores, f.Machine.Go, f.Redis, f.Date.UTC().Format(time.DateOnly), svg.Duration(patience))
}

func (f Figures) writeRooms(b *bytes.Buffer) {
	s := f.Sizes
	fmt.Fprintf(b, `
### A hot key with plenty of room

10 million per second, and as many at once: every call is admitted. %d callers per node ask in a loop. The median of %d runs of %v
each, in turns. A second node brings more callers here, but no second machine, so this does not show how a fleet grows: look at how the
modes differ, and at what each node adds for Redis.
`, Callers, s.Rounds, svg.Duration(s.PerRun))
	if f.Disturbed > 0 {
		fmt.Fprintf(b, "\nRuns that counted although other processes had more than 2 %% of a core: %d of %d.\n", f.Disturbed, s.Rounds*len(f.Rooms))
	}
	fmt.Fprintf(b, "\n![Decisions per second by mode and nodes](%s)\n\n![Store calls per decision by mode and nodes](%s)\n", ThroughputChart, CallsChart)
	b.WriteString("\n| | nodes | decisions/s | slowest to fastest run | store calls each | Redis commands each | CPU here, cores | CPU of Redis, cores |\n|---|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, r := range f.Rooms {
		fmt.Fprintf(b, "| %s | %d | %s | %s to %s | %s | %s | %.2f | %.2f |\n", nameOnce(r.Mode, r.Nodes, s.Nodes), r.Nodes,
			grouped(r.PerSecond), grouped(r.Least), grouped(r.Most), small(r.Calls), small(r.Commands), r.Here.Seconds(), r.There.Seconds())
	}
	b.WriteString("\nIn exact mode a store call is a decision that Redis made; the store sends calls that meet in one command, so there are fewer commands.\n")
}

func (f Figures) writeAttacks(b *bytes.Buffer) {
	s := f.Sizes
	fmt.Fprintf(b, `
### A hot key under attack

%s per second, and as many at once. %d callers per node, on all nodes together: from full, for %v; then %d pulses of %v, each after
%v without a call, in which just as much comes back as all nodes may owe in async mode (b = %d / N); then, after %v of rest, %v and the
pulses again. *Excess* is the most that was granted above B + r·Δ in any interval Δ, of all the intervals there are. A grant counts only
if its call began and ended within the interval, so this much was certainly granted too much. *Used* is what was granted of B + r·T in the
first %v.

![Units admitted too much by mode and nodes](%s)

| | nodes | calls | granted | excess | bound | used | store calls | CPU of Redis, µs per grant |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
`, harness.Grouped(Rate), Attackers, svg.Duration(s.Steady), s.Pulses, svg.Duration(s.Pulse), svg.Duration(time.Second*Unsynced/Rate), Unsynced,
		svg.Duration(s.Rest), svg.Duration(s.Rush), svg.Duration(s.Steady), OvershootChart)
	for _, a := range f.Attacks {
		fmt.Fprintf(b, "| %s | %d | %s | %s | %s | %.0f | %.1f %% | %s | %.0f |\n", nameOnce(a.Mode, a.Nodes, s.Nodes), a.Nodes,
			harness.Grouped(a.Asked), harness.Grouped(a.Granted), svg.Number(a.Excess), a.Bound, 100*a.Used,
			harness.Grouped(int(a.Calls)), float64(a.There.Microseconds())/float64(a.Granted))
	}
}

// nameOnce is the mode's name in its first row.
func nameOnce(m tiered.Mode, nodes int, all []int) string {
	if nodes == all[0] {
		return "**" + m.String() + "**"
	}
	return ""
}

func grouped(v float64) string { return harness.Grouped(int(v + 0.5)) }

// small writes two digits of a small number: 0.000012.
func small(v float64) string {
	if v >= 0.995 {
		return svg.Number(v)
	}
	digits := 2
	for x := v; x > 0 && x < 0.1 && digits < 12; x *= 10 {
		digits++
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}
