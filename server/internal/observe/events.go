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

// events sends decisions to subscribers.
type events struct {
	watchers atomic.Int32 // the number of subscribers; if it is 0, send needs no lock

	mu   sync.Mutex // guards the field below
	list []*watcher
}

type watcher struct {
	records chan ruleset.Record
	lost    atomic.Int64
}

// Subscribe subscribes to all decisions, as adminapi.Config.Subscribe describes.
func (e *events) Subscribe() (records <-chan ruleset.Record, lost func() int64, cancel func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.list) == maxWatchers {
		return nil, nil, nil, errTooMany
	}
	w := &watcher{records: make(chan ruleset.Record, maxLag)}
	e.list = append(e.list, w)
	e.watchers.Store(int32(len(e.list)))
	return w.records, func() int64 { return w.lost.Swap(0) }, sync.OnceFunc(func() { e.remove(w) }), nil
}

func (e *events) remove(w *watcher) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = slices.DeleteFunc(e.list, func(x *watcher) bool { return x == w })
	e.watchers.Store(int32(len(e.list)))
}

// send sends r to all subscribers with room in their buffers. The key may be part of a request's
// memory, so it is copied.
func (e *events) send(r *ruleset.Record) {
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
