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
