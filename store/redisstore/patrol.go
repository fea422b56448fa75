package redisstore

import (
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

// A patrol ends requests whose time is over, so that callers need no timer each: it
// looks eight times in a timeout, as long as there is something under way. A caller may
// wait an eighth longer than he has time.
type patrol struct {
	store *Store
	work  chan struct{} // has room for one: there is something under way
	stop  chan struct{}
	run   sync.WaitGroup
}

func newPatrol(s *Store) *patrol {
	p := &patrol{store: s, work: make(chan struct{}, 1), stop: make(chan struct{})}
	p.run.Go(p.walk)
	return p
}

// wake is called when something is under way after a while of nothing.
func (p *patrol) wake() {
	select {
	case p.work <- struct{}{}:
	default:
	}
}

func (p *patrol) close() {
	close(p.stop)
	p.run.Wait()
}

func (p *patrol) walk() {
	tick := time.NewTicker(max(time.Millisecond, p.store.timeout/8))
	defer tick.Stop()
	for {
		if p.store.under.Load() == 0 {
			select {
			case <-p.work:
			case <-p.stop:
				return
			}
		}
		select {
		case <-tick.C:
			for _, l := range p.store.lanes {
				l.expire(weir.Now())
			}
		case <-p.stop:
			return
		}
	}
}

// expire ends a request whose time is over, as if its caller had left.
func (s *Store) expire(r *request, now weir.Instant) {
	state := r.state.Load()
	if r.deadline.Load() > int64(now) {
		return
	}
	switch how := state & (oneUse - 1); {
	case how == queued && r.state.CompareAndSwap(state, state-queued+withdrawn):
		r.late = s.gone(withdrawn, ErrTimeout)
	case how == sent && r.state.CompareAndSwap(state, state-sent+left):
		r.late = s.gone(left, ErrTimeout)
	default:
		return
	}
	r.done <- struct{}{}
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
