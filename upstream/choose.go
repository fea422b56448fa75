package upstream

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// maxCandidates is how many endpoints selection returns at most.
const maxCandidates = 4

// Candidate is an endpoint that takes a request.
type Candidate struct {
	Alias string

	// AvailableAt is when it can take the request if nothing else happens: when it has room, and no cooldown
	// holds it up. It is the zero time if nobody can say.
	AvailableAt time.Time
}

// Candidates returns the up to four endpoints that Send would try first for a call, and when each is available. It
// charges nothing and does not wait.
func (p *Pool) Candidates(ctx context.Context, c *Call) (list []Candidate, err error) {
	set, now := p.set.Load(), time.Now()
	chosen := set.choose(c, now, nil)
	for _, e := range set.endpoints {
		if len(chosen) < maxCandidates && e.takes(c) && !slices.Contains(chosen, e) {
			chosen = append(chosen, e)
		}
	}
	for _, e := range chosen {
		r, err := p.expect(ctx, e, c, 0, 0)
		if err != nil {
			return nil, err
		}
		if r.never {
			r.at = time.Time{}
		}
		list = append(list, Candidate{e.Alias, r.at})
	}
	return list, nil
}

// choose returns the up to four endpoints to try for a call, the best one first. Those whose gates are closed and
// those that were tried already are left out.
func (s *set) choose(c *Call, now time.Time, tried []*endpoint) []*endpoint {
	list := make([]*endpoint, 0, min(len(s.endpoints), 8))
	for _, e := range s.endpoints {
		if _, closed := e.closed(now, false); !closed && e.takes(c) && !slices.ContainsFunc(tried, e.is) {
			list = append(list, e)
		}
	}
	slices.SortStableFunc(list, func(a, b *endpoint) int { return cmp.Compare(a.Priority, b.Priority) })
	if s.config.Strategy == Balanced {
		for from := 0; from < min(len(list), maxCandidates); {
			to := from + samePriority(list[from:])
			shuffle(list[from:to], now)
			from = to
		}
	}
	return list[:min(len(list), maxCandidates)]
}

// is reports whether two endpoints are the same, maybe in different configurations.
func (e *endpoint) is(other *endpoint) bool { return e.memory == other.memory }

func samePriority(list []*endpoint) int {
	n := slices.IndexFunc(list, func(e *endpoint) bool { return e.Priority != list[0].Priority })
	if n < 0 {
		return len(list)
	}
	return n
}

// shuffle orders endpoints of the same priority: the fastest tier first, each tier at random.
func shuffle(list []*endpoint, now time.Time) {
	if len(list) < 2 {
		return
	}
	slices.SortStableFunc(list, func(a, b *endpoint) int { return cmp.Compare(a.memory.latency.Load(), b.memory.latency.Load()) })
	for len(list) > 0 {
		n := tier(list)
		draw(list[:n], now)
		list = list[n:]
	}
}

// fast is the latency below which twice as long is as good; above it is a quarter more.
const fast = 250 * time.Millisecond

// tier returns how many of the first endpoints are about as fast as the first one whose latency is known. Those
// whose latency is not known are tried, too.
func tier(sorted []*endpoint) int {
	best, n := time.Duration(0), 0
	for _, e := range sorted {
		latency := time.Duration(e.memory.latency.Load())
		if best == 0 {
			best = latency
		}
		limit := 2 * best
		if best >= fast {
			limit = best + best/4
		}
		if latency > limit {
			break
		}
		n++
	}
	return n
}

// least is the part of its weight that an endpoint keeps when it has nothing left, as far as is known.
const least = 0.01

// draw orders endpoints at random, each place by weight and by what is left.
func draw(list []*endpoint, now time.Time) {
	for ; len(list) > 1; list = list[1:] {
		total := 0.0
		for _, e := range list {
			total += e.chance(now)
		}
		at := rand.Float64() * total
		for i, e := range list {
			if at -= e.chance(now); at < 0 || i == len(list)-1 {
				list[0], list[i] = e, list[0]
				break
			}
		}
	}
}

func (e *endpoint) chance(now time.Time) float64 {
	return float64(e.Weight) * max(least, e.memory.left(now))
}
