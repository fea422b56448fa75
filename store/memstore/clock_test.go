package memstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// The wall clock is not what it was when a table is restored.

// stepped is every kind of limit with 10 units, of which a rate gives one back in an hour.
func stepped() map[string]weir.Limit {
	return map[string]weir.Limit{
		"gcra":     {Rate: 10, Per: weir.Every(10 * time.Hour)},
		"bucket":   {Rate: 10, Per: weir.Every(10 * time.Hour), Algorithm: weir.TokenBucket},
		"fixed":    {Rate: 10, Per: weir.Every(24 * time.Hour), Algorithm: weir.FixedWindow},
		"calendar": {Rate: 10, Per: weir.Calendar(weir.Day, nil)},
		"sliding":  {Rate: 10, Per: weir.Every(24 * time.Hour), Algorithm: weir.SlidingWindow},
		"log":      {Rate: 10, Per: weir.Every(24 * time.Hour), Algorithm: weir.SlidingLog},
		"dual":     {Rate: 10, Per: weir.Every(time.Minute), Algorithm: weir.DualWindow},
		"anchored": {Rate: 10, Per: weir.Every(24 * time.Hour), Algorithm: weir.AnchoredWindow},
	}
}

// eachStepped runs f for every kind, without and with an open reservation of 3 of the units.
func eachStepped(t *testing.T, f func(t *testing.T, s *steppedTable)) {
	for kind, limit := range stepped() {
		for _, held := range []int64{0, 3} {
			t.Run(fmt.Sprint(kind, " held ", held), func(t *testing.T) {
				s := &steppedTable{clock: newClock(), kind: kind, p: policy(t, "p", limit)}
				s.clock.pass(12*time.Hour + 30*time.Second) // to a minute's middle after midnight
				s.Table = newTable(t, Config{Now: s.clock.Now, Snapshots: true})
				take(t, s.Table, s.p, "k", 10-held)
				if held > 0 {
					s.hold = reserve(t, s.Table, time.Hour, weir.Charge{Policy: s.p, Key: "k", Cost: held})
				}
				f(t, s)
				check(t, s.Table)
			})
		}
	}
}

// A steppedTable is one whose key "k" has used 10 of 10 units at half a minute after midnight.
type steppedTable struct {
	*Table
	clock *clock
	kind  string
	p     *weir.Policy
	hold  *weir.Batch // nil if nothing is held
}

// restart restores the table after a step of the clock.
func (s *steppedTable) restart(t *testing.T, step time.Duration) {
	data := written(t, s.Table)
	s.clock.pass(step)
	s.Table = restored(t, data, Config{Now: s.clock.Now})
}

func (s *steppedTable) remaining(t *testing.T) int64 {
	t.Helper()
	return take(t, s.Table, s.p, "k", 0).Remaining
}

// A clock that is five minutes behind at the restart: what was used stays used, also in a
// window that had begun only after that, and when the clock has caught up, all is as it was.
func TestClockBehindAtRestart(t *testing.T) {
	eachStepped(t, func(t *testing.T, s *steppedTable) {
		const behind = 5 * time.Minute
		s.restart(t, -behind)
		for _, d := range []time.Duration{0, behind - time.Nanosecond, time.Nanosecond} {
			s.clock.pass(d)
			if n := s.remaining(t); n != 0 {
				t.Fatalf("%d units were forgiven", n)
			}
			s.restart(t, 0) // and once more
		}
		if s.hold != nil {
			if out := settle(t, s.Table, s.p, "k", s.hold, 1); out.Late || s.remaining(t) != 2 {
				t.Errorf("the reservation: %+v, and %d remain", out, s.remaining(t))
			}
		}
		s.clock.pass(-behind) // while it runs
		if n := s.remaining(t); s.hold == nil && n != 0 {
			t.Errorf("%d units were forgiven", n)
		}
		s.clock.pass(behind)
		s.wantBack(t)
	})
}

// wantBack wants units back when they are due, by the clock.
func (s *steppedTable) wantBack(t *testing.T) {
	t.Helper()
	d := take(t, s.Table, s.p, "k", 10)
	if d.Allowed {
		t.Fatalf("%+v", d)
	}
	if s.kind == "calendar" || s.kind == "fixed" { // the end of the day
		if want := 24*time.Hour - 30*time.Second; d.RetryAfter != want {
			t.Errorf("the window ends after %v, want %v", d.RetryAfter, want)
		}
	}
	s.clock.pass(d.RetryAfter - time.Nanosecond)
	if d := take(t, s.Table, s.p, "k", 10); d.Allowed {
		t.Errorf("too early: %+v", d)
	}
	s.clock.pass(time.Nanosecond)
	if d := take(t, s.Table, s.p, "k", 10); !d.Allowed {
		t.Errorf("too late: %+v", d)
	}
}

// A clock that is an hour ahead at the restart, and right at the next: the hour is forgiven
// once, as the rate has it.
func TestClockAheadAtRestart(t *testing.T) {
	eachStepped(t, func(t *testing.T, s *steppedTable) {
		s.restart(t, time.Hour)
		want := map[string]int64{"gcra": 1, "bucket": 1, "dual": 10}[s.kind]
		if n := s.remaining(t); n > want {
			t.Fatalf("%d units were forgiven, at most %d may be", n, want)
		}
		take(t, s.Table, s.p, "k", s.remaining(t))
		s.restart(t, -time.Hour)
		for range 2 {
			if n := s.remaining(t); n != 0 {
				t.Fatalf("%d units were forgiven again", n)
			}
			s.clock.pass(time.Hour)
		}
	})
}

// The same by the real clock, which is read on another path.
func TestRealClockBehindAtRestart(t *testing.T) {
	early := newTable(t, Config{Snapshots: true, Now: func() weir.Instant { return weir.Now().Add(5 * time.Minute) }})
	p := policy(t, "p", weir.Limit{Rate: 1000, Per: weir.Every(time.Second)})
	take(t, early, p, "k", 1000)
	table := restored(t, written(t, early), Config{})
	for range 3 {
		if d := take(t, table, p, "k", 1000); d.Allowed || d.RetryAfter > time.Second {
			t.Fatalf("%+v", d)
		}
	}
	if at := table.now(); at.Sub(weir.Now()) < time.Minute {
		t.Errorf("the table's time is %v", at)
	}
}

// A row is written later than the file's beginning. The clock is behind both.
func TestRowsLaterThanTheFile(t *testing.T) {
	c := newClock()
	table := newTable(t, Config{Now: c.Now, Snapshots: true})
	p := policy(t, "p", weir.Limit{Rate: 10, Per: weir.Every(time.Second)})
	key := ""
	for i := range 10_000 { // more than is written at once
		take(t, table, p, user(i), 10)
		if int((table.hash.sum(user(i))^table.registry.names["p"].salt)>>table.shift) == len(table.shards)-1 {
			key = user(i) // which is written last
		}
	}
	w := &slowFile{then: func() {
		c.pass(10 * time.Second)
		take(t, table, p, key, 10)
	}}
	if err := table.WriteSnapshot(w); err != nil {
		t.Fatal(err)
	}
	c.pass(-time.Minute)
	table = restored(t, w.data, Config{Now: c.Now})
	if d := take(t, table, p, key, 1); d.Allowed || d.RetryAfter != 100*time.Millisecond {
		t.Errorf("%+v", d)
	}
}

// A slowFile calls a function when it is first written to.
type slowFile struct {
	data []byte
	then func()
}

func (f *slowFile) Write(b []byte) (int, error) {
	f.data = append(f.data, b...)
	if f.then != nil {
		f.then()
		f.then = nil
	}
	return len(b), nil
}
