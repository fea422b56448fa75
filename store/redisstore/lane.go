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

	mu     sync.Mutex // guards the fields below
	wake   sync.Cond  // there is work for a sender, or the lane was closed
	queue  []*request
	away   int // senders that wait for answers
	closed bool

	senders sync.WaitGroup
}

const (
	// gather is how many requests a sender takes at once.
	gather = 512

	// crowd is how many must wait for a second sender to go while the first is away.
	// Fewer are better off together: they go out when it is back.
	crowd = 128
)

func newLane(s *Store, senders int) *lane {
	l := &lane{store: s}
	l.wake.L = &l.mu
	for range senders {
		l.senders.Go(func() { newSender(s, l).run() })
	}
	return l
}

// add queues a request. It is under way until a sender is done with it. What only gives
// back must be added, however many there are.
func (l *lane) add(r *request, must bool) error {
	if l.store.under.Add(1) > l.store.max && !must {
		l.store.under.Add(-1)
		l.store.counts.busy.Add(1)
		return ErrBusy
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		l.store.under.Add(-1)
		return ErrClosed
	}
	l.queue = append(l.queue, r)
	if l.worthGoing() {
		l.wake.Signal()
	}
	return nil
}

// worthGoing says whether a sender should go now. It requires l.mu.
func (l *lane) worthGoing() bool {
	return len(l.queue) >= crowd || len(l.queue) > 0 && (l.away == 0 || l.closed)
}

// next waits for requests and appends them to into. It returns none when the lane
// is closed and empty. The sender is away from then on; back says that it was.
func (l *lane) next(into []*request, back bool) []*request {
	l.mu.Lock()
	defer l.mu.Unlock()
	if back {
		l.away--
	}
	for !l.worthGoing() && !l.closed {
		l.wake.Wait()
	}
	l.away++
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
