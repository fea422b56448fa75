package faults

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/faults/internal/history"
	"github.com/weirlimit/weir/faults/internal/rig"
	"github.com/weirlimit/weir/internal/redistest"
)

// A witness is a daemon whose way to Redis is good. By it one can see how often a call
// of another daemon was charged.
//
// A probe takes half the burst of a fresh key, which is more than a daemon's own share,
// so that only the store can admit it. Some time later the witness looks at what is
// left: 100 if the call was not charged, about 50 + what came back if it was once, and
// 50 less if it was twice.
type witness struct {
	tr    *trial
	fleet *rig.Fleet // on trial
	own   *rig.Fleet // of one daemon

	mu     sync.Mutex // guards the fields below
	probes int
	lost   int // charged, without a reply to the caller
	most   int // charges of one call
	failed int // without a decision
	unseen int // the machine was too busy to look in time
}

const (
	probeCost = B / 2
	lookAfter = 200 * time.Millisecond // a call that is sent again is sent by then
	lookUntil = 400 * time.Millisecond // by then a single charge has not come back
)

func newWitness(tr *trial, fleet *rig.Fleet, server *redistest.Server) *witness {
	tr.Helper()
	return &witness{tr: tr, fleet: fleet, own: tr.fleet(1, "--redis", server.Addr())}
}

// probe calls a daemon once, and reads what was charged.
func (w *witness) probe(node int) {
	key, sent := w.fleet.FreshKey(), time.Now()
	answer, err := w.fleet.Ask(node, key, probeCost)
	time.Sleep(time.Until(sent.Add(lookAfter)))
	seen, ok := w.look(key, sent)
	age := time.Since(sent)

	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil || answer.Status != 200 {
		w.failed++
		w.tr.Logf("a probe: %+v, %v", answer, err)
	}
	if !ok || age > lookUntil {
		w.unseen++
		return
	}
	charges := chargesOf(seen.Remaining)
	w.probes++
	w.most = max(w.most, charges)
	if charges > 0 && !answer.Allowed {
		w.lost++
	}
}

// look peeks at a key. On a busy machine even the witness may have no answer of Redis in
// time, and then tells of its share, whose limit is less.
func (w *witness) look(key string, sent time.Time) (seen rig.Answer, ok bool) {
	for time.Since(sent) < lookUntil {
		seen, err := w.own.Peek(0, key)
		if err == nil && seen.Status == 200 && seen.Limit == B {
			return seen, true
		}
		time.Sleep(20 * time.Millisecond)
	}
	return rig.Answer{}, false
}

// chargesOf returns how often a probe was certainly charged if so much is left: what has
// come back since, less than a charge, is unknown, since the time of the charge is.
func chargesOf(remaining int64) int {
	return int(math.Ceil((B - float64(remaining)) / probeCost))
}

func TestChargesOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		remaining int64
		want      int
	}{
		{100, 0},
		{99, 1},
		{90, 1}, // 400 ms after it was made
		{50, 1},
		{40, 2}, // 400 ms after both were made
		{0, 2},
	} {
		if got := chargesOf(tt.remaining); got != tt.want {
			t.Errorf("%d left: %d charges, want %d", tt.remaining, got, tt.want)
		}
	}
}

// during probes all daemons by turns, every 20 ms, until stop is called.
func (w *witness) during() (stop func()) {
	done, quit := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		var wg sync.WaitGroup
		defer wg.Wait()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-quit:
				return
			case <-tick.C:
				wg.Go(func() { w.probe(i % len(w.fleet.Daemons)) })
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		close(quit)
		<-done
	})
	w.tr.Cleanup(stop)
	return stop
}

// judge says that no call was charged twice.
func (w *witness) judge() {
	w.tr.Helper()
	w.tr.note("probes", "%d, and %d not seen in time", w.probes, w.unseen)
	w.tr.none("probes without a decision", w.failed)
	w.tr.atMost("charges of one call", float64(w.most), 1, "")
	w.tr.note("charged without a reply to the caller", "%d", w.lost)
	if w.probes == 0 {
		w.tr.Error("no probe was looked at in time")
	}
}

