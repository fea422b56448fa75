package rig

import (
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/weirlimit/weir/faults/internal/history"
)

// Mix is a load: one unit per call, to the daemons in turn.
//
// Calls for a few hot keys exceed their limit. They show an excess, if there
// is one. The cold keys below their limit show wrong refusals.
type Mix struct {
	Rate     int // calls per second, in all
	Hot      int // keys that share HotShare of the calls
	Cold     int // keys that share the rest
	HotShare float64
	Seed     uint64
}

// key returns the key of a call.
func (m Mix) key(random *rand.Rand) string {
	if random.Float64() < m.HotShare {
		return "hot" + strconv.Itoa(random.IntN(m.Hot))
	}
	return "cold" + strconv.Itoa(random.IntN(m.Cold))
}

// Keys returns all keys of the load.
func (m Mix) Keys() (keys []string) {
	for i := range m.Hot {
		keys = append(keys, "hot"+strconv.Itoa(i))
	}
	for i := range m.Cold {
		keys = append(keys, "cold"+strconv.Itoa(i))
	}
	return keys
}

// mostWaiting bounds the calls without an answer. A daemon that hangs for seconds
// would reach it; one that keeps its deadline never does.
const mostWaiting = 5000

// Load is a client that calls at a steady rate, whether answers come or not: an open
// loop. A client that waits for answers calls less while they are slow, and misses that.
type Load struct {
	fleet *Fleet // set by StartLoad, like the next three
	mix   Mix
	begin time.Time
	stop  chan struct{}
	done  chan struct{} // closed when the last answer is there
	quiet canary

	mu      sync.Mutex // guards the fields below
	list    []history.Decision
	waiting int
	late    int // calls that were not made because of mostWaiting
}

// StartLoad starts the load. The load ends with Stop or the test.
func (f *Fleet) StartLoad(mix Mix) *Load {
	l := &Load{fleet: f, mix: mix, begin: time.Now(), stop: make(chan struct{}), done: make(chan struct{})}
	l.quiet.watch(l.begin, l.stop)
	go l.run()
	f.t.Cleanup(l.end)
	return l
}

// run makes the calls that have become due, every millisecond.
func (l *Load) run() {
	defer close(l.done)
	var wg sync.WaitGroup
	defer wg.Wait()
	random := rand.New(rand.NewPCG(l.mix.Seed, 0))
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for asked := 0; ; {
		select {
		case <-l.stop:
			return
		case <-ticker.C:
		}
		due := int(l.Now().Seconds() * float64(l.mix.Rate))
		for ; asked < due; asked++ {
			node, key := asked%len(l.fleet.Daemons), l.mix.key(random)
			if l.enter() {
				wg.Go(func() { l.ask(node, key) })
			}
		}
	}
}

func (l *Load) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting >= mostWaiting {
		l.late++
		return false
	}
	l.waiting++
	return true
}

func (l *Load) ask(node int, key string) {
	body, err := json.Marshal(Check{Policy: Policy, Key: key})
	d := history.Decision{Node: node, Key: key, Sent: l.Now()}
	var answer Answer
	if err == nil {
		answer, err = l.fleet.post(node, body)
	}
	d.Received, d.Status, d.Allowed, d.Reason = l.Now(), answer.Status, answer.Allowed, answer.Reason
	switch {
	case err != nil:
		d.Err = err.Error()
	case answer.Detail != "":
		d.Err = answer.Detail
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting--
	l.list = append(l.list, d)
}

// Now is the time of the history.
func (l *Load) Now() time.Duration { return time.Since(l.begin) }

// At converts a time to that of the history.
func (l *Load) At(t time.Time) time.Duration { return t.Sub(l.begin) }

// For lets the load go on for d.
func (l *Load) For(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// Stop ends the load, waits for the last answers and returns all decisions.
func (l *Load) Stop() []history.Decision {
	l.fleet.t.Helper()
	l.end()
	if l.late > 0 {
		l.fleet.t.Errorf("rig: %d calls could not be made, since %d had no answer yet", l.late, mostWaiting)
	}
	l.quiet.mark(l.list)
	return l.list
}

func (l *Load) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	<-l.done
}
