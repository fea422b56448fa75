package redisstore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// A lane is a queue of requests and the goroutines that send them, the only ones
// of a Store. Whatever has gathered while a sender waited for its last answers goes
// out together: requests for one key as one call of a script, calls for different
// keys in one pipeline. So a hot key costs the server one script for dozens of
// decisions, and a slow server costs this process no goroutine.
type lane struct {
	store *Store
	max   int // requests that may wait; beyond them callers are sent away

	mu     sync.Mutex
	wake   sync.Cond // somebody came, or the lane was closed
	queue  []*request
	closed bool

	senders sync.WaitGroup
}

// gather is how many requests a sender takes at once.
const gather = 512

func newLane(s *Store, max, senders int) *lane {
	l := &lane{store: s, max: max}
	l.wake.L = &l.mu
	for range senders {
		l.senders.Go(func() { newSender(s, l).run() })
	}
	return l
}

// add queues a request.
func (l *lane) add(r *request) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return ErrClosed
	case len(l.queue) >= l.max:
		l.store.counts.busy.Add(1)
		return ErrBusy
	}
	l.queue = append(l.queue, r)
	l.wake.Signal()
	return nil
}

// next waits for requests and appends them to into. It returns none when the lane
// is closed and empty.
func (l *lane) next(into []*request) []*request {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) == 0 && !l.closed {
		l.wake.Wait()
	}
	n := min(len(l.queue), gather)
	into = append(into, l.queue[:n]...)
	rest := copy(l.queue, l.queue[n:])
	clear(l.queue[rest:])
	l.queue = l.queue[:rest]
	return into
}

// close lets the senders finish what is queued, and waits for them.
func (l *lane) close() {
	l.mu.Lock()
	l.closed = true
	l.wake.Broadcast()
	l.mu.Unlock()
	l.senders.Wait()
}

// A request is what one caller wants: a Take, or a call. Its state says who may
// touch it: until it is done the sender writes the answer, afterwards the
// caller reads it.
//
//	queued → sent → done       the usual way
//	queued → withdrawn         the caller left before it was sent: nothing happened
//	sent   → left              the caller left: what it took is given back
type request struct {
	// A Take, if call is nil.
	n    *numbers
	key  string
	cost int64

	call *call

	state    atomic.Uint32
	decision weir.Decision
	err      error
	done     chan struct{} // has room for one, so that a sender never waits
	timer    *time.Timer   // the caller's
}

const (
	queued uint32 = iota
	sent
	done
	withdrawn
	left
)

// take claims the request for a sender, unless its caller has left.
func (r *request) take() bool { return r.state.CompareAndSwap(queued, sent) }

// answer gives the request back to its caller. It returns false if that has left.
func (r *request) answer() bool {
	if !r.state.CompareAndSwap(sent, done) {
		return false
	}
	r.done <- struct{}{}
	return true
}

// leave is called by a caller who waits no longer. It returns how far the request
// got: withdrawn, left, or done after all.
func (r *request) leave() uint32 {
	if r.state.CompareAndSwap(queued, withdrawn) {
		return withdrawn
	}
	if r.state.CompareAndSwap(sent, left) {
		return left
	}
	<-r.done
	return done
}
