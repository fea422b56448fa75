package redisbacked

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/bench/internal/redisserver"
	"github.com/weirlimit/weir/tiered"
)

// newServer starts a server for a test.
func newServer(t *testing.T) *redisserver.Server {
	t.Helper()
	s, err := redisserver.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// TestKeysAreKeptApart makes sure that each library refuses the key whose limit is
// used up, and no other, and that it knows one limit from the other.
func TestKeysAreKeptApart(t *testing.T) {
	const few, more = 0, 1
	settings := []setting{{burst: 2, every: time.Hour}, {burst: 3, every: time.Hour}}
	for _, lib := range append([]library{weirTake(), weirNet(), tier(tiered.Exact), tier(tiered.Leased), tier(tiered.Async), evalFloor()}, hotPeers()...) {
		t.Run(lib.name, func(t *testing.T) {
			l, err := lib.open(newServer(t).Addr, settings)
			if err != nil {
				t.Fatal(err)
			}
			defer l.close()
			for i, step := range []struct {
				which int
				key   string
				want  bool
			}{
				{few, "a", true},
				{few, "b", true},
				{few, "a", true},
				{few, "a", false},
				{few, "b", true},
				{few, "b", false},
				{more, "c", true},
				{more, "c", true},
				{more, "c", true},
				{more, "c", false},
			} {
				got, err := l.take(context.Background(), step.which, step.key)
				if err != nil || got != step.want {
					t.Errorf("step %d, key %s: admitted %t, error %v", i, step.key, got, err)
				}
			}
			if n := l.commands(); n < 10 && l.guesses == nil || n < 1 {
				t.Errorf("%d commands were sent for 10 decisions", n)
			}
		})
	}
}

// fake is a library that calls no server.
func fake(name string, take func() (bool, error)) library {
	return library{name: name, open: func(string, []setting) (limiter, error) {
		return limiter{
			take:     func(context.Context, int, string) (bool, error) { return take() },
			commands: func() int64 { return 0 },
			close:    func() {},
		}, nil
	}}
}

func yes() (bool, error) { return true, nil }

func quietly(string) {}

func TestWrongAnswersAreTold(t *testing.T) {
	no := func() (bool, error) { return false, nil }
	_, _, err := compare([]library{fake(redisRateName, yes), fake("miser", no)}, newKeys(1, plenty), tiny, quietly)
	if err == nil || !strings.HasPrefix(err.Error(), "miser: ") || !strings.HasSuffix(err.Error(), " answers are wrong") {
		t.Errorf("error %v", err)
	}
}

func TestErrorsAreCounted(t *testing.T) {
	k := newKeys(1, plenty)
	r := k.askAtOnce(limiter{take: func(context.Context, int, string) (bool, error) { return false, errors.New("busy") }}, time.Millisecond)
	if r.answered != 0 || r.failed < 1 || r.wrong != 0 {
		t.Errorf("%d decisions, %d errors, %d wrong", len(r.took), r.failed, r.wrong)
	}
	l := entrant{runs: []run{{failed: 1, answered: 2}, {answered: 1}}}
	if got := l.failures(); got != 0.25 {
		t.Errorf("%v of the calls failed, want 0.25", got)
	}
}

func TestFillFails(t *testing.T) {
	broken := errors.New("broken")
	_, _, err := compare([]library{fake("broken", func() (bool, error) { return false, broken })}, newKeys(100, plenty), tiny, quietly)
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

// TestBestRunCounts gives three runs to one library and one to the other.
func TestBestRunCounts(t *testing.T) {
	second := func(decisions int) run {
		return run{took: make([]time.Duration, decisions), answered: decisions, elapsed: time.Second, commands: 8, here: time.Millisecond}
	}
	values := valuesOf([]*entrant{
		{library: library{name: weirName}, runs: []run{second(10), second(40), second(20)}},
		{library: library{name: redisRateName}, runs: []run{second(4)}},
	})
	for k, want := range []float64{40, 20, 10, 0, 0, 0, 0.2, 25, 0} {
		if got := values[0][k]; got != want {
			t.Errorf("%s: %v, want %v", figures(0, 0)[k].Name, got, want)
		}
	}
}
