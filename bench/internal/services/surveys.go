package services

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/bench/internal/redisserver"
)

// Note is what a reader must know of all of it.
func Note() string { return fmt.Sprintf(note, redisserver.Version(), Connections) }

const note = `weir serve, envoyproxy/ratelimit, a server that decides nothing and %s are processes of
their own, and the client is another; all share the cores. ratelimit is built with the dependencies
that its authors chose and has its defaults, but no statsd; where requests are refused it also has its
local cache. weir has its defaults, but waits for Redis for up to 3 s, and fails instead of answering
without. Both have the same rules. "Envoy" is ShouldRateLimit with one descriptor, by the same
client for all; "Check" is weir's own call. The callers share %d gRPC connections, as many as an Envoy
with two workers has, and each makes one request at a time, with a deadline; over the Redis protocol each
has a connection. The empty gRPC server is grpc-go with its defaults and answers constants of the size of
weir's; PING is answered by a loop over weir's parser, and so is what has the size of WEIR.CHECK and its answer. Their sockets are package net's. Contenders take turns, and of each the run with the
most requests per second counts; median is that of all its runs. Processor time is the server's alone, over all
its runs, that of Redis apart. A run in which others had more than 2 %% of a core is made again, up to four
times, and the quietest counts. Every answer is checked, and all keys, of 20 bytes, are there before the first run.
Leases are held to their goal where there are some: of 100,000 keys each is asked for less than once while a lease
lasts, so nothing can be leased, and each decision is Redis's.`

// Sizes say how much is measured.
type Sizes struct {
	Keys   int // of the surveys with many
	Most   int // keys of the survey of memory
	Rounds int
	PerRun time.Duration

	// NoPeer leaves envoyproxy/ratelimit out, which has to be downloaded and built.
	NoPeer bool
}

// The sizes to measure with.
var (
	Whole = Sizes{Keys: 100_000, Most: 1_000_000, Rounds: 40, PerRun: 60 * time.Millisecond}
	Quick = Sizes{Keys: 10_000, Most: 100_000, Rounds: 3, PerRun: 200 * time.Millisecond}
)

// A scenario is what differs between the surveys.
type scenario struct {
	name, note string
	rule       string
	keys       []string
	callers    int
	contenders []contender
	columns    []column
}

// The numbers of callers, and how long a pipeline is.
const (
	fewCallers  = 16
	manyCallers = 64
	pipeline    = 16
)

// Surveys returns the surveys.
func Surveys(s Sizes) []harness.Survey {
	var list []harness.Survey
	for _, q := range scenarios(s) {
		list = append(list, q.survey(s))
	}
	return append(list, memorySurvey(s))
}

func scenarios(s Sizes) []scenario {
	one, many := newKeys(1), newKeys(s.Keys)
	var list []scenario
	for _, callers := range []int{fewCallers, manyCallers} {
		hot := goals{floor: goalFloor, floorCPU: goalFloorCPU, leased: goalLeased}
		list = append(list, scenario{
			"1 hot key", "Every call is admitted.", plenty, one, callers, callersOfGRPC(), columnsOfGRPC(hot),
		})
		g := goals{floor: goalFloor, floorCPU: goalFloorCPU}
		if callers == manyCallers && s.Keys >= Whole.Keys {
			g.ratelimit = goalRatelimit
		}
		list = append(list, scenario{
			harness.Grouped(s.Keys) + " keys", "Every call is admitted.", plenty, many, callers, callersOfGRPC(), columnsOfGRPC(g),
		}, scenario{
			harness.Grouped(s.Keys) + " keys that are used up", "Every call is refused.", scarce, many, callers, callersOfGRPC(), columnsOfGRPC(goals{}),
		})
	}
	return append(list, respScenarios(many)...)
}

