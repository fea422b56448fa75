package server

import (
	"bytes"
	"log"
	"log/slog"
	"sync/atomic"

	"github.com/weirlimit/weir"
)

// errorLog takes what net/http complains of: broken handshakes, bad requests. Whoever
// connects can cause such lines, so there is one a second at most, with how many there
// were since the last.
type errorLog struct {
	log   *slog.Logger
	next  atomic.Int64 // when the next line may be written; who moves it writes
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
