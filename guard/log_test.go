package guard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// lines collects log lines without their time.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// take returns the lines since the last time.
func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.TrimSuffix(l.buf.String(), "\n")
	l.buf.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func (l *lines) want(t *testing.T, want ...string) {
	t.Helper()
	if got := l.take(); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func newTextLogger() (*ViolationLogger, *lines) {
	out := &lines{}
	return NewLogger(slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{ReplaceAttr: withoutTime})), 0), out
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

func exceeded(subject, endpoint string) Violation {
	return Violation{Kind: Exceeded, Subject: subject, Endpoint: endpoint, Limit: "minute"}
}

func TestLogFirstThenSummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, out := newTextLogger()
		defer l.Close()
		l.Log(exceeded("user:a", "Login"))
		const first = `level=WARN msg="guard: violation" kind=exceeded subject=user:a endpoint=Login limit=minute shadow=false`
		out.want(t, first)

		time.Sleep(4 * time.Second)
		for range 5 {
			l.Log(exceeded("user:a", "Login"))
			l.Log(exceeded("user:b", "Login"))
			l.Log(exceeded("user:b", "Login"))
		}
		time.Sleep(6*time.Second - time.Nanosecond)
		out.want(t)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		out.want(t, `level=WARN msg="guard: more violations" kind=exceeded endpoint=Login shadow=false count=15 subjects=2 top=user:b top_count=10`)

		time.Sleep(time.Hour)
		out.want(t)
		l.Log(exceeded("user:a", "Login")) // of another interval
		out.want(t, first)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		out.want(t) // there were no more
	})
}

func TestLogLevelsAndTopics(t *testing.T) {
	until := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	synctest.Test(t, func(t *testing.T) {
		l, out := newTextLogger()
		defer l.Close()
		l.Log(Violation{Kind: Exceeded, Subject: "ip:192.0.2.1", Endpoint: "A", Limit: "hour", Shadow: true})
		l.Log(Violation{Kind: RapidFire, Subject: "user:a", Endpoint: "A"})
		l.Log(Violation{Kind: Penalized, Subject: "user:a", Until: until})
		l.Log(Violation{Kind: Sustained, Subject: "user:a"})
		out.want(t,
			`level=WARN msg="guard: violation" kind=exceeded subject=ip:192.0.2.1 endpoint=A limit=hour shadow=true`,
			`level=ERROR msg="guard: violation" kind=rapid_fire subject=user:a endpoint=A limit="" shadow=false`,
			`level=WARN msg="guard: violation" kind=penalized subject=user:a endpoint="" limit="" shadow=false until=2026-01-02T03:04:05.000Z`,
			`level=ERROR msg="guard: violation" kind=sustained subject=user:a endpoint="" limit="" shadow=false`)

		l.Log(Violation{Kind: Sustained, Subject: "user:a"})
		l.Log(Violation{Kind: RapidFire, Subject: "user:a", Endpoint: "A"})
		l.Log(Violation{Kind: Exceeded, Subject: "user:a", Endpoint: "A"})               // not in shadow: the first
		l.Log(Violation{Kind: Exceeded, Subject: "user:a", Endpoint: "A", Shadow: true}) // the second
		l.Log(Violation{Kind: Exceeded, Subject: "user:c", Endpoint: "A"})
		out.want(t, `level=WARN msg="guard: violation" kind=exceeded subject=user:a endpoint=A limit="" shadow=false`)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		out.want(t,
			`level=ERROR msg="guard: more violations" kind=sustained endpoint="" shadow=false count=1 subjects=1 top=user:a top_count=1`,
			`level=WARN msg="guard: more violations" kind=exceeded endpoint=A shadow=false count=1 subjects=1 top=user:c top_count=1`,
			`level=WARN msg="guard: more violations" kind=exceeded endpoint=A shadow=true count=1 subjects=1 top=user:a top_count=1`,
			`level=ERROR msg="guard: more violations" kind=rapid_fire endpoint=A shadow=false count=1 subjects=1 top=user:a top_count=1`)
	})
}

func TestLogClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, out := newTextLogger()
		l.Log(exceeded("user:a", "A"))
		l.Log(exceeded("user:a", "A"))
		out.take()
		l.Close()
		out.want(t, `level=WARN msg="guard: more violations" kind=exceeded endpoint=A shadow=false count=1 subjects=1 top=user:a top_count=1`)
		l.Log(exceeded("user:a", "A"))
		l.Close()
		time.Sleep(time.Minute)
		out.want(t)
		NewLogger(nil, -1).Close() // that has logged nothing
	})
}

