package fleettest

import (
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/tiered"
)

// use checks that no mode leaves more units unused than documented, if the demand on all nodes
// exceeds the limit all the time and nothing fails.
func (c *checker) use() {
	s := c.s
	const least = 8 // with less burst, units are lost between calls that come at random
	faults := len(s.Failovers) + len(s.Crashes) + len(s.Changes) + len(s.Closes)
	if float64(c.r.Policy.Capacity()) < least || !s.Saturated || c.troubled() || faults > 0 || s.Duplicate > 0 || s.Others > 0 {
		return
	}
	for k := range s.Keys {
		key := keyName(k)
		got, due := c.used(key), 0.9*c.demanded(key)
		for i := range c.limits {
			due = min(due, c.due(&c.limits[i]))
		}
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

// demanded returns the demand for a key, in units.
func (c *checker) demanded(key string) (sum float64) {
	for _, call := range c.r.Calls {
		if call.Key == key && call.takes() {
			sum += float64(call.Cost)
		}
	}
	return sum
}

// due returns the least that must have been admitted of a limit.
func (c *checker) due(m *measure) float64 {
	length := c.s.Length - 100*time.Millisecond // until all have begun
	full, slack := m.capacity+m.rate*length.Seconds(), 0.0
	if !m.bursts() {
		full = m.capacity * float64(c.whole(m, length))
	}
	switch slack = max(2, 0.02*full); {
	case m.algorithm == weir.SlidingWindow || m.algorithm == weir.AnchoredWindow || m.algorithm == weir.SlidingLog:
		slack = max(2, 0.15*full) // windows open late, and estimates are rounded up
	}
	switch c.s.Mode {
	case tiered.Leased:
		slack += m.capacity / 4
	case tiered.Async:
		slack += c.b * float64(c.s.Nodes)
	}
	return full - slack
}

// whole returns how many periods lie wholly within the run: of aligned windows, those whose
// edges do.
func (c *checker) whole(m *measure, length time.Duration) int64 {
	if m.algorithm != weir.FixedWindow && m.algorithm != weir.DualWindow {
		return int64(length / m.per)
	}
	per := int64(m.per)
	first := (int64(c.s.instant(c.s.Length-length)) + per - 1) / per
	return max(0, int64(c.s.instant(c.s.Length))/per-first)
}
