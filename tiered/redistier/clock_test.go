package redistier

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/tiered"
)

// The example of the comment in clock.go.
func TestClockExample(t *testing.T) {
	ms := func(n int64) weir.Instant { return weir.Instant(n * 1e6) }
	var publisher, reader clock
	publisher.add(reading{before: ms(105_000), after: ms(105_002), time: ms(100_000)})
	reader.add(reading{before: ms(95_499), after: ms(95_503), time: ms(100_500)})
	at, known := publisher.toRedis(ms(106_000))
	if want := ms(100_998).Add(-drift(time.Second)); at != want || !known {
		t.Errorf("by Redis's clock: %d, want %d", at, want)
	}
	local, known := reader.fromRedis(ms(100_998), ms(95_998))
	if want := ms(95_997).Add(-time.Microsecond - drift(499*time.Millisecond)); local != want || !known {
		t.Errorf("by the reader's clock: %d, want %d", local, want)
	}
}

// skewed is a clock that differs from the true time, by up to 5 s and 100 ppm.
type skewed struct {
	offset time.Duration
	ppm    int64
}

func (s skewed) at(real time.Duration) weir.Instant {
	return madeAt.Add(s.offset + real + real/1_000_000*time.Duration(s.ppm))
}

func drawSkewed(t *rapid.T, name string) skewed {
	return skewed{
		time.Duration(rapid.Int64Range(-5e9, 5e9).Draw(t, name+" offset")),
		rapid.Int64Range(-100, 100).Draw(t, name+" ppm"),
	}
}

// Whatever the clocks, a denial ends no later than it should, and not much earlier.
func TestNeverLater(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		server, from, to := drawSkewed(t, "redis"), drawSkewed(t, "publisher"), drawSkewed(t, "reader")
		real := time.Hour // ppm have shown by then
		step := func(most time.Duration) time.Duration {
			real += time.Duration(rapid.Int64Range(0, int64(most)).Draw(t, "step"))
			return real
		}
		var publisher, reader clock
		widest := time.Duration(0)
		for range rapid.IntRange(1, 12).Draw(t, "heartbeats") {
			for i, clock := range []*clock{&publisher, &reader} {
				by := []skewed{from, to}[i]
				r := reading{before: by.at(real)}
				r.time = server.at(step(5*time.Millisecond)) / 1000 * 1000
				r.after = by.at(step(5 * time.Millisecond))
				clock.add(r)
				widest = max(widest, r.after.Sub(r.before))
			}
			step(time.Second)
		}
		sent, known := publisher.toRedis(from.at(real))
		if !known {
			t.Fatal("the publisher knows no time")
		}
		if sent > server.at(real) {
			t.Fatalf("it was sent at %d by Redis's clock, and is said to have been at %d", server.at(real), sent)
		}
		lasts := time.Duration(rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "lasts"))
		w := tiered.Message{Kind: tiered.KeyDenied, Policy: "p", Until: from.at(real + lasts), ResetAt: from.at(real + 2*lasts)}
		m, err := decode(string(appendMessage(appendHeader(nil, me, sent), &w, from.at(real))))
		if err != nil {
			t.Fatal(err)
		}
		truth := to.at(real + lasts)
		step(time.Second)
		made, known := reader.fromRedis(m.sent, to.at(real))
		if !known || made > to.at(real) {
			t.Fatalf("it was made at %d, and now it is %d", made, to.at(real))
		}
		m.localize(made)
		early := truth.Sub(m.messages[0].Until)
		if most := 2*widest + 20*time.Millisecond; early < 0 || early > most {
			t.Fatalf("it ends %v early, want from 0 to %v", early, most)
		}
	})
}

// Readings that contradict the newest are forgotten, others are not.
func TestClockIsSet(t *testing.T) {
	const s = weir.Instant(time.Second)
	read := func(at, redis weir.Instant) reading { return reading{at, at.Add(time.Millisecond), redis} }
	tests := []struct {
		name string
		next reading
		want int
	}{
		{"goes on", read(13*s, 113*s), 4},
		{"drifts", read(13*s, 113*s+1000_000), 4},
		{"forward", read(13*s, 114*s), 1},
		{"back", read(13*s, 112*s), 1},
	}
	for _, tt := range tests {
		var c clock
		for i := range weir.Instant(3) {
			c.add(read((10+i)*s, (110+i)*s))
		}
		c.add(tt.next)
		if len(c.readings) != tt.want {
			t.Errorf("%s: %d readings are left, want %d", tt.name, len(c.readings), tt.want)
		}
		least, most, known := c.offset(13 * s)
		if l, m := tt.next.offset(13 * s); !known || least > m || most < l {
			t.Errorf("%s: the offset is between %v and %v, want it near %v", tt.name, least, most, l)
		}
	}
}

// The shortest round trip is used, as long as there are not enough later ones.
func TestShortestRoundTrip(t *testing.T) {
	const s = weir.Instant(time.Second)
	var c clock
	if _, _, known := c.offset(s); known {
		t.Error("the clock is known without a reading")
	}
	c.add(reading{10 * s, 10*s + 1000, 10 * s})
	for i := range weir.Instant(keptReadings) {
		least, most, _ := c.offset((10 + i) * s)
		if width := most - least; width > 10*time.Millisecond {
			t.Errorf("after %d longer ones, the offset is known to %v", i, width)
		}
		c.add(reading{(10 + i) * s, (11 + i) * s, (10 + i) * s})
	}
	if least, most, _ := c.offset(18 * s); most-least < time.Second {
		t.Errorf("then, the offset is known to %v, want 1 s or more", most-least)
	}
	c.forget()
	if _, _, known := c.offset(s); known {
		t.Error("the clock is known although it was forgotten")
	}
}
