package rig

import (
	"runtime"
	"sync"
	"time"

	"github.com/weirlimit/weir/faults/internal/history"
)

// A canary is a thread for each processor that sleeps a millisecond at a time. Where it
// wakes up much later, the processor stood still or was not to be had: for the canary,
// for the client and for the daemons alike. How long a call took then says nothing about
// the daemon.
type canary struct {
	wg sync.WaitGroup

	mu     sync.Mutex // guards the field below
	stalls []stall
}

// A stall is when a canary slept too long.
type stall struct{ from, to time.Duration }

const (
	canarySleep = time.Millisecond
	canaryLate  = 4 * time.Millisecond // and so it is a stall
)

// watch starts to watch the processors. Times are since begin.
func (c *canary) watch(begin time.Time, stop <-chan struct{}) {
	for cpu := range runtime.NumCPU() {
		c.wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread() // a thread that ends takes the daemons with it that it has started
			defer bindTo(bindTo(only(cpu)))
			for {
				select {
				case <-stop:
					return
				default:
				}
				before := time.Since(begin)
				sleep(canarySleep)
				if after := time.Since(begin); after-before > canarySleep+canaryLate {
					c.mu.Lock()
					c.stalls = append(c.stalls, stall{before, after})
					c.mu.Unlock()
				}
			}
		})
	}
}

// mark notes which decisions were under way in a stall.
func (c *canary) mark(list []history.Decision) {
	c.wg.Wait()
	for i := range list {
		for _, s := range c.stalls {
			if list[i].Sent < s.to && list[i].Received > s.from {
				list[i].Stalled = true
			}
		}
	}
}
