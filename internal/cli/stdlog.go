package cli

import (
	"bytes"
	"io"
	"log"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/mono"
)

// A libraryLog logs what libraries write to the standard logger of package log. One of them is the
// transport of net/http, whose messages quote what a provider has sent, which may be a secret. So a
// message ends at its first quotation mark, and each text is logged at most once a second.
type libraryLog struct {
	log *slog.Logger

	mu     sync.Mutex // guards the field below
	logged map[string]int64
}

// Limits of a libraryLog.
const (
	libraryLogEvery = time.Second
	maxLibraryTexts = 64  // texts whose last line is remembered
	maxLibraryText  = 200 // bytes of a text
)

// redirectStandardLog makes l the target of package log's standard logger until restore is called.
func redirectStandardLog(l *slog.Logger) (restore func()) {
	w, flags, prefix := log.Writer(), log.Flags(), log.Prefix()
	own := &libraryLog{log: l, logged: map[string]int64{}}
	log.SetFlags(0)
	log.SetPrefix("")
	log.SetOutput(own)
	return func() {
		if log.Writer() != io.Writer(own) {
			return // somebody else has redirected it since
		}
		log.SetOutput(w)
		log.SetFlags(flags)
		log.SetPrefix(prefix)
	}
}

// Write takes one message.
func (l *libraryLog) Write(message []byte) (int, error) {
	if text := unquotedPart(message); l.due(text) {
		l.log.Warn("a library logged", "problem", text)
	}
	return len(message), nil
}

// unquotedPart returns the first line of a message up to its first quotation mark.
func unquotedPart(message []byte) string {
	text := bytes.TrimSpace(message)
	if i := bytes.IndexAny(text, "\"'`\n"); i >= 0 {
		text = text[:i]
	}
	text = text[:min(len(text), maxLibraryText)]
	return strings.TrimSpace(strings.ToValidUTF8(string(text), ""))
}

// due reports whether a text has not been logged in the last second.
func (l *libraryLog) due(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := mono.Now()
	if last, ok := l.logged[text]; ok && now-last < int64(libraryLogEvery) {
		return false
	}
	if len(l.logged) >= maxLibraryTexts {
		clear(l.logged)
	}
	l.logged[text] = now
	return true
}
