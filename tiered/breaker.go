package tiered

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

const (
	// A part of the store is given up after so many failures in a row, or if half
	// of the last twenty calls failed.
	breakAfter  = 5
	breakWindow = 20
	lastCalls   = 1<<breakWindow - 1 // of breaker.results

	// probeEvery is how often a part that was given up is tried, give or take a
	// quarter: so that a fleet does not do it in step.
	probeEvery = 250 * time.Millisecond

	// hurryEvery is how often it is tried at most, if others have come back.
	hurryEvery = probeEvery / 10
)

func newBreaker(part int) *breaker {
	return &breaker{part: part, hurry: make(chan struct{}, 1)}
}

// A breaker remembers how the last calls to a part of the store went, and says
// when it is to be given up.
//
// Calls look at open alone, and those that succeed at trouble: it is 0 unless one of
// the last twenty calls failed, so in good times nobody takes the lock. All
// are written under mu.
type breaker struct {
	part    int           // set by New, like hurry
	hurry   chan struct{} // another part has come back; has room for one
	open    atomic.Bool
	trouble atomic.Int32
	outage  atomic.Uint64 // counts how often it was opened

	unflushed unflushed // entries of the part with something to flush

	mu      sync.Mutex // guards the fields below
	results uint32     // of the last calls, the latest lowest; 1 is a failure
	row     int        // failures since the last success
	opened  weir.Instant
}

// succeeded notes a call that the store has answered.
func (b *breaker) succeeded() {
	if b.trouble.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.results <<= 1
	b.row = 0
	b.trouble.Add(-1)
	if b.trouble.Load() <= 0 {
		b.trouble.Store(0)
		b.results = 0
	}
}

// failed notes a call that the store has not answered. It says whether that opens the
// breaker.
func (b *breaker) failed(now weir.Instant) (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open.Load() {
		return false // it was sent before
	}
	b.results = b.results<<1 | 1
	b.row++
	b.trouble.Store(breakWindow)
	if b.row < breakAfter && bits.OnesCount32(b.results&lastCalls) < breakWindow/2 {
		return false
	}
	b.outage.Add(1)
	b.opened = now
	b.open.Store(true)
	return true
}

// close is for a part that answers again.
func (b *breaker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.results, b.row = 0, 0
	b.trouble.Store(0)
	b.open.Store(false)
}

// openFor returns for how long the part has been given up; 0 if it is not.
func (b *breaker) openFor(now weir.Instant) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open.Load() {
		return 0
	}
	return max(0, now.Sub(b.opened))
}
