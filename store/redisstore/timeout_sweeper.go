package redisstore

import (
	"math"
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

// A timeoutSweeper ends requests that have timed out, so that callers need no timer each. While
// requests are in flight, it sleeps until the earliest deadline that it knows, but for an
// eighth of the timeout at most: a request that is queued meanwhile may have an earlier
// deadline, and so may time out that much too late.
type timeoutSweeper struct {
	store *Store
	work  chan struct{} // buffered; receives when requests are in flight
	stop  chan struct{}
	wg    sync.WaitGroup
}

func newTimeoutSweeper(s *Store) *timeoutSweeper {
	w := &timeoutSweeper{store: s, work: make(chan struct{}, 1), stop: make(chan struct{})}
	w.wg.Go(w.loop)
	return w
}

// wake is called when the number of requests in flight becomes 1.
func (w *timeoutSweeper) wake() {
	select {
	case w.work <- struct{}{}:
	default:
	}
}

func (w *timeoutSweeper) close() {
	close(w.stop)
	w.wg.Wait()
}

func (w *timeoutSweeper) loop() {
	most := max(time.Millisecond, w.store.timeout/8)
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		if w.store.under.Load() == 0 {
			select {
			case <-w.work:
			case <-w.stop:
				return
			}
		}
		select {
		case <-timer.C:
			timer.Reset(w.sweep(most))
		case <-w.stop:
			return
		}
	}
}

// sweep ends the requests that have timed out, and returns the time until the next sweep.
func (w *timeoutSweeper) sweep(most time.Duration) time.Duration {
	now := weir.Now()
	first := now.Add(most)
	for _, q := range w.store.queues {
		first = min(first, q.expire(now))
	}
	return max(first.Sub(now), most/8)
}

// expire ends a request that has timed out, as if its caller had left. It returns the
// deadline if that is later than now, and otherwise the end of time.
func (s *Store) expire(r *request, now weir.Instant) weir.Instant {
	state := r.state.Load()
	if deadline := r.deadline.Load(); deadline > int64(now) {
		return weir.Instant(deadline)
	}
	switch how := state & (oneUse - 1); {
	case how == queued && r.state.CompareAndSwap(state, state-queued+withdrawn):
		r.late = s.gone(withdrawn, errTimeout)
	case how == sent && r.state.CompareAndSwap(state, state-sent+left):
		r.late = s.gone(left, errTimeout)
	default:
		return math.MaxInt64
	}
	r.done <- struct{}{}
	return math.MaxInt64
}

// gone counts a caller who stopped waiting because of why, and returns the caller's error.
func (s *Store) gone(state uint64, why error) error {
	s.counts.timeouts.Add(1)
	if state == withdrawn {
		return why
	}
	s.counts.unknown.Add(1)
	return unknownOutcome(why)
}
