package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/faults/internal/history"
	"github.com/weirlimit/weir/faults/internal/report"
	"github.com/weirlimit/weir/faults/internal/rig"
	"github.com/weirlimit/weir/internal/redistest"
)

// The figures of the matrix for an outage: how soon breakers open, how long callers wait
// until then and afterwards, and how soon breakers close again.
const (
	openWithin = 150 * time.Millisecond
	waitUntil  = 30 * time.Millisecond // p99
	waitAfter  = 5 * time.Millisecond  // p99
	waitMost   = 15 * time.Millisecond // the deadline of 10 ms, and 5 ms for the rest
	backWithin = time.Second
)

// An outage is a time in which Redis gives no answer, or none in time.
type outage struct {
	fleet  *rig.Fleet
	port   int           // to which the daemons connect
	length time.Duration // in the long form
	begin  func()
	mend   func() // returns when Redis answers again
	end    func() // before the daemons end, unless it is nil

	bound   float64 // of E
	formula string
	back    time.Duration // backWithin unless set

	// Which of the times that callers wait have a figure in the matrix. The others are
	// reported, not judged.
	p99, longest bool
}

// tried is what an outage left behind.
type tried struct {
	list []history.Decision
	tier rig.Tier
}

// outage tries one under load, and judges what all of them have in common.
func (tr *trial) outage(o outage) tried {
	tr.Helper()
	if o.back == 0 {
		o.back = backWithin
	}
	callAtOnce(tr, o.fleet, 30)
	o.fleet.Calm()
	before := o.fleet.Usage()
	load := o.fleet.StartLoad(mix())
	load.For(pick(15*time.Second, time.Second))
	before.RSS = o.fleet.Usage().RSS // a daemon grows until its heap fits the load, whatever happens

	fault := time.Now()
	o.begin()
	alone := o.fleet.AwaitUnavailable(fault, patience)
	load.For(time.Until(fault.Add(pick(o.length, time.Second))))
	conns := connections(tr, o.port)
	mending := time.Now()
	o.mend()
	mended := time.Now()
	back := o.fleet.AwaitAvailable(mending, patience)
	load.For(pick(5*time.Second, 500*time.Millisecond))
	o.fleet.AwaitShared(patience)
	list, rss := load.Stop(), o.fleet.Usage().RSS
	if o.end != nil {
		o.end()
	}
	o.fleet.Calm()
	after := o.fleet.Usage()
	after.RSS = rss
	tier := o.fleet.Stop()

	tr.judge(list, o.bound, o.formula)
	tr.note("decided alone", "%d", tier.Decisions.Fallback)
	tr.within("breaker open after", max(0, alone.Sub(fault)), openWithin)
	tr.within("back after", max(0, back.Sub(mended)), o.back)
	tr.waits(o, list, load.At(fault), load.At(alone), load.At(mended))
	tr.atMost("connections in the outage", float64(conns), 2*poolSize*float64(len(o.fleet.Daemons)), "2 pools per daemon")
	tr.usage(before, after)
	return tried{list, tier}
}

// waits says how long callers waited.
func (tr *trial) waits(o outage, list []history.Decision, fault, alone, mended time.Duration) {
	tr.Helper()
	p := func(begin, end time.Duration, p float64) time.Duration {
		return history.Percentile(history.Between(list, begin, end), p)
	}
	tr.stalled(list)
	tr.note("p99 before", "%s", brief(p(0, fault, 0.99)))
	tr.withinIf(o.p99, "p99 until the breaker opens", p(fault, alone, 0.99), waitUntil)
	tr.withinIf(o.p99, "p99 then", p(alone, mended, 0.99), waitAfter)
	tr.withinIf(o.longest, "longest", p(fault, mended, 1), waitMost)
	tr.note("p99 afterwards", "%s", brief(p(mended, time.Hour, 0.99)))
}

// usage judges what the daemons have of the machine after a fault.
func (tr *trial) usage(before, after rig.Usage) {
	tr.Helper()
	const mb = 1 << 20
	was, is := float64(before.RSS)/mb, float64(after.RSS)/mb
	memory := report.Figure{
		Name: "memory", Value: fmt.Sprintf("%.1f MB", is), Bound: fmt.Sprintf("≤ %.1f MB = before + 10 %%", 1.1*was), Met: is <= 1.1*was,
	}
	tr.addTime(memory) // calls that wait have memory
	tr.atMost("open files", float64(after.FDs), float64(before.FDs+slackFiles), "before + 4")
	tr.atMost("threads", float64(after.Threads), float64(before.Threads+slackThreads), "before + 8")
}

