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
	s.drawLimits(&d)
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
	s.drawOthers(seed)
	s.drawBus(&d)
	s.drawClocks(&d)
	s.drawFaults(&d)
	s.drawDemand(&d)
	return s
}

// midnight is when calendar days change, in the middle of runs that count by them.
const midnight = epoch + weir.Instant(24*time.Hour)

// drawLimits draws an algorithm, GCRA more often than the others, and numbers that let some
// hundred units pass within a run.
func (s *Scenario) drawLimits(d *dice) {
	second := weir.Every(time.Second)
	rate := int64(20 + d.below(300))
	burst := 1 + int64(float64(rate)*2*d.float()*d.float())
	window := weir.Every([]time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second}[d.below(3)])
	kind := d.below(12)
	if kind > 5 {
		rate = 1 + rate/4 // in a shorter period
	}
	if s.Mode == tiered.Leased && kind > 5 && d.chance(0.6) { // leases are for rates and bursts, with room
		kind, rate = 0, rate*int64(4+d.below(16))
		burst = rate
	}
	only := func(l ...weir.Limit) []weir.Limit { return l }
	switch kind {
	default:
		s.Limits = only(weir.Limit{Rate: rate, Per: second, Burst: burst})
	case 4:
		s.Limits = only(weir.Limit{Rate: rate, Per: second, Burst: burst, Algorithm: weir.TokenBucket})
	case 5: // two limits
		s.Begin = midnight.Add(-s.Length / 2)
		s.Limits = only(weir.Limit{Rate: rate, Per: second, Burst: burst}, weir.Limit{Name: "day", Rate: rate * 2, Per: weir.Calendar(weir.Day, nil)})
	case 6:
		s.Limits = only(weir.Limit{Rate: rate, Per: window, Algorithm: weir.FixedWindow})
	case 7:
		s.Begin = midnight.Add(-s.Length / 2)
		s.Limits = only(weir.Limit{Rate: rate, Per: weir.Calendar(weir.Day, nil)})
	case 8:
		s.Limits = only(weir.Limit{Rate: rate, Per: window, Algorithm: weir.SlidingWindow})
	case 9:
		s.Limits = only(weir.Limit{Rate: rate, Per: window, Algorithm: weir.SlidingLog})
	case 10:
		s.Limits = only(weir.Limit{Rate: rate, Per: window, Algorithm: weir.AnchoredWindow})
	case 11:
		s.Begin = midnight.Add(-s.Length / 2)
		s.Limits = only(weir.Limit{Rate: rate, Per: second, Algorithm: weir.DualWindow},
			weir.Limit{Name: "minute", Rate: rate * 3, Per: weir.Every(time.Minute), Algorithm: weir.DualWindow})
	}
	if d.chance(0.3) {
		s.MaxUnsynced = 1 + int64(d.below(int(s.capacity()/4+1)))
	}
}

// capacity is the most units that are ever admitted at once.
func (s *Scenario) capacity() int64 {
	return must(weir.NewPolicy("fleet", s.Limits...)).Capacity()
}

// rate is about how many units the first limit admits per second.
func (s *Scenario) rate() float64 {
	per := s.Limits[0].Per.Duration()
	if per == 0 { // a day of which half the run is part
		per = s.Length / 2
	}
	return float64(s.Limits[0].Rate) / per.Seconds()
}

// drawOthers draws what is not about the limit.
func (s *Scenario) drawOthers(seed uint64) {
	d := throw(seed, 6)
	if d.chance(0.2) {
		s.Others = 0.1
	}
	if d.chance(0.1) {
		s.Duplicate = 0.03
	}
	if d.chance(0.15) {
		s.Keys, s.MaxKeys = s.Keys+1+d.below(3), 1+d.below(2)
	}
	if d.chance(0.1) {
		s.Closes = []Crash{{Node: d.below(s.Nodes), At: time.Duration((0.2 + 0.6*d.float()) * float64(s.Length))}}
	}
	s.BusTwice = 0.1
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
		s.fitFailover()
	}
	if s.Nodes > 1 && d.chance(0.2) {
		s.Crashes = []Crash{{Node: d.below(s.Nodes), At: time.Duration((0.1 + 0.8*d.float()) * float64(s.Length))}}
	}
	if len(s.Failovers) == 0 && d.chance(0.1) {
		s.Changes = []Change{{At: time.Duration((0.2 + 0.6*d.float()) * float64(s.Length)), Node: d.below(s.Nodes), Set: d.chance(0.5)}}
	}
}

// fitFailover leaves out what the measures of windows do not know: a clock that goes ahead moves
// their edges, and a failover those of windows that charges have opened.
func (s *Scenario) fitFailover() {
	for _, l := range s.Limits {
		switch l.Algorithm {
		case weir.Auto, weir.GCRA, weir.TokenBucket:
			if l.Per.Duration() > 0 {
				continue
			}
		case weir.AnchoredWindow:
			s.Failovers = nil
			return
		}
		s.Failovers[0].Ahead = 0
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

// drawDemand draws up to 1,500 calls or so.
func (s *Scenario) drawDemand(d *dice) {
	cost := int64(1)
	if d.chance(0.3) && s.capacity() >= 8 {
		cost = 1 + int64(d.below(3))
	}
	if s.Mode == tiered.Leased && s.rate() > 400 {
		cost = 1 + int64(d.below(10))
	}
	perCost := 2 / float64(1+cost)
	total := s.rate() * (0.3 + 3*d.float()) * perCost * float64(s.Keys)
	if s.Saturated {
		total = s.rate() * (1 + 2/float64(s.Nodes)) * float64(s.Nodes) * perCost * float64(s.Keys)
	}
	total = min(total, max(1500/s.Length.Seconds(), s.rate()*1.2*perCost*float64(s.Keys)))
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
