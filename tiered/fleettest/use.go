package fleettest

import (
	"time"

	"github.com/weirlimit/weir/tiered"
)

// use checks that no mode leaves more unused than it says, where all nodes ask for more
// than the limit all the time and nothing goes wrong.
func (c *checker) use() {
	s := c.s
	const least = 8 // with less burst, units are lost between calls that come at random
	if s.Limit.Burst < least || !s.Saturated || c.troubled() || len(s.Failovers)+len(s.Crashes)+len(s.Changes) > 0 {
		return
	}
	for k := range s.Keys {
		key := string(rune('a' + k))
		got, due := c.used(key), min(c.due(), 0.9*c.asked(key))
		if got < due {
			c.wrong("key %s: %.0f units were admitted, %.1f should have been", key, got, due)
		}
	}
}

// used returns the units of a key that were admitted.
func (c *checker) used(key string) (sum float64) {
	for _, g := range c.r.Grants(key) {
		sum += float64(g.Units)
	}
	return sum
}

// asked returns the units of a key that were asked for.
func (c *checker) asked(key string) (sum float64) {
	for _, call := range c.r.Calls {
		if call.Key == key {
			sum += float64(call.Cost)
		}
	}
	return sum
}

// due returns the least that must have been admitted.
func (c *checker) due() float64 {
	s := c.s
	length := s.Length - 100*time.Millisecond // until all have begun
	full := c.burst() + c.rate()*length.Seconds()
	slack := max(2, 0.01*full)
	switch s.Mode {
	case tiered.Leased:
		slack += c.burst() / 4
	case tiered.Async:
		slack += c.burst() / 10 * float64(s.Nodes)
	}
	return full - slack
}
