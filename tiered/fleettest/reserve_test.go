package fleettest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// A reserver takes and reserves all it can on one node of a fleet.
type reserver struct {
	*fleet
	t      *testing.T
	node   int
	policy *weir.Policy
	used   []Grant // what was taken or reserved, less what was given back
}

// run takes 10 units and reserves 5 for a minute, every 10 ms. A reservation ends after 300 ms, or when the store that has it
// is available again; every other one gives back 2 units.
func (r *reserver) run() {
	charge := weir.Charge{Policy: r.policy, Key: "a", Cost: 5}
	var open []func() (done bool)
	for r.now() < r.scenario.Length {
		if d, err := r.nodes[r.node].Take(context.Background(), r.policy, charge.Key, 10); err != nil {
			r.t.Error(err)
		} else if d.Allowed {
			r.used = append(r.used, Grant{At: r.now(), From: r.now(), Units: 10})
		}
		res, err := weir.Reserve(context.Background(), r.nodes[r.node], time.Minute, charge)
		if err != nil {
			r.t.Error(err)
		} else if res.Decision.Allowed {
			units := charge.Cost - int64(2*(len(r.used)%2))
			r.used = append(r.used, Grant{At: r.now(), From: r.now(), Units: units})
			ends := r.now() + 300*time.Millisecond
			open = append(open, func() bool {
				if r.now() < ends {
					return false
				}
				_, err := res.Commit(context.Background(), units)
				return err == nil
			})
		}
		open = slices.DeleteFunc(open, func(end func() bool) bool { return end() })
		time.Sleep(10 * time.Millisecond)
	}
}

// With reservations that are open when the store is available again, outages mint no more than
// others, and nobody waits for as long as reservations could last.
func TestReservationsInOutages(t *testing.T) {
	const rate, burst = 500, 500
	lending := perSecond(rate, burst)
	lending[0].Classes = weir.ClassesOf(weir.Class{Name: "realtime", Guaranteed: 300}, weir.Class{Name: "backfill", Guaranteed: 200})
	for name, limits := range map[string][]weir.Limit{"gcra": perSecond(rate, burst), "lending": lending} {
		s := Scenario{
			Seed: 1, Nodes: 2, OnError: weir.FailLocal, Limits: limits, Length: 40 * time.Second,
			Latency: Span{200 * time.Microsecond, 2 * time.Millisecond},
		}
		for i := range 4 { // the last one is longer
			from := time.Duration(2+4*i) * time.Second
			s.Outages = append(s.Outages, Outage{From: from, To: from + 2*time.Second, Node: -1})
		}
		s.Outages[3].To += 10 * time.Second
		var nodes []*reserver
		s.script = func(f *fleet) {
			var wg sync.WaitGroup
			for i := range s.Nodes {
				r := &reserver{fleet: f, t: t, node: i, policy: f.policy}
				if names := f.policy.ClassNames(); len(names) > 0 {
					r.policy = must(f.policy.Class(names[i]))
				}
				nodes = append(nodes, r)
				wg.Go(r.run)
			}
			wg.Wait()
		}
		r := s.Run(t)
		c := newChecker(s, r)
		m := measure{algorithm: weir.GCRA, capacity: burst, rate: rate}
		all := slices.Concat(nodes[0].used, nodes[1].used)
		slices.SortStableFunc(all, func(a, b Grant) int { return cmp.Compare(a.At, b.At) })
		e, most := m.excess(all), c.local(&m)
		after := int64(0)
		for _, g := range all {
			if g.At >= s.Outages[3].To {
				after += g.Units
			}
		}
		seconds := int64((s.Length - s.Outages[3].To) / time.Second)
		t.Logf("%s: %.0f units above the limit, at most %.0f; %d in the %d s after a long outage", name, e, most, after, seconds)
		if e > most {
			t.Errorf("%s: outages admitted %.0f units above the limit, more than %.0f", name, e, most)
		}
		if least := seconds*rate - burst; after < least {
			t.Errorf("%s: %d units in %d s after an outage, want %d", name, after, seconds, least)
		}
	}
}
