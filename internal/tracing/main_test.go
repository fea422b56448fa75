package tracing

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// always traces everything that its caller does not decide.
var always = new(float64)

func init() { *always = 1 }

// must returns a tracer that is started, and its end.
func must(t testing.TB, c Config) (tracer *Tracer, end func()) {
	t.Helper()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	tracer, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	tracer.Start()
	return tracer, func() { tracer.Shutdown(context.WithoutCancel(t.Context())) }
}

// logged is a log whose text can be read.
type logged struct {
	mu   sync.Mutex // guards the field below
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logged) lines() int { return strings.Count(l.String(), "\n") }

func logTo(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}
