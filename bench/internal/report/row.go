package report

import (
	"math"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// Row is one figure of weir's beside its peers'. It is good if Ratio is at least
// Goal.
type Row struct {
	// Case is the contender and what it did, for example
	// "weir Single.Allow, allow, 1 goroutine".
	Case string `json:"case"`

	// Weir is weir's figure: nanoseconds per call, or what else the case says,
	// such as allocations per call or bytes per key.
	Weir float64 `json:"weir"`

	// BestPeer is the least figure of any peer, those that promise less aside.
	// It is 0, and the name empty, if no peer can do it.
	BestPeer     float64 `json:"best_peer"`
	BestPeerName string  `json:"best_peer_name"`

	// Against is the peer, the floor or the bound that Ratio refers to. It is
	// empty, and Ratio 0, if there is nothing to compare with.
	Against string `json:"against"`

	// Ratio is how many times better weir is than that, for example 3.1.
	Ratio float64 `json:"ratio"`

	// Goal is the least good ratio, for example 2.5. 0 means that the row only
	// informs.
	Goal float64 `json:"goal"`
}

// Met says whether the row reaches its goal.
func (r Row) Met() bool { return r.Ratio >= r.Goal }

// AtMost expresses "at most so many" as a ratio whose goal is 1.
func AtMost(allowed, measured float64) float64 {
	if measured = max(0, measured); allowed == 0 || measured == 0 { // a difference may be below zero
		return (allowed + 1) / (measured + 1)
	}
	return allowed / measured
}

// AtLeast expresses "at least so many" as a ratio whose goal is 1.
func AtLeast(wanted, measured float64) float64 { return measured / wanted }

// against names the contender that the result's ratios are taken against.
func against(r harness.Result) string { return r.Case.Contenders[r.Against()].Name }

// timeRows returns a row for each of weir's contenders.
func timeRows(r harness.Result) []Row {
	peer, name := bestPeer(r, r.Figure)
	var rows []Row
	for i, con := range r.Case.Contenders {
		if con.Kind != harness.Weir {
			continue
		}
		row := Row{
			Case:         con.Name + ", " + r.Case.Name,
			Weir:         r.Figure(i),
			BestPeer:     peer,
			BestPeerName: name,
			Against:      against(r),
			Ratio:        r.Ratio(i),
			Goal:         con.Goal,
		}
		if con.AtMost > 0 {
			row.Against, row.Ratio, row.Goal = atMostTime(con), AtMost(con.AtMost, row.Weir), 1
		}
		rows = append(rows, row)
	}
	return rows
}

// atMostTime is a contender's goal in nanoseconds: "at most 15 ns".
func atMostTime(con harness.Contender) string { return "at most " + number(con.AtMost) + " ns" }

// allocRows is timeRows for allocations, of which there are to be none.
func allocRows(r harness.Result) []Row {
	peer, name := bestPeer(r, func(i int) float64 { return r.Measurements[i].Allocs })
	var rows []Row
	for i, con := range r.Case.Contenders {
		if con.Kind != harness.Weir {
			continue
		}
		allocs := r.Measurements[i].Allocs
		rows = append(rows, Row{
			Case:         con.Name + ", " + r.Case.Name + ", allocations",
			Weir:         allocs,
			BestPeer:     peer,
			BestPeerName: name,
			Against:      "at most 0",
			Ratio:        AtMost(0, allocs),
			Goal:         1,
		})
	}
	return rows
}

// bestPeer returns the least figure of a peer and whose it is.
func bestPeer(r harness.Result, figure func(i int) float64) (best float64, name string) {
	best = math.Inf(1)
	for i, con := range r.Case.Contenders {
		if f := figure(i); con.Kind == harness.Peer && f < best {
			best, name = f, con.Name
		}
	}
	if name == "" {
		return 0, ""
	}
	return best, name
}
