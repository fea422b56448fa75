package redisstore

import (
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/redis/rueidis"

	"github.com/weirlimit/weir"
)

// A sendQueue is a queue of requests and the goroutines that send them. All requests that
// were queued while a sender waited for the replies to its last batch are sent together:
// requests for one key as one call of a script, calls for different
// keys in one pipeline. So a hot key costs the server one script for dozens of
// decisions, and a slow server does not cost this process one goroutine per call.
type sendQueue struct {
	store     *Store
	sampleKey string // in a cluster: some key on the queue's slots

	mu       sync.Mutex // guards the fields below
	wake     sync.Cond  // there is work for a sender, or the queue was closed
	waiting  []*request
	inFlight []inFlightBatch // by sender
	busy     int             // senders with a batch in flight that is not late
	many     bool            // the last batch was for many keys
	most     int             // decaying maximum of the requests waiting or in flight
	closed   bool

	senders sync.WaitGroup
}

// An inFlightBatch is what a sender has sent and waits for.
type inFlightBatch struct {
	requests []*request // nil if the sender has nothing in flight
	began    weir.Instant
	late     bool // other senders do not wait for it: its connection may be slow
}

const (
	// gather is the maximum number of requests in a batch.
	gather = 512

	// senders is the number of senders of a queue where there is one server, each with a
	// connection of its own. If no batch is in flight, a sender sends whatever waits; the
	// others send only once a threshold of requests is waiting.
	senders = 4

	// thresholdManyKeys is how many requests must wait for a second sender to send if they
	// are for different keys: the server can start on them. More than sendersManyKeys batches
	// at once gain nothing, since each fills a pipeline.
	thresholdManyKeys = 16
	sendersManyKeys   = 2

	// thresholdSameKeys is the minimum for requests for the same keys. These are cheaper
	// together, in fewer scripts, but not all in one: they are sent by quarters, so that some
	// callers are woken and call again while the server executes the others. With halves,
	// client and server would at times both be idle, and waking a processor takes longer
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

// add queues a request, which is in flight until a sender is done with it. With must, the
// request is added beyond MaxInFlight, too: settlements and refunds are never refused.
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

// shouldSend says whether a sender should send now. It requires q.mu.
func (q *sendQueue) shouldSend() bool {
	return len(q.waiting) >= q.sendThreshold() || len(q.waiting) > 0 && (q.busy == 0 || q.closed)
}

// sendThreshold returns how many requests must wait for another sender to send them. It
// requires q.mu.
func (q *sendQueue) sendThreshold() int {
	switch {
	case q.many && q.busy < sendersManyKeys:
		return thresholdManyKeys
	case q.many:
		return gather
	}
	return max(thresholdSameKeys, min(q.most/senders, gather))
}

// next returns the next batch for a sender, waiting for one if need be, or none when the queue
// is closed and empty. The batch is in flight until the sender calls next again. last is the
// sender's previous batch, and rows the number of rows it was for.
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

// expire ends all requests that have timed out, and returns when the next one will. A batch
// that is in flight for a quarter of the timeout is late, and other senders no longer wait
// for it.
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

// close waits until the senders have sent everything that is queued.
func (q *sendQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.wake.Broadcast()
	q.mu.Unlock()
	q.senders.Wait()
}

// A request is one caller's Take or call. Its state says who may access it: until the
// request is done the sender writes the result, afterwards the caller reads it. The
// goroutine that changes the state also performs the transition's work.
//
//	queued → sent → done       the usual order
//	queued → withdrawn         the caller left before it was sent: nothing happened
//	sent   → left              the caller left: its charge is refunded
//
// Requests are reused, so the state includes a use counter: a goroutine that has loaded
// the state of one use cannot change that of the next.
type request struct {
	// A Take, if call is nil.
	n    *compiledLimits
	key  string // in memory
	cost int64

	call *call

	memory []byte // of key, written anew by the next use

	state    atomic.Uint64 // use << 3 | one of the below
	deadline atomic.Int64  // an Instant; written by the caller before it is queued
	decision weir.Decision // the result, written by the sender, as is err
	err      error
	late     error         // the timeout sweeper's error, if it ended the request
	done     chan struct{} // buffered, so that sending never blocks
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

// setTake makes the request a Take. A request reuses the memory of its key, which saves each
// Take an allocation. That is safe because a request is reused only after a reply without an
// error: then its command was written, and the sender, whose rows and places still refer to
// the key, reads neither before the next round rebuilds them.
func (r *request) setTake(n *compiledLimits, subject string, cost int64) {
	r.memory = appendRowKey(r.memory[:0], n.rows, subject)
	r.n, r.key, r.cost, r.call = n, unsafe.String(unsafe.SliceData(r.memory), len(r.memory)), cost, nil
}

// begin makes the request ready to be queued.
func (r *request) begin(deadline weir.Instant) {
	r.err, r.late = nil, nil
	r.deadline.Store(int64(deadline))
	r.state.Store(r.state.Load()&^(oneUse-1) + oneUse + queued)
}

// outcome returns the error of a request after a receive from done.
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

// answer returns the request to its caller. It returns false if the caller has left.
func (r *request) answer() bool {
	if !r.move(sent, done) {
		return false
	}
	r.done <- struct{}{}
	return true
}

// leave is called by a caller who stops waiting. It returns the request's final
// state: withdrawn, left, or done.
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
