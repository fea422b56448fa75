package redisstore

import (
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/redis/rueidis"

	"github.com/weirlimit/weir"
)

// A lane is a queue of requests and the goroutines that send them, the only ones
// of a Store. Whatever has gathered while a sender waited for its last answers goes
// out together: requests for one key as one call of a script, calls for different
// keys in one pipeline. So a hot key costs the server one script for dozens of
// decisions, and a slow server costs this process no goroutine.
type sendQueue struct {
	store     *Store
	sampleKey string // of a cluster's: some key on its slots

	mu       sync.Mutex // guards the fields below
	wake     sync.Cond  // there is work for a sender, or the lane was closed
	waiting  []*request
	inFlight []inFlightBatch // by sender
	busy     int             // senders that wait for answers, and are not late
	many     bool            // what was sent last was for many keys
	most     int             // how many requests there were at once, of late
	closed   bool

	senders sync.WaitGroup
}

// A trip is that of a sender to the server.
type inFlightBatch struct {
	requests []*request // nil if it is here
	began    weir.Instant
	late     bool // nobody should wait for it: the connection may be what is slow
}

const (
	// gather is how many requests a sender takes at once.
	gather = 512

	// senders is how many a lane has where there is one server, each with a connection of
	// its own. One goes whenever something waits, the others if there is a crowd while it
	// is batch.
	senders = 4

	// thresholdManyKeys is how many must wait for a second sender if they want different keys:
	// the server may as well begin. More than sendersManyKeys at once gain nothing, since
	// each has a pipeline full.
	thresholdManyKeys = 16
	sendersManyKeys   = 2

	// thresholdSameKeys is the same for callers who want the same keys. They are better off
	// together, in fewer scripts, but not in one: they go by quarters, so that some are
	// woken and come back while the server is busy with others. By halves, client and
	// server would at times find nothing to do, and sleep; to wake a processor takes longer
	// than a script.
	thresholdSameKeys = 16
)

func newSendQueue(s *Store) *sendQueue {
	q := &sendQueue{store: s}
	q.wake.L = &q.mu
	return q
}

// start starts one more sender.
func (q *sendQueue) start(client rueidis.Client) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.senders.Go(newSender(q, len(q.inFlight), client).run)
	q.inFlight = append(q.inFlight, inFlightBatch{})
}

// add queues a request. It is under way until a sender is done with it. What only gives
// back must be added, however many there are.
func (q *sendQueue) add(r *request, must bool) error {
	switch n := q.store.under.Add(1); {
	case n > q.store.max && !must:
		q.store.under.Add(-1)
		q.store.counts.busy.Add(1)
		return errBusy
	case n == 1:
		q.store.sweeper.wake()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		q.store.under.Add(-1)
		return errClosed
	}
	q.waiting = append(q.waiting, r)
	if q.shouldSend() {
		q.wake.Signal()
	}
	return nil
}

// shouldSend says whether a sender should go now. It requires q.mu.
func (q *sendQueue) shouldSend() bool {
	return len(q.waiting) >= q.sendThreshold() || len(q.waiting) > 0 && (q.busy == 0 || q.closed)
}

// crowd returns how many must wait for another sender to go. It requires q.mu.
func (q *sendQueue) sendThreshold() int {
	switch {
	case q.many && q.busy < sendersManyKeys:
		return thresholdManyKeys
	case q.many:
		return gather
	}
	return max(thresholdSameKeys, min(q.most/senders, gather))
}

// next returns requests for a sender, waiting for them if need be, or none when the lane
// is closed and empty. The sender is away with them until it comes back for more, and
// tells how many rows its last ones were about.
func (q *sendQueue) next(sender int, last []*request, rows int) []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	if was := q.inFlight[sender]; was.requests != nil {
		q.many = isMany(rows, len(last))
		if !was.late {
			q.busy--
		}
		q.inFlight[sender] = inFlightBatch{}
		clear(last)
	}
	for !q.shouldSend() && !q.closed {
		q.wake.Wait()
	}
	under := len(q.waiting)
	for i := range q.inFlight {
		under += len(q.inFlight[i].requests)
	}
	q.most = max(under, q.most-q.most/64-1)
	n := min(len(q.waiting), gather)
	next := append(last[:0], q.waiting[:n]...)
	rest := copy(q.waiting, q.waiting[n:])
	clear(q.waiting[rest:])
	q.waiting = q.waiting[:rest]
	if n > 0 {
		q.inFlight[sender] = inFlightBatch{requests: next, began: weir.Now()}
		q.busy++
	}
	return next
}

