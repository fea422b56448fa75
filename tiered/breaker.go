package tiered

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

const (
	// A breaker opens after breakAfter failures in a row, or if half of the last
	// breakWindow calls failed.
	breakAfter  = 5
	breakWindow = 20
	lastCalls   = 1<<breakWindow - 1 // of breaker.results

	// probeEvery is the interval between probes of a partition whose breaker is open. It
	// varies by a quarter, so that the nodes of a fleet do not probe in step.
	probeEvery = 250 * time.Millisecond

	// minProbeInterval is the least time between two probes of a partition, when the
	// recovery of another partition requests one.
	minProbeInterval = probeEvery / 10
)

func newBreaker(partition int) *breaker {
	return &breaker{partition: partition, probeSoon: make(chan struct{}, 1)}
}

// A breaker is the circuit breaker of one partition of the store. It records the results of
// the last calls, and opens when too many of them failed.
//
// Calls read open, and successful ones also trouble, which is 0 unless one of the last
// twenty calls failed. So calls to a healthy partition do not take the lock. Both are
// written under mu.
type breaker struct {
	partition int           // set by newBreaker, like probeSoon
	probeSoon chan struct{} // requests a probe, because another partition has recovered; has room for one
	open      atomic.Bool
	trouble   atomic.Int32
	outage    atomic.Uint64 // number of times the breaker opened

	unflushed unflushed // entries of the partition with usage to flush

	mu      sync.Mutex // guards the fields below
	results uint32     // of the last calls, the latest lowest; 1 is a failure
	row     int        // failures since the last success
	opened  weir.Instant
}

// succeeded records a call that the store answered.
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

// failed records a call that the store did not answer. It reports whether that opened the
// breaker.
func (b *breaker) failed(now weir.Instant) (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open.Load() {
		return false // the call was sent before the breaker opened
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

// close closes the breaker, because the partition answers again.
func (b *breaker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.results, b.row = 0, 0
	b.trouble.Store(0)
	b.open.Store(false)
}

// openFor returns how long the breaker has been open; 0 if it is closed.
func (b *breaker) openFor(now weir.Instant) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open.Load() {
		return 0
	}
	return max(0, now.Sub(b.opened))
}
