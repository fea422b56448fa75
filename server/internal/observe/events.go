package observe

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/guard"
)

// How many may watch all decisions, and how far each may lag behind.
const (
	maxWatchers = 16
	maxLag      = 1024
)

var errTooMany = errors.New("too many watch the decisions already")

// events sends decisions to those who watch.
type events struct {
	watchers atomic.Int32 // how many there are, so that the others need no lock

	mu   sync.Mutex // guards the field below
	list []*watcher
}

type watcher struct {
	records chan guard.Record
	lost    atomic.Int64
}

func (e *events) subscribe() (<-chan guard.Record, func() int64, func(), error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.list) == maxWatchers {
		return nil, nil, nil, errTooMany
	}
	w := &watcher{records: make(chan guard.Record, maxLag)}
	e.list = append(e.list, w)
	e.watchers.Store(int32(len(e.list)))
	return w.records, func() int64 { return w.lost.Swap(0) }, sync.OnceFunc(func() { e.remove(w) }), nil
}

func (e *events) remove(w *watcher) {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := make([]*watcher, 0, len(e.list))
	for _, x := range e.list {
		if x != w {
			kept = append(kept, x)
		}
	}
	e.list = kept
	e.watchers.Store(int32(len(kept)))
}

// send gives r to everybody who has room for it. The key may be part of a request's
// memory, so it is copied.
func (e *events) send(r *guard.Record) {
	record := *r
	record.Key, record.At = strings.Clone(r.Key), time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range e.list {
		select {
		case w.records <- record:
		default:
			w.lost.Add(1)
		}
	}
}