// isMany says whether requests were for many keys, rather than for the same.
func isMany(rows, requests int) bool { return 2*rows > requests }

// expire ends all requests whose time is over, and returns when that of the next will be.
// Senders that are away for long are late from then on, and others need not wait for them.
func (q *sendQueue) expire(now weir.Instant) weir.Instant {
	q.mu.Lock()
	defer q.mu.Unlock()
	first := weir.Instant(math.MaxInt64)
	for _, r := range q.waiting {
		first = min(first, q.store.expire(r, now))
	}
	for i := range q.inFlight {
		batch := &q.inFlight[i]
		for _, r := range batch.requests {
			first = min(first, q.store.expire(r, now))
		}
		if batch.requests != nil && !batch.late && now.Sub(batch.began) >= q.store.timeout/4 {
			batch.late = true
			q.busy--
		}
	}
	if q.shouldSend() {
		q.wake.Signal()
	}
	return first
}

// close lets the senders finish what is queued, and waits for them.
func (q *sendQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.wake.Broadcast()
	q.mu.Unlock()
	q.senders.Wait()
}

// A request is what one caller wants: a Take, or a call. Its state says who may
// touch it: until it is done the sender writes the answer, afterwards the caller
// reads it. Whoever moves the state does what belongs to it.
//
//	queued → sent → done       the usual way
//	queued → withdrawn         the caller left before it was sent: nothing happened
//	sent   → left              the caller left: what it took is given back
//
// Requests are used again, so a state counts the uses: who has looked at one use
// cannot move the next.
type request struct {
	// A Take, if call is nil.
	n    *compiledLimits
	key  string // in memory
	cost int64

	call *call

	memory []byte // of key, written anew by the next use

	state    atomic.Uint64 // use << 3 | one of the below
	deadline atomic.Int64  // an Instant; written by the caller before it is queued
	decision weir.Decision // the sender's answer, and so is err
	err      error
	late     error         // the patrol's, if it came first
	done     chan struct{} // has room for one, so that nobody waits to say it
}

const (
	idle uint64 = iota
	queued
	sent
	done
	withdrawn
	left

	oneUse = 1 << 3
)

func newRequest() *request { return &request{done: make(chan struct{}, 1)} }

// ask makes the request a Take. All its keys have the same memory, which spares each Take an
// allocation. That is safe because a request is used again only after an answer without an
// error: then its command was written, and the sender, whose rows and places still have
// the key, looks at neither before the next round makes them anew.
func (r *request) ask(n *compiledLimits, subject string, cost int64) {
	r.memory = appendRowKey(r.memory[:0], n.rows, subject)
	r.n, r.key, r.cost, r.call = n, unsafe.String(unsafe.SliceData(r.memory), len(r.memory)), cost, nil
}

// begin makes the request ready to be queued.
func (r *request) begin(deadline weir.Instant) {
	r.err, r.late = nil, nil
	r.deadline.Store(int64(deadline))
	r.state.Store(r.state.Load()&^(oneUse-1) + oneUse + queued)
}

// outcome returns the error of a request that somebody has said to be done.
func (r *request) outcome() error {
	if r.state.Load()&(oneUse-1) == done {
		return r.err
	}
	return r.late
}

// move changes the state, if it is from.
func (r *request) move(from, to uint64) bool {
	s := r.state.Load()
	return s&(oneUse-1) == from && r.state.CompareAndSwap(s, s-from+to)
}

// take claims the request for a sender, unless its caller has left.
func (r *request) take() bool { return r.move(queued, sent) }

// answer gives the request back to its caller. It returns false if that has left.
func (r *request) answer() bool {
	if !r.move(sent, done) {
		return false
	}
	r.done <- struct{}{}
	return true
}

// leave is called by a caller who waits no longer. It returns how far the request
// got: withdrawn, left, or done after all.
func (r *request) leave() uint64 {
	if r.move(queued, withdrawn) {
		return withdrawn
	}
	if r.move(sent, left) {
		return left
	}
	<-r.done
	return done
}
