package mono

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestNowIsWallTime(t *testing.T) {
	before := time.Now().UnixNano()
	now := Now()
	if off := time.Duration(now - before); off < -time.Minute || off > time.Minute {
		t.Errorf("off by %v", off)
	}
}

func TestNowNeverDecreases(t *testing.T) {
	last := Now()
	for range 100_000 {
		now := Now()
		if now < last {
			t.Fatalf("%d after %d", now, last)
		}
		last = now
	}
}

// A bubble starts at midnight of 2000-01-01, a Saturday and the start of a leap
// year. Limiters must see such a day too, and time must pass as it does there.
func TestNowInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Unix(0, Now()).UTC()
		if want := time.Date(2056, 1, 1, 0, 0, 0, 0, time.UTC); !start.Equal(want) || start.Weekday() != time.Saturday {
			t.Errorf("%v, want %v", start, want)
		}
		time.Sleep(90 * time.Minute)
		if passed := time.Unix(0, Now()).Sub(start); passed != 90*time.Minute {
			t.Errorf("%v passed", passed)
		}
	})
}

// The wall clock steps while the process runs. Now follows it forward, and never back.
func TestCatchUp(t *testing.T) {
	defer ahead.Store(ahead.Load())
	const hour = time.Hour
	for _, step := range []struct {
		wall, passed time.Duration // since the start
		want         time.Duration
	}{
		{hour, hour, 0},
		{2*hour + MinStep - 1, 2 * hour, 0},
		{2*hour + MinStep, 2 * hour, MinStep},
		{3*hour + MinStep, 3 * hour, 0},
		{5 * hour, 4 * hour, hour - MinStep}, // an hour forward, or asleep for an hour
		{5 * hour, 5 * hour, 0},              // back where it was
		{6*hour - 5*time.Minute, 6 * hour, 0},
		{8*hour + 1*time.Second, 7 * hour, time.Second},
	} {
		before := Now()
		if got := catchUp(baseUnix+int64(step.wall), step.passed); got != step.want {
			t.Errorf("at %v, when %v has passed: moved by %v, want %v", step.wall, step.passed, got, step.want)
		}
		if moved := time.Duration(Now() - before); moved < step.want || moved > step.want+time.Minute {
			t.Errorf("Now has moved by %v, want %v", moved, step.want)
		}
	}
}

// Where nothing has stepped, in a bubble or out of it, there is nothing to catch up with.
func TestNothingToCatchUpWith(t *testing.T) {
	if step := CatchUp(); step != 0 {
		t.Errorf("moved by %v", step)
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		if step := CatchUp(); step != 0 {
			t.Errorf("moved by %v in a bubble", step)
		}
	})
}