// A connection may be in the making when files are counted; Go keeps threads that once
// waited in a system call.
const (
	slackFiles   = 4
	slackThreads = 8
)

func connections(tr *trial, port int) int {
	tr.Helper()
	n, err := rig.Connections(port)
	if err != nil {
		tr.Fatal(err)
	}
	return n
}

// F1: Redis crashes, and comes back with nothing.
func TestKilled(t *testing.T) {
	tr := try(t, "F1", "Redis killed (SIGKILL), started again without its data after 5 s",
		"E ≤ 3B; breaker open ≤ 150 ms; p99 ≤ 30 ms until then, ≤ 5 ms after; back ≤ 1 s after PONG; memory + 10 % at most")
	server := redistest.Start(t)
	tr.outage(outage{
		fleet:  tr.fleet(3, "--redis", server.Addr()),
		port:   server.Port(),
		length: 5 * time.Second,
		begin:  server.Kill,
		mend:   server.Restart,
		// m = 1: fresh shares on entering, a refilled burst on leaving. And the data
		// are lost: one more.
		bound:   2*B + B,
		formula: "2B + B for lost data",
		p99:     true,
	})
}

// F2: Redis takes connections and requests, and never answers.
func TestPaused(t *testing.T) {
	tr := try(t, "F2", "Redis stopped (SIGSTOP) for 10 s: it takes connections and does not answer",
		"E ≤ 2B; times as F1; no call longer than 15 ms; connections ≤ 2 pools")
	server := redistest.Start(t)
	tr.outage(outage{
		fleet:   tr.fleet(3, "--redis", server.Addr()),
		port:    server.Port(),
		length:  10 * time.Second,
		begin:   server.Pause,
		mend:    server.Resume,
		bound:   2 * B,
		formula: "2B",
		p99:     true,
		longest: true,
	})
}

// F9: Redis answers that it has no room. That is as if it were unavailable: scripts that write
// are not let in, and should not be.
func TestOutOfMemory(t *testing.T) {
	tr := try(t, "F9", "`maxmemory` reached for 3 s", "E ≤ 2B; no error reaches a caller; back ≤ 1 s")
	server := redistest.Start(t)
	tr.outage(outage{
		fleet:   tr.fleet(3, "--redis", server.Addr()),
		port:    server.Port(),
		length:  3 * time.Second,
		begin:   func() { server.MustDo("CONFIG", "SET", "maxmemory", "1") },
		mend:    func() { server.MustDo("CONFIG", "SET", "maxmemory", "0") },
		bound:   2 * B,
		formula: "2B",
	})
}

// Redis is unavailable repeatedly. Each time a node has its share, and each time Redis
// returns with a burst refilled; but usage without Redis is flushed to it, and shares stay
// what they were, so that nothing is granted twice.
func TestFlapping(t *testing.T) {
	tr := try(t, "flapping", "Redis unavailable ten times, for 1 s each", "E ≤ 2B in all; nothing grows")
	server := redistest.Start(t)
	network := rig.NewNetwork(t, server.Addr())
	fleet := tr.fleet(3, "--redis", network.Addr())
	callAtOnce(tr, fleet, 30)
	fleet.Calm()
	before := fleet.Usage()
	load := fleet.StartLoad(mix())
	load.For(pick(15*time.Second, time.Second))
	before.RSS = fleet.Usage().RSS
	times := pick(10, 3)
	for range times {
		fault := time.Now()
		network.Disconnect()
		fleet.AwaitUnavailable(fault, patience)
		load.For(time.Until(fault.Add(pick(time.Second, 0))))
		mended := time.Now()
		network.Connect()
		fleet.AwaitAvailable(mended, patience)
		load.For(time.Until(mended.Add(pick(time.Second, 0))))
	}
	fleet.AwaitShared(patience)
	list, rss := load.Stop(), fleet.Usage().RSS
	fleet.Calm()
	after := fleet.Usage()
	after.RSS = rss
	tier := fleet.Stop()

	tr.note("times", "%d", times)
	tr.judge(list, 2*B, "2B")
	tr.note("decided alone", "%d", tier.Decisions.Fallback)
	tr.note("unknown outcomes", "%d, and %d units flushed without a reply", tier.Unknown, tier.Lost)
	tr.stalled(list)
	tr.note("p99", "%s", brief(history.Percentile(list, 0.99)))
	tr.note("longest", "%s", brief(history.Percentile(list, 1)))
	tr.usage(before, after)
}
