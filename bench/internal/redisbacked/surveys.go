package redisbacked

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/bench/internal/redisserver"
	"github.com/weirlimit/weir/tiered"
)

// Note is what a reader must know of all of it.
func Note() string { return fmt.Sprintf(note, redisserver.Version(), Goroutines) }

const note = `All limiters ask one %s without persistence, on the loopback interface and on the
same cores, from %d goroutines that call in a loop and do nothing else. Each has its
defaults, but go-redis, which the peers use, has a connection for each goroutine. weir has
the daemon's connections ([ADR 0014](adr/0014-direct-sockets.md)), and goals are judged by
those; "weir, package net" is what a program gets that imports store/redisstore.
weir's modes wait for Redis for up to 3 s, as go-redis does, instead of 10 ms: loops that
never stop keep everything else from a processor for longer. An answer that was given
without Redis would count as an error. The libraries take turns, and of each the run with the most decisions per second counts;
median is that of all its runs. Other processes slow down those most that need most
processor time, so a run in which they had more than 2 %% of a core is made again, up to
four times, and the quietest counts. Every answer is checked. An error is no decision;
they are counted over all runs. Processor time is this process's, the loop included, and
the server's. rueidis EVALSHA is no limiter but one script per decision, the least that
answers yes or no, in pipelines: only who asks for several decisions at once can be
faster. Keys are 20 bytes long, and all are there before the first run.`

// Goroutines is how many ask at once.
const Goroutines = 64

// Sizes say how much is measured.
type Sizes struct {
	Keys   int // of the survey with many
	Rounds int
	PerRun time.Duration
}

// The sizes to measure with.
var (
	Whole = Sizes{Keys: 100_000, Rounds: 24, PerRun: 200 * time.Millisecond}
	Quick = Sizes{Keys: 10_000, Rounds: 3, PerRun: 200 * time.Millisecond}
)

// How many times as fast as redis_rate weir wants to be, and how many commands it wants
// to send for each decision at most.
const (
	goalHot    = 10
	goalMany   = 3 // leased, too
	goalLeased = 100
	mostLeased = 0.01
	mostDenied = 0.0001
)

// Decisions is the figure for the chart.
const Decisions = "decisions/s"

// Surveys returns the surveys, those with goals first.
func Surveys(s Sizes) []harness.Survey {
	goalMany := float64(goalMany)
	if s.Keys < Whole.Keys {
		goalMany = 0 // so few keys meet in one pipeline
	}
	return []harness.Survey{
		scenario{
			name: "1 hot key", note: "Every call is admitted.",
			peers: hotPeers(), keys: 1, settings: []setting{plenty}, goal: goalHot,
		}.survey(s),
		scenario{
			name: harness.Grouped(s.Keys) + " keys", note: "Every call is admitted.",
			peers: peers(), keys: s.Keys, settings: []setting{plenty}, goal: goalMany,
		}.survey(s),
		scenario{
			name: "2 hot keys, one used up", note: "Calls for one key are admitted, those for the other are refused.",
			peers: hotPeers(), keys: 2, settings: []setting{plenty, scarce},
		}.survey(s),
		scenario{
			name: "1 hot key with plenty of room", note: "10 million per second, and as many at once: every call is admitted.",
			ours: []library{tier(tiered.Leased), tier(tiered.Async)}, peers: []library{redisRate()}, timed: 16,
			keys: 1, settings: []setting{fast}, goal: goalLeased, commands: mostLeased,
		}.survey(s),
		scenario{
			name: harness.Grouped(s.Keys) + " keys with plenty of room", note: "10 million per second, and as many at once, for each: every call is admitted.",
			ours: []library{tier(tiered.Leased), tier(tiered.Async)}, peers: []library{redisRate()}, timed: 4,
			keys: s.Keys, settings: []setting{fast}, goal: goalMany,
		}.survey(s),
		scenario{
			name: "1 hot key of one per second", note: "Nearly every call is refused.",
			ours: []library{tier(tiered.Exact)}, peers: []library{redisRate()}, timed: 16,
			keys: 1, settings: []setting{once}, commands: mostDenied,
		}.survey(s),
		heldSurvey(s),
		budgetSurvey(s),
		heldBudgetSurvey(s),
	}
}

// A scenario is what differs between the surveys.
type scenario struct {
	name, note string
	ours       []library // nil = the store itself, over both kinds of connections; the goal is the first one's
	peers      []library
	timed      int // every how many calls one is timed; 0 = all
	keys       int
	settings   []setting // of the keys, in turns
	goal       float64   // least good ratio, 0 = none
	commands   float64   // most commands for a decision, 0 = any
}

func (q scenario) survey(s Sizes) harness.Survey {
	libraries := append(append([]library{weirTake(), weirNet()}, q.peers...), evalFloor())
	if q.ours != nil {
		libraries = append(slices.Clone(q.ours), q.peers...)
	}
	asked := newKeys(q.keys, q.settings...)
	asked.timed = max(1, q.timed)
	survey := harness.Survey{
		Name:    fmt.Sprintf("redis, %s, %s", q.name, harness.Goroutines(Goroutines)),
		Note:    fmt.Sprintf("%s %d rounds of %v each.", q.note, s.Rounds, s.PerRun),
		Figures: figures(q.goal, q.commands),
		Together: func(progress func(string)) ([][]float64, int, error) {
			return compare(libraries, asked, s, progress)
		},
	}
	for i, l := range libraries {
		survey.Subjects = append(survey.Subjects, harness.Subject{Name: l.name, Kind: l.kind, Module: l.module, NoGoal: i > 0})
	}
	return survey
}

// figures are what valuesOf returns.
func figures(goal, commands float64) []harness.Figure {
	return []harness.Figure{
		{Name: Decisions, More: true},
		{Name: "median", More: true},
		{Name: "times " + redisRateName, AtLeast: goal, More: true},
		{Name: "errors", Unit: "%"},
		{Name: "p50", Unit: "µs"},
		{Name: "p99", Unit: "µs"},
		{Name: "commands each", AtMost: commands},
		{Name: "CPU here", Unit: "µs each"},
		{Name: "CPU of Redis", Unit: "µs each"},
	}
}
