package fleettest

import (
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/tiered"
)

// Draw returns the scenario of a seed.
func Draw(seed uint64) Scenario {
	d := throw(seed, 4)
	s := Scenario{
		Seed: seed, Nodes: 1 + d.below(6), Mode: tiered.Mode(d.below(3)), Keys: 1 + d.below(2)*d.below(2),
		OnError: []weir.OnError{weir.FailLocal, weir.FailLocal, weir.FailOpen, weir.FailClosed}[d.below(4)],
		Length:  time.Duration(2+d.below(3)) * time.Second,
	}
	s.Limit = weir.Limit{Rate: int64(20 + d.below(300)), Per: weir.Every(time.Second)}
	s.Limit.Burst = 1 + int64(float64(s.Limit.Rate)*2*d.float()*d.float())
	if s.Mode == tiered.Leased && d.chance(0.7) { // leases are for busy keys with room
		s.Limit.Rate *= int64(1 + d.below(8))
		s.Limit.Burst = s.Limit.Rate
	}
	s.Latency = Span{time.Duration(50+d.below(200)) * time.Microsecond, time.Duration(300+d.below(3000)) * time.Microsecond}
	if d.chance(0.1) {
		s.Latency.Max = 7 * time.Millisecond // some are slower than Timeout
	}
	s.Timely = d.chance(0.3)
	s.FlushEvery = []time.Duration{0, 0, 20 * time.Millisecond, 100 * time.Millisecond}[d.below(4)]
	s.LeaseTTL = []time.Duration{0, time.Second, 2 * time.Second, 300 * time.Millisecond}[d.below(4)]
	s.MaxDeny = []time.Duration{0, 100 * time.Millisecond}[d.below(2)]
	if d.chance(0.3) {
		s.Deadline = time.Duration(8+d.below(20)) * time.Millisecond
	}
	if d := throw(seed, 5); d.chance(0.3) {
		s.Batches, s.Keys = 2+d.below(4), s.Keys+d.below(3)
	}
	s.drawBus(&d)
	s.drawClocks(&d)
	s.drawFaults(&d)
	s.drawDemand(&d)
	return s
}

func (s *Scenario) drawBus(d *dice) {
	if s.Bus = d.chance(0.6); s.Bus {
		s.BusLatency = Span{200 * time.Microsecond, time.Duration(1+d.below(20)) * time.Millisecond}
		s.BusLoss = []float64{0, 0, 0.2}[d.below(3)]
	}
	if s.Nodes > 1 && d.chance(0.15) {
		s.Miscount = 1 - 2*d.below(2)
	}
}

func (s *Scenario) drawClocks(d *dice) {
	for range s.Nodes {
		c := Clock{Skew: time.Duration(d.below(10_000_001)-5_000_000) * time.Microsecond}
		if d.chance(0.3) {
			c.PPM = int64(d.below(201) - 100)
		}
		s.Clocks = append(s.Clocks, c)
	}
}

func (s *Scenario) drawFaults(d *dice) {
	if d.chance(0.3) {
		s.Saturated = true
		if d.chance(0.7) {
			s.Latency.Max = min(s.Latency.Max, 3*time.Millisecond)
			return // and nothing else happens
		}
	}
	if d.chance(0.25) {
		s.LoseRequest, s.LoseReply = 0.03*d.float(), 0.03*d.float()
	}
	if d.chance(0.4) {
		s.drawOutages(d)
	}
	if d.chance(0.2) {
		at := time.Duration((0.3 + 0.5*d.float()) * float64(s.Length))
		s.Failovers = []Failover{{At: at, Lag: time.Duration(1+d.below(100)) * time.Millisecond, Ahead: time.Duration(d.below(2)*d.below(300)) * time.Millisecond}}
	}
	if s.Nodes > 1 && d.chance(0.2) {
		s.Crashes = []Crash{{Node: d.below(s.Nodes), At: time.Duration((0.1 + 0.8*d.float()) * float64(s.Length))}}
	}
	if len(s.Failovers) == 0 && d.chance(0.1) {
		s.Changes = []Change{{At: time.Duration((0.2 + 0.6*d.float()) * float64(s.Length)), Node: d.below(s.Nodes), Set: d.chance(0.5)}}
	}
}

func (s *Scenario) drawOutages(d *dice) {
	kind, node := OutageKind(d.below(3)), -1
	if s.Nodes > 1 && d.chance(0.2) {
		node = d.below(s.Nodes)
	}
	n, at := 1, time.Duration((0.1+0.3*d.float())*float64(s.Length))
	if d.chance(0.4) {
		n = 2 + d.below(4) // it flaps
	}
	for range n {
		o := Outage{From: at, To: at + time.Duration((0.02+0.4*d.float()/float64(n))*float64(s.Length)), Kind: kind, Node: node}
		s.Outages = append(s.Outages, o)
		at = o.To + time.Duration(0.2*d.float()*float64(s.Length)/float64(n))
	}
}

// drawDemand draws up to 3,000 calls or so.
func (s *Scenario) drawDemand(d *dice) {
	cost := int64(1)
	if d.chance(0.3) && s.Limit.Burst >= 8 {
		cost = 1 + int64(d.below(3))
	}
	if s.Mode == tiered.Leased && s.Limit.Rate > 400 {
		cost = 1 + int64(d.below(10))
	}
	perCost := 2 / float64(1+cost)
	total := s.rate() * (0.3 + 3*d.float()) * perCost * float64(s.Keys)
	if s.Saturated {
		total = s.rate() * (1 + 2/float64(s.Nodes)) * float64(s.Nodes) * perCost * float64(s.Keys)
	}
	total = min(total, max(3000/s.Length.Seconds(), s.rate()*1.2*perCost*float64(s.Keys)))
	for range s.Nodes {
		p := Phase{To: s.Length, PerSecond: total / float64(s.Nodes), Cost: cost}
		if !s.Saturated {
			p.PerSecond *= 0.2 + 1.6*d.float()
			p.From = time.Duration(float64(s.Length) * 0.3 * d.float() * float64(d.below(2)))
			p.Together = []int{1, 1, 5, 20}[d.below(4)]
		}
		s.Demand = append(s.Demand, []Phase{p})
	}
}
