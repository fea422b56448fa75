package budget

import (
	"math/rand/v2"
	"sync"
	"time"
)

// The delays of a Backoff for which none are set.
const (
	DefaultBackoffBase = 100 * time.Millisecond
	DefaultBackoffMax  = 10 * time.Second
)

// Backoff is how long to wait after errors: Base, then twice as long after each further one, up to Max. A
// budget that is used up is not an error: the time until it has room is known.
//
// To each delay up to a tenth is added at random, so that workers that failed together do not come back
// together. Delays at Max get it too.
//
// The zero value waits 100 ms, 200 ms, 400 ms … 10 s. Set the fields before the first use. The methods are
// safe for concurrent use.
type Backoff struct {
	// Base is the first delay. The default is 100 ms.
	Base time.Duration

	// Max is the longest delay, before the random part. The default is 10 s; a Max below Base counts as Base.
	Max time.Duration

	// Rand returns a random number from 0 to n-1, for n > 0. It is called by one goroutine at a time. The
	// default is that of math/rand/v2.
	Rand func(n int64) int64

	mu   sync.Mutex    // guards the field below
	next time.Duration // the delay of the next failure, 0 for Base
}

// Failure records an error and returns how long to wait before the next try.
func (b *Backoff) Failure() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	base, most := b.bounds()
	delay := max(base, b.next)
	b.next = most
	if delay <= most-delay {
		b.next = 2 * delay
	}
	return addJitter(delay, b.Rand)
}

// Success ends a series of errors: the next one waits for Base again.
func (b *Backoff) Success() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = 0
}

func (b *Backoff) bounds() (base, most time.Duration) {
	base, most = b.Base, b.Max
	if base <= 0 {
		base = DefaultBackoffBase
	}
	if most <= 0 {
		most = DefaultBackoffMax
	}
	return base, max(base, most)
}

// addJitter adds up to a tenth of a delay, or less if it would not fit.
func addJitter(delay time.Duration, random func(int64) int64) time.Duration {
	if random == nil {
		random = rand.Int64N
	}
	return delay + min(time.Duration(random(int64(delay/10)+1)), longest-delay)
}

const longest time.Duration = 1<<63 - 1