func respScenarios(many []string) []scenario {
	single := append(rates(Requests), ratio(timesPing, pingName, goalPing), ratio(timesRatelimit, ratelimitName, goalOverRESP))
	piped := append(rates("commands/s"), ratio(timesPing, pingName, goalPipelined))
	batch := append(rates("decisions/s"), ratio(timesSingle, checkName, goalBatch))
	return []scenario{
		{
			"Redis protocol", "Every call is admitted, one command at a time. ratelimit is asked over gRPC.",
			plenty, many, fewCallers, append(callersOfRESP(1), peer()), append(single, costs()...),
		},
		{
			fmt.Sprintf("Redis protocol, pipelines of %d", pipeline), "Every call is admitted. p50 and p99 are those of a pipeline.",
			plenty, many, fewCallers, callersOfRESP(pipeline), append(piped, costs()...),
		},
		{
			fmt.Sprintf("batches of %d", batchWidth), "Every call is admitted. p50 and p99 are those of a batch.",
			plenty, many, fewCallers, callersOfBatches(), append(batch, costs()...),
		},
	}
}

// newKeys returns so many keys.
func newKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%020d", i)
	}
	return keys
}

func (q scenario) survey(s Sizes) harness.Survey {
	if s.NoPeer {
		q.contenders = without(q.contenders, ratelimit)
	}
	survey := harness.Survey{
		Name:     fmt.Sprintf("services, %s, %d callers", q.name, q.callers),
		Note:     fmt.Sprintf("%s %d rounds of %v each.", q.note, s.Rounds, s.PerRun),
		Together: func(progress func(string)) ([][]float64, int, error) { return q.compare(s, progress) },
	}
	for _, c := range q.columns {
		survey.Figures = append(survey.Figures, c.Figure)
	}
	for _, c := range q.contenders {
		survey.Subjects = append(survey.Subjects, c.subject())
	}
	return survey
}

// compare lets the contenders take turns and returns the values of the columns for each.
func (q scenario) compare(s Sizes, progress func(step string)) (values [][]float64, disturbed int, err error) {
	place, err := newSite(q.rule == scarce)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, place.close()) }()
	b, err := q.prepare(place, s, progress)
	defer func() { err = errors.Join(err, b.close()) }()
	if err != nil {
		return nil, 0, err
	}
	turns := harness.Turns[run]{Rounds: s.Rounds, Run: func(i int) (run, time.Duration, error) { return b[i].ask(s.PerRun) }}
	for _, l := range b {
		turns.Names = append(turns.Names, l.name)
	}
	runs, disturbed, err := turns.Take(progress)
	if err != nil {
		return nil, 0, err
	}
	for i, l := range b {
		l.runs = runs[i]
	}
	return q.values(b), disturbed, nil
}

// prepare opens all entrants, has them see all keys, and warms them up.
func (q scenario) prepare(place *site, s Sizes, progress func(step string)) (b board, err error) {
	for _, c := range q.contenders {
		progress("preparing " + c.name)
		l, err := q.open(place, c)
		if err != nil {
			return b, fmt.Errorf("%s: %w", c.name, err)
		}
		b = append(b, l)
		if err := q.warm(l, s); err != nil {
			return b, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return b, nil
}

// warm has an entrant see all keys, and makes a run that does not count. Where all is to be
// refused, the first time uses the keys up, and the second time ratelimit learns of it.
func (q scenario) warm(l *entrant, s Sizes) error {
	if l.kind != harness.Floor {
		if err := l.fill(); err != nil {
			return err
		}
	}
	if l.contender.server == ratelimit && q.rule == scarce {
		if err := l.fill(); err != nil {
			return err
		}
	}
	_, _, err := l.ask(s.PerRun)
	return err
}

// close ends all connections.
func (b board) close() (err error) {
	for _, l := range b {
		err = errors.Join(err, l.askers.close())
	}
	return err
}

func (q scenario) values(b board) [][]float64 {
	var values [][]float64
	for _, l := range b {
		row := make([]float64, 0, len(q.columns))
		for _, c := range q.columns {
			row = append(row, c.of(b, l))
		}
		values = append(values, row)
	}
	return values
}
