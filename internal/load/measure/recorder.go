package measure

import (
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

// A recorder hands its operations to the run when it has drainFrom of them, and waits
// for the run if it has bufferSize.
const (
	bufferSize = 256
	drainFrom  = 128
)

// Recorder takes the operations of one worker. It is safe for concurrent use, but
// workers that share one wait for each other, and only the last Begin counts.
type Recorder struct {
	run *Run // set once

	// mu guards the fields below. It comes before run.mu. Only this worker and, now and
	// then, a snapshot or a report take it.
	mu      sync.Mutex
	ops     [bufferSize]Op
	n       int // operations in ops
	busy    bool
	current Op // begun, if busy
}

// Begin tells of an operation that starts now, until Record tells that it ended. It is
// optional: with it, snapshots and reports know of operations that do not end.
func (rc *Recorder) Begin(scheduled, started weir.Instant) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.busy = true
	rc.current = Op{Scheduled: scheduled, Started: started}
}

// Record counts a finished operation.
func (rc *Recorder) Record(op Op) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.busy = false
	rc.ops[rc.n] = op
	rc.n++
	if rc.n < drainFrom {
		return
	}
	if !rc.run.mu.TryLock() {
		if rc.n < bufferSize {
			return // another worker is there: after the next operation, then
		}
		rc.run.mu.Lock()
	}
	defer rc.run.mu.Unlock()
	rc.drainLocked()
}

// flush hands over what there is, and returns the operation under way.
func (rc *Recorder) flush() (current Op, busy bool) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.run.mu.Lock()
	defer rc.run.mu.Unlock()
	rc.drainLocked()
	return rc.current, rc.busy
}

// drainLocked empties the buffer. It requires rc.mu and rc.run.mu.
func (rc *Recorder) drainLocked() {
	for i := range rc.n {
		rc.run.addLocked(&rc.ops[i])
	}
	rc.n = 0
}

// inFlight sums up the operations under way.
type inFlight struct {
	count  int
	oldest time.Duration // since the one that has been due for longest
	wait   time.Duration // the longest that one of them waited for its start
}

func (f *inFlight) add(op Op, now weir.Instant) {
	f.count++
	f.oldest = max(f.oldest, now.Sub(op.Scheduled), now.Sub(op.Started))
	f.wait = max(f.wait, op.wait())
}
