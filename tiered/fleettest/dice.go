package fleettest

import (
	"hash/fnv"
	"time"
)

// dice is the random source of one event. It depends on the seed and the event, not on the order
// in which goroutines run.
type dice struct{ state uint64 }

func throw(seed uint64, about ...uint64) dice {
	d := dice{seed}
	for _, x := range about {
		d.state = d.next() ^ x
	}
	return d
}

// next is SplitMix64.
func (d *dice) next() uint64 {
	d.state += 0x9e3779b97f4a7c15
	z := d.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// float returns a number from 0 to 1.
func (d *dice) float() float64 { return float64(d.next()>>11) / (1 << 53) }

// chance is true with probability p.
func (d *dice) chance(p float64) bool { return d.float() < p }

// below returns a number from 0 to n-1.
func (d *dice) below(n int) int { return int(d.next() % uint64(n)) }

// between returns a time in a span.
func (d *dice) between(s Span) time.Duration {
	if s.Max <= s.Min {
		return s.Min
	}
	return s.Min + time.Duration(d.next()%uint64(s.Max-s.Min))
}

func hashOf(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // it never fails
	return h.Sum64()
}
