package redisstore

import (
	"math"
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

// A patrol ends requests whose time is over, so that callers need no timer each. As long
// as there is something under way it looks when the first will be late, and eight times in
// a timeout at least: who came meanwhile may have less time than others, and so may wait
// an eighth longer than he has.
type timeoutSweeper struct {
	store *Store
	work  chan struct{} // has room for one: there is something under way
	stop  chan struct{}
	wg    sync.WaitGroup
}

func newTimeoutSweeper(s *Store) *timeoutSweeper {
	w := &timeoutSweeper{store: s, work: make(chan struct{}, 1), stop: make(chan struct{})}
	w.wg.Go(w.loop)
	return w
}

// wake is called when something is under way after a while of nothing.
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

// look ends what is late, and returns when to look again.
func (w *timeoutSweeper) sweep(most time.Duration) time.Duration {
	now := weir.Now()
	first := now.Add(most)
	for _, q := range w.store.queues {
		first = min(first, q.expire(now))
	}
	return max(first.Sub(now), most/8)
}

// expire ends a request whose time is over, as if its caller had left. It returns when that
// will be if it is not, and otherwise never.
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

// gone counts a caller who did not wait for his answer, because of why, and returns his
// error.
func (s *Store) gone(state uint64, why error) error {
	s.counts.timeouts.Add(1)
	if state == withdrawn {
		return why
	}
	s.counts.unknown.Add(1)
	return unknownOutcome(why)
}
