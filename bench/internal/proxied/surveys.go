package proxied

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// Note is what a reader must know of all of it.
const Note = `A route of the gateway beside a bare httputil.ReverseProxy, both in front of the same upstream:
a handler of net/http that answers every call of JSON-RPC with the same result. The route reads each call, chooses an
endpoint, charges what it costs, looks for refusals in the response, and adds what is left to its headers. With a
budget it charges what the call costs of the three limits and one of the two classes of the preset alchemy-free, with
larger rates. Callers, proxies and upstream share the process and its cores. Services take turns; figures are medians of
their runs, and those that compare with the bare proxy are medians of the ratios in each round.
A run in which others had more than 2 % of a core is made again, up to four times, and the quietest counts.`

// Sizes say how much is measured.
type Sizes struct {
	Rounds int
	PerRun time.Duration
}

// The sizes to measure with.
var (
	Whole = Sizes{Rounds: 21, PerRun: 300 * time.Millisecond}
	Quick = Sizes{Rounds: 5, PerRun: 300 * time.Millisecond}
)

// The names of figures that others refer to.
const (
	Requests = "requests/s"
	times    = "times " + bareName
)

// A scenario is what differs between the surveys.
type scenario struct {
	name, note string
	callers    int
	upstream   upstreamHandler
	services   []service // the second is the one to compare with
	figures    []figure
}

// A figure is one of harness, and how it comes from the runs of a service and from those of the bare proxy.
type figure struct {
	harness.Figure
	of func(runs, bare []run) float64
}

func p99(r run) float64      { return harness.Percentile(r.whole, 9900) }
func firstP50(r run) float64 { return harness.Percentile(r.first, 5000) }

const inMicros = float64(time.Microsecond)

// callFigures are those of short calls.
func callFigures(atLeast, p99AtMost float64) []figure {
	return []figure{
		{harness.Figure{Name: Requests, More: true}, func(runs, _ []run) float64 { return medianOf(runs, run.perSecond) }},
		{harness.Figure{Name: times, AtLeast: atLeast, More: true}, func(runs, bare []run) float64 { return medianRatio(runs, bare, run.perSecond) }},
		{harness.Figure{Name: "p50", Unit: "µs"}, func(runs, _ []run) float64 {
			return medianOf(runs, func(r run) float64 { return harness.Percentile(r.whole, 5000) / inMicros })
		}},
		{harness.Figure{Name: "p99", Unit: "µs"}, func(runs, _ []run) float64 {
			return medianOf(runs, func(r run) float64 { return p99(r) / inMicros })
		}},
		{harness.Figure{Name: "p99, times", AtMost: p99AtMost}, func(runs, bare []run) float64 { return medianRatio(runs, bare, p99) }},
		{harness.Figure{Name: "allocations each"}, func(runs, _ []run) float64 {
			return medianOf(runs, func(r run) float64 { return r.each(float64(r.allocs)) })
		}},
		{harness.Figure{Name: "CPU", Unit: "µs each"}, func(runs, _ []run) float64 {
			return medianOf(runs, func(r run) float64 { return r.each(float64(r.cpu)) / inMicros })
		}},
	}
}

const streamNote = `The upstream sends 64 pieces of 16 KiB, and does not say how many. The httputil.ReverseProxy of these rows reads each
request to its end before it forwards it, as the route does: otherwise net/http now and then breaks off a response that begins while it still
looks for the end of the request. How much later the first byte comes is judged for one caller only: 16 wait for the cores and for each other.
`

// streamFigures are those of long responses. When the first byte comes is judged of a caller alone: several wait for the
// cores, and for each other.
func streamFigures(callers int) []figure {
	later := 0.0
	if callers == 1 {
		later = 1000
	}
	const mib = 1 << 20
	return []figure{
		{harness.Figure{Name: "MiB/s", More: true}, func(runs, _ []run) float64 {
			return medianOf(runs, func(r run) float64 { return r.bytesPerSecond() / mib })
		}},
		{harness.Figure{Name: times, AtLeast: 0.85, More: true}, func(runs, bare []run) float64 { return medianRatio(runs, bare, run.bytesPerSecond) }},
		{harness.Figure{Name: "first byte, p50", Unit: "µs"}, func(runs, _ []run) float64 {
			return medianOf(runs, func(r run) float64 { return firstP50(r) / inMicros })
		}},
		{harness.Figure{Name: "first byte later by", Unit: "µs", AtMost: later}, func(runs, bare []run) float64 {
			return median(len(runs), func(i int) float64 { return (firstP50(runs[i]) - firstP50(bare[i])) / inMicros })
		}},
		{harness.Figure{Name: "p50", Unit: "µs"}, func(runs, _ []run) float64 {
			return medianOf(runs, func(r run) float64 { return harness.Percentile(r.whole, 5000) / inMicros })
		}},
	}
}

// Surveys returns the surveys.
func Surveys(s Sizes) (list []harness.Survey) {
	for _, n := range []int{16, 64} {
		list = append(list,
			scenario{"eth_call", "", n, short, []service{direct, bare, plain}, callFigures(0.85, 1.3)}.survey(s),
			scenario{"eth_call with a budget", "", n, short, []service{direct, bare, charged}, callFigures(0.75, 1.5)}.survey(s),
		)
	}
	for _, n := range []int{1, 16} {
		list = append(list, scenario{
			"responses of 1 MiB", streamNote, n, long, []service{direct, whole, charged}, streamFigures(n),
		}.survey(s))
	}
	return list
}

func (q scenario) survey(s Sizes) harness.Survey {
	plural := "s"
	if q.callers == 1 {
		plural = ""
	}
	survey := harness.Survey{
		Name: fmt.Sprintf("gateway, %s, %d caller%s", q.name, q.callers, plural),
		Note: fmt.Sprintf("%s%d rounds of %v each.", q.note, s.Rounds, s.PerRun),
		Together: func(progress func(string)) ([][]float64, int, error) {
			runs, disturbed, err := q.compare(s, progress)
			if err != nil {
				return nil, 0, err
			}
			return q.values(runs), disturbed, nil
		},
	}
	for _, f := range q.figures {
		survey.Figures = append(survey.Figures, f.Figure)
	}
	for _, svc := range q.services {
		survey.Subjects = append(survey.Subjects, harness.Subject{Name: svc.name, Kind: svc.kind})
	}
	return survey
}

// values returns the figures of each service.
func (q scenario) values(runs [][]run) (values [][]float64) {
	for _, own := range runs {
		var list []float64
		for _, f := range q.figures {
			list = append(list, f.of(own, runs[1]))
		}
		values = append(values, list)
	}
	return values
}
