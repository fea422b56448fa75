package faults

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirlimit/weir/faults/internal/report"
	"github.com/weirlimit/weir/faults/internal/rig"
)

const wallConfig = `policies:
  default: {limits: [{rate: 100, per: 1s, burst: 100}]}
  slow: {limits: [{rate: 100, per: 10h, burst: 100}]}
  daily: {limits: [{rate: 100, per: day}]}
`

// mostForgiven is what an hour that never was gives back of the limit slow, and one unit
// for the time that the test takes.
const mostForgiven = 10 + 1

// walled is a daemon that counts in memory, with a snapshot, under a wall clock that steps.
type walled struct {
	*trial
	wall    *rig.Wall
	program string
	args    []string
	fleet   *rig.Fleet
}

// newWalled returns one that is not started, at noon.
func newWalled(tr *trial) *walled {
	tr.Helper()
	program, err := rig.BuildWithWall("..", tr.TempDir())
	if err != nil {
		tr.Fatal(err)
	}
	now := time.Now().UTC()
	noon := time.Date(now.Year(), now.Month(), now.Day(), 12, 0, 0, 0, time.UTC)
	return &walled{
		trial: tr, program: program, wall: rig.NewWall(tr.T, noon),
		args: []string{"-c", config(tr, wallConfig), "--snapshot", filepath.Join(tr.TempDir(), "weir.snap")},
	}
}

// onlyLong skips what takes too long for the short form: the standard library is built anew.
func onlyLong(t *testing.T) {
	t.Helper()
	if !long {
		t.Skip("in the long form only: it builds Go's standard library anew")
	}
}

// restart stops the daemon, if there is one, and starts it when the clock has stepped.
func (w *walled) restart(step time.Duration) {
	w.Helper()
	if w.fleet != nil {
		w.fleet.Stop() // which saves the counts
	}
	w.wall.Step(step)
	w.fleet = rig.StartFleet(w, w.program, 1, w.args...)
}

// figureOff is a time that does not depend on how busy the machine is.
func figureOff(name string, off time.Duration) report.Figure {
	return report.Figure{Name: name, Value: brief(off), Bound: "≤ 1s", Met: off <= time.Second}
}

// spend takes up to 100 units and returns how many were admitted.
func (w *walled) spend(policy, key string) (admitted int) {
	w.Helper()
	for range 100 {
		answer, err := w.fleet.AskFor(0, policy, key, 1)
		if err != nil || answer.Status != 200 {
			w.Fatalf("%s: %+v, %v", policy, answer, err)
		}
		admitted += count(answer.Allowed)
	}
	return admitted
}

// spendAll uses up a key that was not used before.
func (w *walled) spendAll(policy, key string) {
	w.Helper()
	if n := w.spend(policy, key); n != 100 {
		w.Errorf("%d of 100 units of a fresh key of %s were admitted", n, policy)
	}
}

// offMidnight returns by how much the daemon is wrong about when the day ends: a key of
// daily that is used up is to be asked for again at midnight.
func (w *walled) offMidnight(key string) time.Duration {
	w.Helper()
	var answer struct {
		RetryAfterMS int64 `json:"retry_after_ms"`
	}
	now := w.wall.Now().UTC()
	post(w.trial, w.fleet, 0, "/v1/check", fmt.Sprintf(`{"policy":"daily","key":%q}`, key), &answer)
	midnight := time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, time.UTC)
	return (time.Duration(answer.RetryAfterMS)*time.Millisecond - midnight.Sub(now)).Abs()
}

// F28: a daemon is started when the wall clock shows another time than it should.
func TestWallStepsAtRestart(t *testing.T) {
	onlyLong(t)
	tr := try(t, "F28", "the wall clock steps by −5 min, then by +1 h while a daemon that counts in memory is restarted, with a snapshot",
		"what was used stays used, but for rate × 1 h; calendar windows are right within a second")
	w := newWalled(tr)
	w.restart(0)
	w.spendAll("slow", "k")
	w.spendAll("daily", "k")
	w.restart(-5 * time.Minute)
	tr.none("admitted of what was used up, after −5 min", w.spend("slow", "k")+w.spend("daily", "k"))
	tr.note("until the clock has caught up, the day's end is wrong by", "%s", brief(w.offMidnight("k")))
	w.restart(time.Hour)
	tr.none("admitted of the day's, after +1 h", w.spend("daily", "k"))
	tr.atMost("admitted of 10 per hour, after +1 h", float64(w.spend("slow", "k")), mostForgiven, "10 + 1")
	tr.add(figureOff("then the day's end is wrong by", w.offMidnight("k")), true)
	w.restart(-5 * time.Minute)
	w.nextDay("k")

	w.restart(23*time.Hour + 30*time.Minute) // 23:30 of that day
	w.spendAll("daily", "late")
	w.restart(time.Hour) // 0:30
	w.spendAll("daily", "late")
	tr.add(figureOff("the next day's end is wrong by", w.offMidnight("late")), true)
	w.restart(-time.Hour) // 23:30 again
	tr.none("admitted of the next day's, after it was the day before again", w.spend("daily", "late"))
	w.fleet.Stop()
}

// F28b: the wall clock steps under a running daemon. To a process, the time for which its
// machine was suspended is such a step, too: the monotonic clock stood still.
func TestWallStepsWhileRunning(t *testing.T) {
	onlyLong(t)
	tr := try(t, "F28b", "the wall clock steps by +1 h, as after a suspension, then by −5 min under a running daemon that counts in memory",
		"what was used stays used, but for rate × 1 h; calendar windows are right within a second")
	w := newWalled(tr)
	w.restart(0)
	w.spendAll("slow", "k")
	w.spendAll("daily", "k")
	w.wall.Step(time.Hour)
	w.awaitDay("k")
	tr.none("admitted of the day's, after +1 h", w.spend("daily", "k"))
	tr.atMost("admitted of 10 per hour, after +1 h", float64(w.spend("slow", "k")), mostForgiven, "10 + 1")
	w.wall.Step(-5 * time.Minute)
	tr.none("admitted of the day's, after −5 min", w.spend("daily", "k"))
	tr.atMost("admitted of 10 per hour, after −5 min", float64(w.spend("slow", "k")), 1, "1, for the time the test takes")
	w.nextDay("k")
	w.fleet.Stop()
}

// awaitDay gives the daemon some time to notice that the clock has stepped.
func (w *walled) awaitDay(key string) {
	w.Helper()
	const notices = 5 * time.Second
	off := w.offMidnight(key)
	for end := time.Now().Add(notices); off > time.Second && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		off = w.offMidnight(key)
	}
	w.add(figureOff("the day's end is wrong by", off), true)
}

// nextDay has the clock step to some seconds before the day's end, and looks at when units of
// the next are admitted.
func (w *walled) nextDay(key string) {
	w.Helper()
	now := w.wall.Now().UTC()
	midnight := time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, time.UTC)
	w.wall.Step(midnight.Sub(now) - 5*time.Second)
	end := midnight.Add(10 * time.Second)
	for w.wall.Now().Before(end) {
		answer, err := w.fleet.AskFor(0, "daily", key, 1)
		if err != nil {
			w.Fatal(err)
		}
		if answer.Allowed {
			w.add(figureOff("the next day began off midnight by", w.wall.Now().Sub(midnight).Abs()), true)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	w.Errorf("nothing is admitted %v after midnight", w.wall.Now().Sub(midnight))
}
