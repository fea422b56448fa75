package observe

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/ruleset"
)

// The maximum number of subscribers, and the buffer of each.
const (
	maxWatchers = 16
	maxLag      = 1024
)

var errTooMany = errors.New("too many watch the decisions already")

// events sends decisions, or something else, to subscribers.
type events[T any] struct {
	watchers atomic.Int32 // the number of subscribers; if it is 0, send needs no lock

	mu   sync.Mutex // guards the field below
	list []*watcher[T]
}

type watcher[T any] struct {
	records chan T
	lost    atomic.Int64
}

func (e *events[T]) subscribe() (<-chan T, func() int64, func(), error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.list) == maxWatchers {
		return nil, nil, nil, errTooMany
	}
	w := &watcher[T]{records: make(chan T, maxLag)}
	e.list = append(e.list, w)
	e.watchers.Store(int32(len(e.list)))
	return w.records, func() int64 { return w.lost.Swap(0) }, sync.OnceFunc(func() { e.remove(w) }), nil
}

func (e *events[T]) remove(w *watcher[T]) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = slices.DeleteFunc(e.list, func(x *watcher[T]) bool { return x == w })
	e.watchers.Store(int32(len(e.list)))
}

// send sends a record to all subscribers with room in their buffers.
func (e *events[T]) send(record T) {
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

// decided returns a copy of a record that can be kept. The key may be part of a request's memory.
func decided(r *ruleset.Record) ruleset.Record {
	record := *r
	record.Key, record.At = strings.Clone(r.Key), time.Now()
	return record
}
