package ruleset

import "github.com/weirlimit/weir"

// worst returns the index of the decision that a verdict is about, -1 if there is none: of refusals the one that takes
// longest, and otherwise the tightest. Groups are those of the decisions.
//
// Of limits in one unit that is the one with the least left. Numbers of different units cannot be compared, so
// among those it is the one with the smallest part left: 7,400 of 20,000 tokens are less than 59 of 60 requests.
func worst(groups []*group, decisions []weir.Decision) int {
	at := (&weir.Batch{Decisions: decisions}).Worst()
	if at < 0 || decisions[at].Reason > weir.Admitted {
		return at
	}
	for i := range decisions {
		if leastOfUnit(groups, decisions, i) && partLeft(&decisions[i]) < partLeft(&decisions[at]) {
			at = i
		}
	}
	return at
}

// leastOfUnit reports whether no other decision of the same unit has less left.
func leastOfUnit(groups []*group, decisions []weir.Decision, i int) bool {
	for j := range decisions {
		if groups[j].unit == groups[i].unit && decisions[j].Remaining < decisions[i].Remaining {
			return false
		}
	}
	return true
}

// partLeft returns which part of its limit a decision has left.
func partLeft(d *weir.Decision) float64 {
	return float64(d.Remaining) / float64(max(1, d.Limit))
}
