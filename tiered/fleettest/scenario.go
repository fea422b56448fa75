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
	Seed uint64 // of every chance that the fields below leave open

	Nodes   int
	Mode    tiered.Mode
	OnError weir.OnError
	Limit   weir.Limit // must be GCRA with a duration: those have the bound that Check knows
	Keys    int        // calls are spread over so many
	Length  time.Duration

	Timeout, FlushEvery, LeaseTTL, MaxDeny time.Duration // 0 is tiered's default
	MaxUnsynced                            int64

	// The way to the store and back. Every request and every reply takes a time
	// from Latency, and is lost with a chance of LoseRequest and LoseReply.
	Latency                Span
	LoseRequest, LoseReply float64
	Timely                 bool // the store ends calls by itself

	// The bus, if there is one. Nodes() counts Miscount too many.
	Bus        bool
	BusLatency Span
	BusLoss    float64
	Miscount   int

	// Batches, unless it is 0, has every other call be a batch of up to so many charges.
	Batches int

	Clocks    []Clock // one for each node
	Demand    [][]Phase
	Outages   []Outage
	Failovers []Failover
	Crashes   []Crash
	Changes   []Change

	// Deadline, unless it is 0, is how long callers say they wait.
	Deadline time.Duration

	// Saturated says that all nodes ask for more than the limit all the time.
	Saturated bool

	// Store, unless it is nil, stands between the nodes and the model store: to
	// show that Check notices a broken one.
	Store func(node int, l weir.Limiter) weir.Limiter

	script func(*fleet) // what happens besides, if it is not nil
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

// OutageKind is how the store is away.
type OutageKind uint8

// The kinds of outages.
const (
	Refuse OutageKind = iota // connections are refused; what is under way is reset
	Hang                     // requests disappear
	Stop                     // requests are carried out when the outage is over
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

// Kind names what is special about the scenario, such as "leased local outage crash".
func (s Scenario) Kind() string {
	words := []string{s.Mode.String(), s.OnError.String()}
	add := func(ok bool, word string) {
		if ok {
			words = append(words, word)
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
	return strings.Join(words, " ")
}

func (s Scenario) String() string {
	return fmt.Sprintf("seed %d: %s: %d nodes, %v, %d keys, %v, latency %v, demand %v, outages %v, failovers %v, crashes %v",
		s.Seed, s.Kind(), s.Nodes, s.Limit, s.Keys, s.Length, s.Latency, s.Demand, s.Outages, s.Failovers, s.Crashes)
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
	if s.Limit.Burst == 0 {
		s.Limit.Burst = s.Limit.Rate
	}
	if s.MaxUnsynced == 0 {
		s.MaxUnsynced = max(1, s.Limit.Burst/10)
	}
	s.Keys = max(1, s.Keys)
	for len(s.Clocks) < s.Nodes {
		s.Clocks = append(s.Clocks, Clock{})
	}
	for len(s.Demand) < s.Nodes {
		s.Demand = append(s.Demand, nil)
	}
	return s
}

// rate returns the limit's units per second.
func (s Scenario) rate() float64 { return float64(s.Limit.Rate) / s.Limit.Per.Duration().Seconds() }

// counted returns how many nodes each node believes there are.
func (s Scenario) counted() int { return max(1, s.Nodes+s.Miscount) }
