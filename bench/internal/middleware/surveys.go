package middleware

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// Note is what a reader must know of all of it.
const Note = `What middleware adds to a handler of net/http that sets a Content-Type and writes six
bytes: time and allocations per allowed request, those of the bare handler subtracted. A loop in one
goroutine calls the handlers with a request and a ResponseWriter that are used again; only the
address and the API key change. The loop makes new strings of these two for each request, the bare
handler's too, as a server does that has just read them: fetching them from memory is not the
middleware's cost. Every request is allowed. weirhttp.Limit sets RateLimit-Policy and RateLimit; its peers set
X-RateLimit fields. By key and by address, a request is charged to two limits, all or nothing; the
peers have one. They take turns, and of each the fastest run counts.`

// Sizes say how much is measured.
type Sizes struct {
	Addresses int // of the survey with many
	Rounds    int
	PerRun    time.Duration
}

// The sizes to measure with.
var (
	Whole = Sizes{Addresses: 100_000, Rounds: 25, PerRun: 100 * time.Millisecond}
	Quick = Sizes{Addresses: 10_000, Rounds: 7, PerRun: 50 * time.Millisecond}
)

// The figures that have goals.
const (
	added       = "added"
	addedAllocs = "added allocations"

	// Faster is the figure for the chart: how many times as long the faster peer takes.
	Faster = "times as fast as the faster peer"
)

const (
	goalNanos  = 1000
	goalAllocs = 1
)

var background = context.Background()

// Surveys returns the surveys.
func Surveys(s Sizes) []harness.Survey { return []harness.Survey{survey(1, s), survey(s.Addresses, s)} }

func survey(addresses int, s Sizes) harness.Survey {
	noun := "addresses"
	if addresses == 1 {
		noun = "address"
	}
	survey := harness.Survey{
		Name: fmt.Sprintf("middleware, %s %s", harness.Grouped(addresses), noun),
		Note: fmt.Sprintf("%d rounds of %v each.", s.Rounds, s.PerRun),
		Figures: []harness.Figure{
			{Name: added, Unit: "ns", AtMost: goalNanos},
			{Name: addedAllocs, AtMost: goalAllocs},
			{Name: Faster, AtLeast: 1, More: true},
			{Name: "in all", Unit: "ns"},
			{Name: "in all, median", Unit: "ns"},
		},
		Together: func(progress func(string)) ([][]float64, int, error) { return compare(addresses, s, progress) },
	}
	for _, e := range entrants() {
		survey.Subjects = append(survey.Subjects, harness.Subject{Name: e.name, Kind: e.kind, Module: e.module, Only: e.only})
	}
	return survey
}

// compare lets all take turns.
func compare(addresses int, s Sizes, progress func(string)) ([][]float64, int, error) {
	from, keys := origins(addresses)
	var loops []*loop
	turns := harness.Turns[run]{Rounds: s.Rounds, Run: func(i int) (run, time.Duration, error) { return loops[i].run(s.PerRun) }}
	for _, e := range entrants() {
		progress("preparing " + e.name)
		l, err := newLoop(from, keys)
		if err != nil {
			return nil, 0, err
		}
		h, stop, err := e.wrap(http.HandlerFunc(l.count))
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", e.name, err)
		}
		defer stop()
		l.handler = h
		loops = append(loops, l)
		turns.Names = append(turns.Names, e.name)
		l.call(max(addresses, 10_000)) // every key is there, and everything is warm
	}
	runs, disturbed, err := turns.Take(progress)
	if err != nil {
		return nil, 0, err
	}
	return valuesOf(runs), disturbed, nil
}

// writer is a ResponseWriter that is used again.
type writer struct{ h http.Header }

func (w *writer) Header() http.Header         { return w.h }
func (w *writer) Write(b []byte) (int, error) { return len(b), nil }
func (w *writer) WriteHeader(int)             {}

// loop calls one handler.
type loop struct {
	handler http.Handler
	request *http.Request
	key     []string // the request's header field
	w       writer

	addresses, keys []string
	next            int // in both
	served          int // how often the bare handler was called
}

func newLoop(addresses, keys []string) (*loop, error) {
	r, err := http.NewRequest(http.MethodGet, "/v1/things", nil)
	if err != nil {
		return nil, err
	}
	l := &loop{request: r, key: []string{""}, w: writer{h: http.Header{}}, addresses: addresses, keys: keys}
	r.Header["X-Api-Key"] = l.key
	return l, nil
}

func (l *loop) count(w http.ResponseWriter, r *http.Request) {
	l.served++
	bare(w, r)
}

// stride is prime to the number of addresses, so that each comes and neighbours do not
// follow each other.
const stride = 7919

func (l *loop) call(n int) {
	for range n {
		l.request.RemoteAddr, l.key[0] = strings.Clone(l.addresses[l.next]), strings.Clone(l.keys[l.next])
		l.handler.ServeHTTP(&l.w, l.request)
		l.next = (l.next + stride) % len(l.addresses)
	}
}

// run is the result of calling for some time.
type run struct{ nanos, allocs float64 }

func (l *loop) run(d time.Duration) (run, time.Duration, error) {
	const chunk = 1000
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	l.served = 0
	calls := 0
	end := harness.Watch()
	began := time.Now()
	for time.Since(began) < d {
		l.call(chunk)
		calls += chunk
	}
	elapsed := time.Since(began)
	disturbed := end(0)
	runtime.ReadMemStats(&after)
	if l.served != calls {
		return run{}, 0, fmt.Errorf("%d of %d requests were allowed", l.served, calls)
	}
	return run{
		nanos:  float64(elapsed) / float64(calls),
		allocs: float64(after.Mallocs-before.Mallocs) / float64(calls),
	}, disturbed, nil
}
