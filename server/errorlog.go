package server

import (
	"bytes"
	"log"
	"log/slog"

	"github.com/weirlimit/weir/server/internal/observe"
)

// errorLog logs the errors of net/http, such as failed handshakes and bad requests. Any caller
// can cause them, so at most one line a second is written, with the number of errors since the
// last line.
type errorLog struct {
	log     *slog.Logger
	sampler observe.Sampler
}

// newErrorLog returns a log for http.Server.
func newErrorLog(l *slog.Logger) *log.Logger { return log.New(&errorLog{log: l}, "", 0) }

// Write takes one line.
func (e *errorLog) Write(line []byte) (int, error) {
	if since, ok := e.sampler.Due(); ok {
		e.log.Warn("http", "problem", string(bytes.TrimSpace(line)), "since_last_line", since)
	}
	return len(line), nil
}
