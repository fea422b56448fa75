package pacer

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func newGroup(t *testing.T, line string) *Group {
	t.Helper()
	g, err := NewGroup(parseSpec(t, line))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func parseSpec(t *testing.T, line string) Spec {
	t.Helper()
	s, err := ParseSpec(line)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func apply(t *testing.T, g *Group, line string) {
	t.Helper()
	if err := g.Apply(parseSpec(t, line)); err != nil {
		t.Fatal(err)
	}
}

// TestGroupScope: five goroutines at 100 per second start 500 in a second with
// pacers of their own, and 100 with one for all.
func TestGroupScope(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]int{"100,thread": 500, "100,activity": 100, "100": 100} {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t, line)
			var (
				wg    sync.WaitGroup
				mu    sync.Mutex
				total int
			)
			end := time.Now().Add(time.Second)
			for range 5 {
				wg.Go(func() {
					p := g.Join()
					defer g.Leave(p)
					for {
						if _, err := p.Wait(t.Context()); err != nil || !time.Now().Before(end) {
							return
						}
						mu.Lock()
						total++
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			if total != want {
				t.Errorf("%s: %d starts, want %d", line, total, want)
			}
			if len(g.own) != 0 {
				t.Errorf("%s: %d have not left", line, len(g.own))
			}
		})
	}
}

// TestGroupApply: those who are there change, those who come find the new Config,
// those who have left keep theirs.
func TestGroupApply(t *testing.T) {
	t.Parallel()
	g := newGroup(t, "100,thread")
	here, left := g.Join(), g.Join()
	g.Leave(left)
	apply(t, g, "250,1.5,thread")
	later := g.Join()
	for _, test := range []struct {
		name string
		p    *Pacer
		rate float64
		mode Mode
	}{{"here", here, 250, Burst}, {"later", later, 250, Burst}, {"left", left, 100, Average}} {
		if c := test.p.Config(); c.Rate != test.rate || c.Mode != test.mode {
			t.Errorf("%s: %v, %v, want %+v", test.name, c.Rate, c.Mode, test)
		}
	}

	all := newGroup(t, "100")
	p := all.Join()
	all.Leave(p)
	apply(t, all, "250,1")
	if c := p.Config(); c.Rate != 250 || c.Mode != Strict || all.Join() != p {
		t.Errorf("shared: %+v", c)
	}
}

// TestGroupRuns: who has joined before and who joins after runs or waits, as the
// verbs so far say.
func TestGroupRuns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		verbs string
		want  bool
	}{
		{"start", true},
		{"restart", true},
		{"stop", false},
		{"configure", false},
		{"configure start", true},
		{"configure configure", false},
		{"start configure", true},
		{"start stop", false},
		{"start stop configure", false},
		{"start stop start", true},
		{"start stop restart", true},
		{"stop restart configure", true},
	} {
		for _, scope := range scopes {
			synctest.Test(t, func(t *testing.T) {
				verbs := strings.Fields(test.verbs)
				g := newGroup(t, "100,"+verbs[0]+","+scope)
				before := g.Join()
				for _, verb := range verbs[1:] {
					apply(t, g, "200,"+verb+","+scope)
				}
				after := g.Join()
				time.Sleep(time.Second) // the next unit is due
				if _, got := before.TryNext(); got != test.want {
					t.Errorf("%s, %s: joined before: %v", test.verbs, scope, got)
				}
				time.Sleep(time.Second)
				if _, got := after.TryNext(); got != test.want {
					t.Errorf("%s, %s: joined after: %v", test.verbs, scope, got)
				}
			})
		}
	}
}

// TestGroupRefuses: what is refused changes nothing.
func TestGroupRefuses(t *testing.T) {
	t.Parallel()
	if g, err := NewGroup(Spec{Rate: -1, Verb: 9}); g != nil || err == nil || !strings.Contains(err.Error(), "verb 9") {
		t.Errorf("%v, %v", g, err)
	}
	g := newGroup(t, "100,thread")
	p := g.Join()
	for says, s := range map[string]Spec{
		"scope activity: want thread": {Rate: 5},
		"rate 0":                      {Scope: Thread},
		"verb 7":                      {Rate: 5, Scope: Thread, Verb: 7},
		"scope 7":                     {Rate: 5, Scope: 7},
	} {
		if err := g.Apply(s); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", s, err, says)
		}
	}
	if p.Config().Rate != 100 || g.Join().Config().Rate != 100 {
		t.Errorf("%v, %v per second", p.Config().Rate, g.Join().Config().Rate)
	}
}

// TestGroupTogether is for the race detector: whoever is in the group in the end
// has the last Spec.
func TestGroupTogether(t *testing.T) {
	t.Parallel()
	g := newGroup(t, "1000,thread")
	pacers := make(chan *Pacer, 40)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				g.Leave(g.Join())
				pacers <- g.Join()
			}
		})
	}
	for i := range 20 {
		if err := g.Apply(Spec{Rate: float64(1001 + i), Scope: Thread}); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	close(pacers)
	for p := range pacers {
		if got := p.Config().Rate; got != 1020 {
			t.Errorf("%v per second, want 1020", got)
		}
	}
}
