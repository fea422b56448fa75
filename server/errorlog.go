package server

import (
	"bytes"
	"log"
	"log/slog"
	"sync/atomic"

	"github.com/weirlimit/weir"
)

// errorLog logs the errors of net/http, such as failed handshakes and bad requests. Any caller
// can cause them, so at most one line a second is written, with the number of errors since the
// last line.
type errorLog struct {
	log   *slog.Logger
	next  atomic.Int64 // when the next line may be written; the goroutine whose swap succeeds writes it
	since atomic.Int64 // lines since the last
}

const errorLogEvery = int64(1e9)

// newErrorLog returns a log for http.Server.
func newErrorLog(l *slog.Logger) *log.Logger { return log.New(&errorLog{log: l}, "", 0) }

// Write takes one line.
func (e *errorLog) Write(line []byte) (int, error) {
	e.since.Add(1)
	now := int64(weir.Now())
	next := e.next.Load()
	if now >= next && e.next.CompareAndSwap(next, now+errorLogEvery) {
		e.log.Warn("http", "problem", string(bytes.TrimSpace(line)), "since_last_line", e.since.Swap(0))
	}
	return len(line), nil
}
