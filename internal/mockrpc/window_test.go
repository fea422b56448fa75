package mockrpc

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
)

const second = time.Second

// model decides slowly and exactly by a list of everything that was admitted.
type model struct {
	admitted []admission
	windows  []struct {
		period time.Duration
		most   int64
	}
	rate, size int64 // of a bucket, none if size is 0
}

func (m *model) limit(period time.Duration, most int64) {
	m.windows = append(m.windows, struct {
		period time.Duration
		most   int64
	}{period, most})
}

// admits reports whether there is room at an instant that is not before the last admission.
func (m *model) admits(now time.Duration, units int64) bool {
	for _, w := range m.windows {
		sum := units
		for _, a := range m.admitted {
			if a.at > now-w.period {
				sum += a.units
			}
		}
		if sum > w.most {
			return false
		}
	}
	return m.size == 0 || m.level(now).Cmp(big.NewRat(units, 1)) >= 0
}

// level replays the bucket in fractions.
func (m *model) level(now time.Duration) *big.Rat {
	full := big.NewRat(m.size, 1)
	level, at := full, time.Duration(0)
	refill := func(until time.Duration) {
		level = new(big.Rat).Add(level, big.NewRat(int64(until-at)*m.rate, int64(second)))
		if level.Cmp(full) > 0 {
			level = full
		}
		at = until
	}
	for _, a := range m.admitted {
		refill(a.at)
		level = new(big.Rat).Sub(level, big.NewRat(a.units, 1))
	}
	refill(now)
	return level
}

// TestAccountAgainstModel sends random calls to accounts of both presets. Each decision is that of the model, and
// each wait ends exactly when the model has room.
func TestAccountAgainstModel(t *testing.T) {
	alchemy := &model{rate: 7, size: 70}
	alchemy.limit(10*second, 70)
	generic := &model{}
	generic.limit(second, 5)
	generic.limit(time.Minute, 60)
	tests := []struct {
		name   string
		config Config
		model  *model
		most   int64 // units of a call
	}{
		{Alchemy, Config{Preset: Alchemy, Rate: 7}, alchemy, 40},
		{Generic, Config{Preset: Generic, Rate: 5, PerMinute: 60}, generic, 5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := tt.config.withDefaults()
			a, random := newAccount(c, c.Accounts[0]), rand.New(rand.NewPCG(1, 2))
			refused := 0
			for now := time.Duration(0); len(tt.model.admitted) < 300; now += time.Duration(random.Int64N(int64(second))) {
				units := 1 + random.Int64N(tt.most)
				want := tt.model.admits(now, units)
				wait := a.take(now, units)
				if (wait == 0) != want {
					t.Fatalf("%d units at %v: wait %v, the model says %v", units, now, wait, want)
				}
				if want {
					tt.model.admitted = append(tt.model.admitted, admission{now, units})
					continue
				}
				refused++
				if tt.model.admits(now+wait-1, units) || !tt.model.admits(now+wait, units) {
					t.Fatalf("%d units at %v: the wait of %v is not exact", units, now, wait)
				}
			}
			if refused < 100 {
				t.Errorf("only %d calls were refused", refused)
			}
		})
	}
}

func TestBothReadings(t *testing.T) {
	tests := []struct {
		name    string
		at      time.Duration
		units   int64
		want    time.Duration
		because string
	}{
		{"all at once", 0, 5000, 0, ""},
		{"one more", 0, 1, 10 * second, "the window; the bucket has room after 2 ms"},
		{"what the bucket has refilled", 5 * second, 2500, 5 * second, "the window"},
		{"when the window is free", 10 * second, 4000, 0, ""},
		{"the rest", 10 * second, 1000, 0, ""},
	}
	a := newAccount(Config{Preset: Alchemy}, Account{Rate: 500})
	for _, tt := range tests {
		if got := a.take(tt.at, tt.units); got != tt.want {
			t.Errorf("%s: wait %v, want %v (%s)", tt.name, got, tt.want, tt.because)
		}
	}
	if a.units != 10_000 || a.observed.peak != 5000 {
		t.Errorf("%d units, at most %d in 10 s", a.units, a.observed.peak)
	}
}

// TestBucketOfTheLargestRate shows that the arithmetic has room for it, also after a long pause.
func TestBucketOfTheLargestRate(t *testing.T) {
	b := newBucket(MaxRate, span)
	b.take(0, b.size)
	if got := b.wait(0, b.size); got != span {
		t.Errorf("wait %v", got)
	}
	if got := b.wait(365*24*time.Hour, b.size); got != 0 {
		t.Errorf("wait %v after a year", got)
	}
}