// A handler that writes slowly delays the next interval: two are never written at once.
func TestLogSlowHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, slow, out := newSlowLogger(time.Minute)
		defer l.Close()
		time.Sleep(2 * time.Second)       // the summary is being written
		go l.Log(exceeded("user:a", "A")) // begins the next interval
		synctest.Wait()
		for range 30 {
			time.Sleep(time.Second)
			l.Log(exceeded("user:a", "A"))
		}
		if most := slow.most.Load(); most != 2 { // the summary, and the violation
			t.Errorf("%d lines were written at once", most)
		}
		time.Sleep(5 * time.Minute)
		if got := out.take(); len(got) != 4 || !strings.Contains(got[3], "count=30 ") {
			t.Errorf("got %q", got)
		}
	})
}

// Close waits for the summary that is being written, and writes what has come since.
func TestLogCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, slow, out := newSlowLogger(time.Minute)
		time.Sleep(2 * time.Second) // the summary is being written
		slow.delay.Store(0)
		l.Log(exceeded("user:a", "A"))
		l.Log(exceeded("user:a", "A"))
		l.Close()
		if got := out.take(); len(got) != 4 || !strings.Contains(got[2], "count=1 ") || !strings.Contains(got[3], "count=1 ") {
			t.Errorf("got %q", got)
		}
	})
}

// newSlowLogger returns a logger with intervals of a second in which a violation was logged and
// another was counted. From now on, writing takes a given time.
func newSlowLogger(delay time.Duration) (*ViolationLogger, *slowHandler, *lines) {
	out := &lines{}
	slow := &slowHandler{Handler: slog.NewTextHandler(out, nil)}
	l := NewLogger(slog.New(slow), time.Second)
	l.Log(exceeded("user:a", "A"))
	l.Log(exceeded("user:a", "A"))
	slow.delay.Store(int64(delay))
	return l, slow, out
}

// slowHandler takes its time.
type slowHandler struct {
	slog.Handler
	delay, now, most atomic.Int64
}

func (h *slowHandler) Handle(ctx context.Context, r slog.Record) error {
	h.most.Store(max(h.most.Load(), h.now.Add(1))) // goroutines of the test do not begin to write at the same time
	defer h.now.Add(-1)
	time.Sleep(time.Duration(h.delay.Load()))
	return h.Handler.Handle(ctx, r)
}

// A million violations of a million subjects at a thousand endpoints give no more lines than an
// interval may have, and all of them are counted.
func TestLogLinesAreBounded(t *testing.T) {
	const violations = 1_000_000
	synctest.Test(t, func(t *testing.T) {
		out := &lines{}
		l := NewLogger(slog.New(slog.NewJSONHandler(out, nil)), 0)
		for n := range violations {
			l.Log(Violation{Kind: Kind((n + 1) % 4), Subject: strconv.Itoa(n), Endpoint: strconv.Itoa(n % 1000), Shadow: n%2 == 0})
		}
		l.Close()
		got := out.take()
		if len(got) != maxLogLines {
			t.Errorf("got %d lines, want %d", len(got), maxLogLines)
		}
		if total := totalOf(t, got); total != violations {
			t.Errorf("the lines count %d violations", total)
		}
		if others := got[len(got)-1]; !strings.Contains(others, `"level":"ERROR"`) || !strings.Contains(others, `"kind":"others"`) || !strings.Contains(others, `"subjects":"≥1000"`) {
			t.Errorf("the last line is %s", others)
		}
	})
}

// totalOf returns how many violations the lines stand for.
func totalOf(t *testing.T, got []string) (total int64) {
	t.Helper()
	for _, line := range got {
		count := struct{ Count int64 }{Count: 1}
		if err := json.Unmarshal([]byte(line), &count); err != nil {
			t.Fatal(err)
		}
		total += count.Count
	}
	return total
}

