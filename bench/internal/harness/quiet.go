package harness

import (
	"runtime"
	"sync"
	"time"
)

// A case of several goroutines asks how a limiter stands contention. While the
// machine gives one of our cores to somebody else there is none: a mutex that
// nobody else wants is cheap, and the best run of a contended case would be one
// in which nothing contended. So such a run counts only if all cores were ours
// just before and just after it, which a short loop on each of them tells.

// quietTries is how often a disturbed run is repeated before it counts anyway.
const quietTries = 8

// cores watches whether all cores are ours.
type cores struct {
	best time.Duration // the fastest loop so far, all cores being ours
}

// ours says whether a loop on every core is about as fast as it ever was.
func (c *cores) ours() bool {
	took := loopOnEveryCore()
	if c.best == 0 || took < c.best {
		c.best = took
	}
	return took <= c.best+c.best/4
}

// settle finds out how fast the loop can be.
func (c *cores) settle() {
	for range 50 {
		c.ours()
	}
}

// loopOnEveryCore times a loop that runs on all cores at once.
func loopOnEveryCore() time.Duration {
	var wg sync.WaitGroup
	began := time.Now()
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			x := uint64(1)
			for range 1_000_000 {
				x = x*6364136223846793005 + 1442695040888963407
			}
			if x == 0 { // never; the loop must not be optimised away
				panic(x)
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}
