package fleettest

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/tiered"
)

// A Scenario is a fleet and what happens to it. All times are counted from the start
// of the run. Make one with Draw or by hand, and give it to Run.
type Scenario struct {
	Seed uint64 // of all random choices that the fields below leave open

	Nodes   int
	Mode    tiered.Mode
	OnError weir.OnError
	Limits  []weir.Limit // of one policy: any algorithm but Concurrency; calendar periods must be days in UTC
	Keys    int          // calls are spread over so many
	MaxKeys int          // of tiered.Config; 0 means 64
	Length  time.Duration

	// Begin is the true time at the start; the default is 2026-01-01. Windows are
	// aligned to it as to any clock.
	Begin weir.Instant

	Timeout, FlushEvery, LeaseTTL, MaxDeny time.Duration // 0 is tiered's default
	MaxUnsynced                            int64

	// The way to the store and back. Every request and every reply takes a time
	// from Latency, and is lost with a chance of LoseRequest and LoseReply.
	Latency                Span
	LoseRequest, LoseReply float64
	Duplicate              float64 // chance that a charge arrives, and is made, twice
	Timely                 bool    // the store ends calls by itself

	// The bus, if there is one. Nodes() counts Miscount too many.
	Bus        bool
	BusLatency Span
	BusLoss    float64
	BusTwice   float64 // chance that a message comes twice
	Miscount   int

	// Batches, unless it is 0, has every other call be a batch of up to so many charges.
	Batches int

	// Others is the share of calls that are a Peek or a DebitEach instead.
	Others float64

	Clocks    []Clock // one for each node
	Demand    [][]Phase
	Outages   []Outage
	Failovers []Failover
	Crashes   []Crash
	Closes    []Crash // nodes that are closed, and still called
	Changes   []Change

	// Deadline, unless it is 0, is how long callers say they wait.
	Deadline time.Duration

	// Saturated says that the demand on all nodes exceeds the limit all the time.
	Saturated bool

	// Store, unless it is nil, wraps the model store of a node: to show that Check detects
	// a broken one.
	Store func(node int, l weir.Limiter) weir.Limiter

	// Node, unless it is nil, makes the nodes instead of tiered.New: to show that Check
	// accepts a limiter that is right and rejects one that is not.
	Node func(c tiered.Config) Node

	script func(*fleet) // what happens besides, if it is not nil
}

// A Node is a limiter as package tiered's.
type Node interface {
	weir.Limiter
	Close()
	Stats() tiered.Stats
}

// A Span is a range of times.
type Span struct{ Min, Max time.Duration }

// A Clock is what a node takes for the time.
type Clock struct {
	Skew time.Duration
	PPM  int64 // how much it is too fast, in millionths
}

// A Phase is demand on one node.
type Phase struct {
	From, To  time.Duration
	PerSecond float64 // calls
	Cost      int64   // of each call from 1 to so much
	Together  int     // calls come in groups of so many
}

// OutageKind is how the store is unavailable.
type OutageKind uint8

// The kinds of outages.
const (
	Refuse OutageKind = iota // connections are refused; calls in flight are reset
	Hang                     // requests disappear
	Stop                     // requests are executed when the outage is over
)

// An Outage is a time in which the store cannot be reached, by all nodes or, if Node is
// not negative, by one.
type Outage struct {
	From, To time.Duration
	Kind     OutageKind
	Node     int
}

// A Failover makes the store's state what it was Lag ago, and its clock Ahead faster.
type Failover struct{ At, Lag, Ahead time.Duration }

// A Crash is the end of a node, without Close.
type Crash struct {
	Node int
	At   time.Duration
}

// A Change is a Reset of all keys or a Set, made by a node. A Set puts a limit of
// twice the rate and burst in force.
type Change struct {
	At   time.Duration
	Node int
	Set  bool
}

// Kind names what is special about the scenario, such as
// "leased local gcra outage crash".
func (s Scenario) Kind() string {
	labels := []string{s.Mode.String(), s.OnError.String(), s.algorithm()}
	add := func(ok bool, label string) {
		if ok {
			labels = append(labels, label)
		}
	}
	add(s.lossy(), "loss")
	add(len(s.Outages) == 1, "outage")
	add(len(s.Outages) > 1, "outages")
	add(len(s.Failovers) > 0, "failover")
	add(len(s.Crashes) > 0, "crash")
	add(len(s.Changes) > 0, "change")
	add(s.Miscount != 0, "miscount")
	add(s.Saturated, "saturated")
	add(s.Batches > 0, "batches")
	add(s.Duplicate > 0, "duplicates")
	add(s.Others > 0, "others")
	add(s.MaxKeys > 0, "eviction")
	add(len(s.Closes) > 0, "close")
	return strings.Join(labels, " ")
}

func (s Scenario) String() string {
	return fmt.Sprintf("seed %d: %s: %d nodes, %v, %d keys, %v, latency %v, demand %v, outages %v, failovers %v, crashes %v, closes %v, changes %v",
		s.Seed, s.Kind(), s.Nodes, s.Limits, s.Keys, s.Length, s.Latency, s.Demand, s.Outages, s.Failovers, s.Crashes, s.Closes, s.Changes)
}

func (s Scenario) lossy() bool { return s.LoseRequest > 0 || s.LoseReply > 0 }

// withDefaults fills in what tiered would.
func (s Scenario) withDefaults() Scenario {
	set := func(to *time.Duration, value time.Duration) {
		if *to == 0 {
			*to = value
		}
	}
	set(&s.Timeout, tiered.DefaultTimeout)
	set(&s.FlushEvery, tiered.DefaultFlushEvery)
	set(&s.LeaseTTL, tiered.DefaultLeaseTTL)
	set(&s.MaxDeny, tiered.DefaultMaxDeny)
	s.Keys = max(1, s.Keys)
	if s.Begin == 0 {
		s.Begin = epoch
	}
	for len(s.Clocks) < s.Nodes {
		s.Clocks = append(s.Clocks, Clock{})
	}
	for len(s.Demand) < s.Nodes {
		s.Demand = append(s.Demand, nil)
	}
	return s
}

// algorithm names the limits' algorithms, such as "gcra" or "gcra+fixed_window".
func (s Scenario) algorithm() string {
	var names []string
	for _, l := range s.Limits {
		name := l.Algorithm.String()
		switch {
		case l.Per.String() == "day":
			name = "calendar"
		case l.Algorithm == weir.Auto:
			name = weir.GCRA.String()
		}
		names = append(names, name)
	}
	return strings.Join(names, "+")
}

// counted returns how many nodes each node believes there are.
func (s Scenario) counted() int { return max(1, s.Nodes+s.Miscount) }

// instant returns the true instant of a time of the run.
func (s *Scenario) instant(at time.Duration) weir.Instant { return s.Begin.Add(at) }

// read returns what a node's clock says at a time of the run.
func (s *Scenario) read(node int, at time.Duration) weir.Instant {
	c := s.Clocks[node]
	return s.instant(at + c.Skew + time.Duration(int64(at)*c.PPM/1_000_000))
}

// time is the inverse of read, and never later than true.
func (s *Scenario) time(node int, i weir.Instant) time.Duration {
	c := s.Clocks[node]
	x := int64(i.Sub(s.Begin) - c.Skew)
	const far = 1 << 42 // over an hour: too much to multiply, and beyond every run
	if x > far || x < -far {
		return time.Duration(x)
	}
	return time.Duration(x*1_000_000/(1_000_000+c.PPM)) - 2
}
