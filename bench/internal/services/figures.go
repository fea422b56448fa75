package services

import (
	"slices"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// The names of figures. Requests is the one for the chart.
const (
	Requests       = "requests/s"
	timesFloor     = "times empty gRPC"
	timesRatelimit = "times ratelimit"
	timesMemory    = "times memory"
	timesPing      = "times PING"
	timesSingle    = "times single"
	cpuTimesFloor  = "times its CPU"
)

// The goals: the least of somebody else's decisions per second that is good, and the most
// of its processor time.
const (
	goalFloor     = 0.85
	goalFloorCPU  = 1.2
	goalRatelimit = 2.2 // gRPC, 100,000 keys, 64 callers
	goalLeased    = 0.8 // of the memory figure, on a hot key: rarer ones are not leased
	goalPing      = 0.9
	goalPipelined = 0.7 // of PING in pipelines of 16
	goalOverRESP  = 5   // times ratelimit
	goalBatch     = 40  // times the single call
)

// A board is all entrants of a survey.
type board []*entrant

// times returns how many times the decisions per second of another an entrant has, 0 if that
// one does not take part.
func (b board) times(l *entrant, name string) float64 {
	other := b.find(name)
	if other == nil {
		return 0
	}
	return l.rate() / other.rate()
}

// timesCPU is times for the processor time of a decision.
func (b board) timesCPU(l *entrant, name string) float64 {
	other := b.find(name)
	if other == nil || other.cpu() == 0 {
		return 0
	}
	return l.cpu() / other.cpu()
}

func (b board) find(name string) *entrant {
	i := slices.IndexFunc(b, func(l *entrant) bool { return l.name == name })
	if i < 0 {
		return nil
	}
	return b[i]
}

// A column is a figure and how it is found.
type column struct {
	harness.Figure
	of func(b board, l *entrant) float64
}

// rates are the columns that every survey begins with; name is what is counted.
func rates(name string) []column {
	return []column{
		{harness.Figure{Name: name, More: true}, func(_ board, l *entrant) float64 { return l.rate() }},
		{harness.Figure{Name: "median", More: true}, func(_ board, l *entrant) float64 { return l.median() }},
	}
}

// ratio is how many times the decisions per second of another there are.
func ratio(figure, other string, goal float64) column {
	return column{
		harness.Figure{Name: figure, AtLeast: goal, More: true},
		func(b board, l *entrant) float64 { return b.times(l, other) },
	}
}

// costs are the columns that every survey ends with.
func costs() []column {
	return []column{
		{harness.Figure{Name: "p50", Unit: "ms"}, func(_ board, l *entrant) float64 { return l.percentile(5000) }},
		{harness.Figure{Name: "p99", Unit: "ms"}, func(_ board, l *entrant) float64 { return l.percentile(9900) }},
		{harness.Figure{Name: "CPU", Unit: "µs each"}, func(_ board, l *entrant) float64 { return l.cpu() }},
	}
}

// goals are those of a survey over gRPC; 0 means none.
type goals struct{ floor, floorCPU, ratelimit, leased float64 }

// columnsOfGRPC are those of single calls over gRPC.
func columnsOfGRPC(g goals) []column {
	list := append(rates(Requests), []column{
		{harness.Figure{Name: timesFloor, AtLeast: g.floor, More: true}, func(b board, l *entrant) float64 { return b.times(l, l.floor) }},
		ratio(timesRatelimit, ratelimitName, g.ratelimit),
		{harness.Figure{Name: timesMemory, AtLeast: g.leased, More: true}, func(b board, l *entrant) float64 { return b.times(l, l.inMemory()) }},
	}...)
	return append(append(list, costs()...), []column{
		{harness.Figure{Name: cpuTimesFloor, AtMost: g.floorCPU}, func(b board, l *entrant) float64 { return b.timesCPU(l, l.floor) }},
		{harness.Figure{Name: "CPU of Redis", Unit: "µs each"}, func(_ board, l *entrant) float64 { return l.redisCPU() }},
	}...)
}
