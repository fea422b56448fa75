package overhttp

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/bench/internal/harness"
)

// Note is what a reader must know of all of it.
const Note = `The daemon answers POST /v1/check with a table in memory and its metrics on. Beside it
are handlers of net/http that decide nothing and have the same settings of http.Server:
one decodes the body with encoding/json and answers a constant as long as weir's answer,
one does not even look at the body. weir also sets the RateLimit headers, and has a gate for
hosts and origins. Client and servers share the process and its cores. The client writes the
same bytes on each of 16 connections, waits for the answer and looks through its head for the
length: it does not allocate, so allocations are the server's. Processor time is that of
client and server together, the kernel's work included. Services take turns, and of each the
run with the most requests per second counts; median is that of all its runs. A run in which
others had more than 2 % of a core is made again, up to four times, and the quietest counts.`

// Connections is how many ask at once.
const Connections = 16

// Sizes say how much is measured.
type Sizes struct {
	Keys   int // of the survey with many
	Rounds int
	PerRun time.Duration
}

// The sizes to measure with.
var (
	Whole = Sizes{Keys: 100_000, Rounds: 30, PerRun: 200 * time.Millisecond}
	Quick = Sizes{Keys: 10_000, Rounds: 5, PerRun: 300 * time.Millisecond}
)

// goal is the part of the empty handler's requests per second that weir wants to reach.
const goal = 0.85

// Requests is the figure for the chart.
const Requests = "requests/s"

// A scenario is what differs between the surveys.
type scenario struct {
	name, note string
	keys       int
	limit      weir.Limit
	want       string // in each of weir's answers
}

var (
	plenty = weir.Limit{Rate: 1_000_000, Per: weir.Every(time.Second), Burst: 1_000_000}
	scarce = weir.Limit{Rate: 1, Per: weir.Every(24 * time.Hour), Burst: 1}
)

// Surveys returns the surveys.
func Surveys(s Sizes) []harness.Survey {
	return []harness.Survey{
		scenario{harness.Grouped(s.Keys) + " keys", "Every call is admitted.", s.Keys, plenty, `"allowed":true`}.survey(s),
		scenario{"1 key that is used up", "Every call but the first is refused.", 1, scarce, `"allowed":`}.survey(s),
	}
}

func (q scenario) survey(s Sizes) harness.Survey {
	survey := harness.Survey{
		Name: fmt.Sprintf("http, %s, %d connections", q.name, Connections),
		Note: fmt.Sprintf("%s %d rounds of %v each.", q.note, s.Rounds, s.PerRun),
		Figures: []harness.Figure{
			{Name: Requests, More: true},
			{Name: "median", More: true},
			{Name: "times " + emptyName, AtLeast: goal, More: true},
			{Name: "p50", Unit: "µs"},
			{Name: "p99", Unit: "µs"},
			{Name: "allocations each"},
			{Name: "CPU", Unit: "µs each"},
		},
		Together: func(progress func(string)) ([][]float64, int, error) { return q.compare(s, progress) },
	}
	for _, svc := range services() {
		survey.Subjects = append(survey.Subjects, harness.Subject{Name: svc.name, Kind: svc.kind})
	}
	return survey
}