// The summaries of a flood need a bounded amount of memory, which is released with the interval.
func TestLogMemoryIsBounded(t *testing.T) {
	l := NewLogger(slog.New(slog.DiscardHandler), time.Hour)
	before := heap()
	long := strings.Repeat("x", 250)
	for endpoint := range maxTopics + 10 {
		for n := range maxDistinct + 10 {
			l.Log(Violation{Subject: long + strconv.Itoa(n), Endpoint: strconv.Itoa(endpoint)})
		}
	}
	used := heap() - before
	t.Logf("%d summaries of more than %d subjects: %.1f MB", maxTopics, maxDistinct, float64(used)/1e6)
	if used > 10e6 {
		t.Errorf("%d bytes are in use", used)
	}
	l.Close()
	if left := heap() - before; left > 1e6 {
		t.Errorf("%d bytes are left after Close", left)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestLogCountsSubjects(t *testing.T) {
	for n, want := range map[int]string{1: "subjects=1 ", 999: "subjects=999 ", 1000: "subjects=1000 ", 1001: "subjects=≥1000 ", 5000: "subjects=≥1000 "} {
		l, out := newTextLogger()
		l.Log(exceeded("user:first", "A"))
		for i := range n {
			l.Log(exceeded(fmt.Sprintf("user:%d", i), "A"))
			l.Log(exceeded(fmt.Sprintf("user:%d", i), "A"))
		}
		if kept := len(l.topics[topic{endpoint: "A"}].distinct); kept > maxDistinct+1 {
			t.Errorf("%d subjects are kept", kept)
		}
		l.Close()
		if got := out.take(); len(got) != 2 || !strings.Contains(got[1], want) || !strings.Contains(got[1], fmt.Sprintf("count=%d ", 2*n)) {
			t.Errorf("%d subjects: got %q", n, got)
		}
	}
}

// Among many subjects with a few violations each, the one with many is found.
func TestLogFindsTheTopSubject(t *testing.T) {
	l, out := newTextLogger()
	for n := range 10_000 {
		l.Log(exceeded(fmt.Sprintf("ip:%d", n), "A"))
		if n%5 == 0 {
			l.Log(exceeded("user:mallory", "A"))
		}
	}
	l.Close()
	if got := out.take(); len(got) != 2 || !strings.Contains(got[1], "top=user:mallory ") {
		t.Errorf("got %q", got)
	}
}

// If all subjects have one violation each, none is said to have more.
func TestLogTopCountIsNeverTooHigh(t *testing.T) {
	l, out := newTextLogger()
	for n := range 10_000 {
		l.Log(exceeded(fmt.Sprintf("ip:%d", n), "A"))
	}
	l.Close()
	if got := out.take(); len(got) != 2 || !strings.HasSuffix(got[1], " top_count=1") {
		t.Errorf("got %q", got)
	}
}

// The text of subjects, endpoints and limits cannot forge lines or attributes.
func TestLogQuotes(t *testing.T) {
	const evil = "user:a\r\nlevel=ERROR msg=forged\x1b[31m\x00\u2028 subject=\"user:b\""
	l, out := newTextLogger()
	l.Log(Violation{Subject: evil, Endpoint: evil, Limit: evil})
	l.Log(Violation{Subject: evil, Endpoint: evil, Limit: evil})
	l.Close()
	got := out.take()
	if len(got) != 2 {
		t.Fatalf("got %q", got)
	}
	for _, line := range got {
		if strings.ContainsAny(line, "\r\x1b\x00\u2028") || strings.Contains(line, ` subject="user:b"`) || strings.Contains(line, " msg=forged\x1b") {
			t.Errorf("got %q", line)
		}
	}
}

func TestLogConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &lines{}
		l := NewLogger(slog.New(slog.NewJSONHandler(out, nil)), time.Second)
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for n := range 500 {
					l.Log(exceeded(fmt.Sprintf("user:%d", n%7), fmt.Sprintf("e-%d", g%3)))
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		var closers sync.WaitGroup
		for range 3 {
			closers.Go(l.Close)
		}
		closers.Wait()
		if total := totalOf(t, out.take()); total != 8*500 {
			t.Errorf("the lines count %d violations", total)
		}
	})
}

func TestLogAllocatesNothingForKnownSubjects(t *testing.T) {
	l := NewLogger(slog.New(slog.DiscardHandler), time.Hour)
	defer l.Close()
	v := exceeded("user:a", "Login")
	l.Log(v)
	l.Log(v)
	if n := testing.AllocsPerRun(1000, func() { l.Log(v) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkLog(b *testing.B) {
	l := NewLogger(slog.New(slog.DiscardHandler), time.Hour)
	defer l.Close()
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		l.Log(exceeded(peerKey, "Login"))
	}
}
