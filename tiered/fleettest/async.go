package fleettest

import (
	"time"

	"github.com/weirlimit/weir/tiered"
)

// overshoot is what Async may admit too much of a key, by the formula of package
// tiered's documentation, at the worst R.
func (c *checker) overshoot(key string) float64 {
	if c.s.Mode != tiered.Async {
		return 0
	}
	w := c.s.FlushEvery + c.s.Timeout
	demand := make([]float64, c.s.Nodes)
	for i := range demand {
		demand[i] = c.demand(i, key, w)
	}
	b := float64(c.s.MaxUnsynced)
	e := Overshoot(0, b, demand)
	if c.troubled() {
		e += c.lostDebts(key)
	}
	return e
}

// demand returns the most units of a key that a node was asked for within w.
func (c *checker) demand(node int, key string, w time.Duration) float64 {
	var (
		window    []Call
		sum, most float64
	)
	for _, call := range c.r.Calls {
		if call.Node != node || call.Key != key {
			continue
		}
		window = append(window, call)
		sum += float64(call.Cost)
		for call.Start-window[0].Start > w {
			sum -= float64(window[0].Cost)
			window = window[1:]
		}
		most = max(most, sum)
	}
	return most
}

// Overshoot is max(0, Σᵢ min(R + refill, b, dᵢ) − (R + refill)) at the R that makes it
// greatest: refill is what comes back within a flush and a round trip, dᵢ what node i is
// asked for meanwhile.
func Overshoot(refill, b float64, demand []float64) (worst float64) {
	at := func(room float64) float64 {
		sum := 0.0
		for _, d := range demand {
			sum += min(room, b, d)
		}
		return sum - room
	}
	// It is piecewise linear in R, so the worst is at a corner.
	for _, corner := range append([]float64{refill, b}, demand...) {
		worst = max(worst, at(max(refill, corner)))
	}
	return worst
}
