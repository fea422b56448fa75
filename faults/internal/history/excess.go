package history

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Limit is what each key may have: in any interval Δ at most Burst + Rate × Δ units.
type Limit struct {
	Rate  float64 // units per second
	Burst float64
}

// Grant is one unit that was admitted at some time from Sent to Received.
type Grant struct {
	Sent, Received time.Duration
}

// Excess returns by how many units the grants of one key certainly exceed the limit in
// the interval where they exceed it most. It is negative if there is room left, and -∞
// without grants.
//
// A grant certainly lies in the interval [a, b] if it was sent no earlier than a and
// received no later than b. So whatever the times of the grants were, some interval
// holds at least
//
//	E = max over a, b of  #{grants: a ≤ sent, received ≤ b} − (Burst + Rate × (b − a))
//
// units more than the limit admits. It suffices to look at a that are a grant's sent and
// b that are a grant's received: any other interval has a shorter one with the same
// grants.
//
// For example, 3 grants sent at 0 and received at 1 s, 2 s and 3 s, under 1 per second
// and a burst of 1: E is max(1−2, 2−3, 3−4) = −1. Sent all at 0 and received after 10 ms
// it is 3 − 1.01 = 1.99.
//
// It goes through a from the latest to the earliest, and keeps for each b what the
// interval would have, in a tree that adds to all b from one on and finds the greatest,
// which takes O(n log n).
func Excess(grants []Grant, limit Limit) float64 {
	if len(grants) == 0 {
		return math.Inf(-1)
	}
	ends := make([]time.Duration, len(grants))
	for i, g := range grants {
		ends[i] = g.Received
	}
	slices.Sort(ends)
	tree := newMaxTree(len(ends), func(i int) float64 { return -limit.Rate * ends[i].Seconds() })

	latestFirst := slices.SortedFunc(slices.Values(grants), func(a, b Grant) int { return cmp.Compare(b.Sent, a.Sent) })
	excess := math.Inf(-1)
	for _, g := range latestFirst {
		end, _ := slices.BinarySearch(ends, g.Received)
		tree.addFrom(end, 1)
		// Ends before this grant's own have no part in its interval; if they are
		// better with an earlier grant, that one looks at them.
		best := tree.maxFrom(end)
		excess = max(excess, best+limit.Rate*g.Sent.Seconds())
	}
	return excess - limit.Burst
}

// Excesses returns the Excess of each key. Decisions that admit nothing do not count,
// nor do those without an answer, which may have been admitted.
func Excesses(list []Decision, limit Limit) map[string]float64 {
	grants := map[string][]Grant{}
	for _, d := range list {
		if d.Allowed {
			grants[d.Key] = append(grants[d.Key], Grant{d.Sent, d.Received})
		}
	}
	excesses := map[string]float64{}
	for key, list := range grants {
		excesses[key] = Excess(list, limit)
	}
	return excesses
}

// Worst returns the key with the greatest excess, and that.
func Worst(excesses map[string]float64) (key string, excess float64) {
	excess = math.Inf(-1)
	for k, e := range excesses {
		if e > excess {
			key, excess = k, e
		}
	}
	return key, excess
}
