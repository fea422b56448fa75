package storetest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weirlimit/weir"
)

// The vectors of algo/testdata are what slow models answer, at instants of whole
// microseconds. Implementations in other languages read the same files.

var vectorTests = []test{
	{name: "gcra", run: func(r *rig) { r.playVectors("gcra") }},
	{name: "fixed", run: func(r *rig) { r.playVectors("fixed") }},
	{name: "anchored", run: func(r *rig) { r.playVectors("anchored") }},
	{name: "sliding", run: func(r *rig) { r.playVectors("sliding") }},
	{name: "log", run: func(r *rig) { r.playVectors("log") }},
	{name: "dual", run: func(r *rig) { r.playVectors("dual") }},
}

// vectorCase is one key under one policy. Algo's tests write it.
type vectorCase struct {
	Rate      int64        `json:"rate"`
	PerNs     int64        `json:"per_ns"`
	Burst     int64        `json:"burst"`
	PerMinute int64        `json:"per_minute"` // dual; rate is per second there
	Steps     []vectorStep `json:"steps"`
}

type vectorStep struct {
	NowNs     int64  `json:"now_ns"`
	Op        string `json:"op"` // "take" or "peek"
	Cost      int64  `json:"cost"`
	Allowed   bool   `json:"allowed"`
	Remaining int64  `json:"remaining"` // the least of the limits
	RetryNs   int64  `json:"retry_ns"`
	ResetNs   int64  `json:"reset_ns"` // the greatest of the limits
}

func (r *rig) playVectors(name string) {
	r.t.Helper()
	for i, c := range r.readVectors(name) {
		if name == "gcra" && r.store.Resolution > 1 && c.finerThanTicks() {
			continue
		}
		one := r.another() // cases start at the same instant
		p := one.policy(fmt.Sprintf("%s-%d", name, i), c.limits(name)...)
		for j, s := range c.Steps {
			one.clock.Set(weir.Instant(s.NowNs))
			what := fmt.Sprintf("%s.json, case %d, step %d: %s", name, i, j, callText(s.Op, charge(p, "k", s.Cost)))
			if !s.play(one, p, what) {
				break // what follows depends on it
			}
		}
	}
}

// finerThanTicks says whether a unit can become due less than a tick of Go's clock
// after an instant of whole microseconds, so that Go, which rounds to ticks, and a
// store that rounds to microseconds may report different times. See drawer.rateAndBurst.
func (c *vectorCase) finerThanTicks() bool {
	a, b := c.Rate*1000, c.PerNs
	for b != 0 {
		a, b = b, a%b
	}
	return c.Rate*1000/a > 1000
}

func (r *rig) readVectors(name string) []vectorCase {
	r.t.Helper()
	path, err := findUp(filepath.Join("algo", "testdata", "vectors", name+".json"))
	if err != nil {
		r.t.Fatalf("storetest: %v", err)
	}
	text, err := os.ReadFile(path) //nolint:gosec // a file of this tree
	if err != nil {
		r.t.Fatalf("storetest: %v", err)
	}
	var file struct {
		Cases []vectorCase `json:"cases"`
	}
	if err := json.Unmarshal(text, &file); err != nil || len(file.Cases) == 0 {
		r.t.Fatalf("storetest: %s: %d cases, error %v", path, len(file.Cases), err)
	}
	return file.Cases
}

// findUp looks for a file of the tree from the working directory upwards: tests
// run in the directory of their package, which may be of another module.
func findUp(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not in the working directory nor above it", name)
		}
	}
}

var vectorAlgorithms = map[string]weir.Algorithm{
	"gcra": weir.GCRA, "fixed": weir.FixedWindow, "anchored": weir.AnchoredWindow,
	"sliding": weir.SlidingWindow, "log": weir.SlidingLog,
}

func (c *vectorCase) limits(name string) (limits []weir.Limit) {
	if name != "dual" {
		return []weir.Limit{{Rate: c.Rate, Per: weir.Every(time.Duration(c.PerNs)), Burst: c.Burst, Algorithm: vectorAlgorithms[name]}}
	}
	if c.Rate > 0 {
		limits = append(limits, weir.Limit{Name: "s", Rate: c.Rate, Per: weir.Every(time.Second), Algorithm: weir.DualWindow})
	}
	if c.PerMinute > 0 {
		limits = append(limits, weir.Limit{Name: "m", Rate: c.PerMinute, Per: weir.Every(time.Minute), Algorithm: weir.DualWindow})
	}
	return limits
}

// play compares a step. Of two limits a Decision tells of one only, so what the
// other may have decided is taken from the answer.
func (s *vectorStep) play(r *rig, p *weir.Policy, what string) bool {
	r.t.Helper()
	ask := r.take
	if s.Op == "peek" {
		ask = r.peek
	}
	got := ask(p, "k", s.Cost)
	want := weir.Decision{
		Allowed: s.Allowed, Remaining: s.Remaining,
		RetryAfter: time.Duration(s.RetryNs), ResetAfter: time.Duration(s.ResetNs),
		By: got.By, Limit: p.Compiled().Rules[min(int(got.By), len(p.Compiled().Rules)-1)].Capacity(),
	}
	switch {
	case s.Allowed:
		want.Reason = weir.Admitted
	case s.RetryNs < 0:
		want.Reason, want.RetryAfter = weir.TooCostly, weir.Never
	case !s.Allowed:
		want.Reason = weir.Exhausted
	}
	if len(p.Compiled().Rules) > 1 {
		want.ResetAfter = got.ResetAfter
		if !s.Allowed {
			want.Remaining = got.Remaining
		}
	}
	return r.want(what, got, want)
}
