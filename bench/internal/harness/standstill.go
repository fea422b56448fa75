package harness

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// A standstill notices how long the machine did not run what was due: a thread of
// its own sleeps for a millisecond at a time, by the system's clock and without Go's
// timers, and adds up what it overslept. Processor time does not show that: who
// sleeps and is not woken has none to lose.
type standstill struct {
	lost atomic.Int64
	stop atomic.Bool
	done chan struct{}
}

// stillAfter is how much a thread may oversleep: as much as a pacer makes good.
const stillAfter = 10 * time.Millisecond

func watchStandstill() *standstill {
	s := &standstill{done: make(chan struct{})}
	go s.watch()
	return s
}

func (s *standstill) watch() {
	defer close(s.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread() // a thread that ends takes the servers with it that it has started
	nap := syscall.NsecToTimespec(int64(time.Millisecond))
	for !s.stop.Load() {
		began := time.Now()
		_ = syscall.Nanosleep(&nap, nil) // a signal makes it shorter, which is no harm
		if over := time.Since(began) - time.Millisecond - stillAfter; over > 0 {
			s.lost.Add(int64(over))
		}
	}
}

// end returns how long the machine stood still in all.
func (s *standstill) end() time.Duration {
	s.stop.Store(true)
	<-s.done
	return time.Duration(s.lost.Load())
}