// F3: slow is down.
func TestLatency(t *testing.T) {
	tr := try(t, "F3", "answers of Redis take 500 ms longer, for 10 s", "E ≤ 2B; times as F2; no call is charged twice")
	server := redistest.Start(t)
	network := rig.NewNetwork(t, server.Addr())
	fleet := tr.fleet(3, "--redis", network.Addr())
	w := newWitness(tr, fleet, server)
	stop := w.during()
	tr.outage(outage{
		fleet:   fleet,
		port:    network.Port(),
		length:  10 * time.Second,
		begin:   func() { network.Begin(rig.Trouble{Kind: "latency", To: rig.Replies, Share: 1, Value: 500}) },
		mend:    network.End,
		bound:   2 * B,
		formula: "2B",
		p99:     true,
		longest: true,
		end:     stop,
	})
	w.judge()
}

// F4: connections are reset now and then, in the middle of whatever they do.
func TestResets(t *testing.T) {
	tr := try(t, "F4", "a tenth of the connections to Redis reset, every 100 ms", "E ≤ 2B; no call is charged twice; no error reaches a caller")
	server := redistest.Start(t)
	relay := rig.NewRelay(t, server.Addr())
	fleet := tr.fleet(3, "--redis", relay.Addr())
	w := newWitness(tr, fleet, server)
	load := fleet.StartLoad(mix())
	stop := w.during()
	load.For(pick(5*time.Second, time.Second))
	fault := load.Now()
	resets := 0
	for end := fault + pick(10*time.Second, time.Second); load.Now() < end; {
		resets += relay.Reset(0.1)
		load.For(100 * time.Millisecond)
	}
	mended := load.Now()
	fleet.AwaitShared(patience)
	stop()
	list := load.Stop()
	tier := fleet.Stop()

	tr.note("resets", "%d", resets)
	tr.judge(list, 2*B, "2B")
	w.judge()
	tr.note("decided alone", "%d", tier.Decisions.Fallback)
	tr.note("unknown outcomes", "%d", tier.Unknown)
	tr.stalled(list)
	tr.note("p99 meanwhile", "%s", brief(history.Percentile(history.Between(list, fault, mended), 0.99)))
	tr.note("longest", "%s", brief(history.Percentile(history.Between(list, fault, mended), 1)))
	if resets == 0 {
		tr.Error("no connection was reset: nothing was tried")
	}
}

// F4b: no connection lives longer than its next request.
func TestAllReset(t *testing.T) {
	tr := try(t, "F4b", "every connection to Redis reset at its next request, for 5 s", "E ≤ 2B; no call is charged twice; no error reaches a caller; back ≤ 1 s")
	server := redistest.Start(t)
	network := rig.NewNetwork(t, server.Addr())
	fleet := tr.fleet(3, "--redis", network.Addr())
	w := newWitness(tr, fleet, server)
	stop := w.during()
	tr.outage(outage{
		fleet:   fleet,
		port:    network.Port(),
		length:  5 * time.Second,
		begin:   func() { network.Begin(rig.Trouble{Kind: "reset_peer", To: rig.Requests, Share: 1}) },
		mend:    network.End,
		bound:   2 * B,
		formula: "2B",
		end:     stop,
	})
	w.judge()
}

// F5: Redis executes calls, and the replies are lost.
func TestLostReplies(t *testing.T) {
	tr := try(t, "F5", "replies of Redis lost after it has executed the call", "no call is charged twice; each lost one is counted as unknown")
	server := redistest.Start(t)
	network := rig.NewNetwork(t, server.Addr())
	fleet := tr.fleet(3, "--redis", network.Addr())
	w := newWitness(tr, fleet, server)
	for range pick(10, 3) { // each daemon loses a few replies before its breaker opens
		fleet.AwaitShared(patience) // it has asked for all that it asks for once
		fault := time.Now()
		network.Begin(rig.Trouble{Kind: "timeout", To: rig.Replies, Share: 1})
		stop := w.during()
		fleet.AwaitUnavailable(fault, patience)
		stop()
		mended := time.Now()
		network.End()
		fleet.AwaitAvailable(mended, patience)
	}
	fleet.AwaitShared(patience)
	tier := fleet.Stop()

	w.judge()
	tr.atMost("of these not counted", float64(w.lost)-float64(tier.Unknown), 0, "charged without a reply to the caller − unknown")
	tr.note("unknown outcomes", "%d", tier.Unknown)
	if w.lost == 0 {
		tr.Error("no reply was lost: nothing was tried")
	}
}
