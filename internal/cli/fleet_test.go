package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/redistest"
)

// perHour is a configuration whose policy "api" admits n per 10 hours.
func perHour(n int) string {
	return fmt.Sprintf("policies:\n  api:\n    limits: [{rate: %d, per: 10h}]\n", n)
}

// configured is a daemon with a file of its own.
type configured struct {
	*daemon
	file string
}

// startConfigured starts a daemon on a Redis with a file.
func startConfigured(t *testing.T, redis *redistest.Server, file, text string, args ...string) configured {
	t.Helper()
	write(t, file, text)
	return configured{slowDaemon(t, redis.Addr(), append([]string{"--config", file}, args...)...), file}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// limit returns the limit of "api" by which a daemon decides, and what remains for alice.
func (c configured) limit(t *testing.T) (limit, remaining int64) {
	t.Helper()
	resp, err := oneShot.Post(c.url+"/v1/check", "application/json", strings.NewReader(`{"policy":"api","key":"alice","cost":0}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var a struct{ Limit, Remaining int64 }
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v", resp.StatusCode, err)
	}
	return a.Limit, a.Remaining
}

// take charges alice.
func (c configured) take(t *testing.T, cost int) {
	t.Helper()
	body := fmt.Sprintf(`{"policy":"api","key":"alice","cost":%d}`, cost)
	resp, err := oneShot.Post(c.url+"/v1/check", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

// wantLimit waits until all daemons decide by a limit. Another daemon's change takes about a
// millisecond.
func wantLimit(t *testing.T, limit, remaining int64, daemons ...configured) {
	t.Helper()
	for i, d := range daemons {
		var l, r int64
		eventually(t, fmt.Sprintf("daemon %d decides by %d, %d remaining", i, limit, remaining), func() bool {
			l, r = d.limit(t)
			return l == limit && r == remaining
		})
	}
}

// logLine is a line about a change of limits.
type logLine struct {
	Level, Msg, Policy, From, To, Configured string
	InForce                                  string `json:"in_force"`
	Since, At                                time.Time
}

const (
	notInForce = "the configured limits of a policy are not in force"
	ownChange  = "this daemon has changed the limits of a policy"
	byAnother  = "another process has changed the limits of a policy"
)

// changes returns what a daemon has logged about changes of limits.
func (c configured) changes(t *testing.T) (list []logLine) {
	t.Helper()
	for line := range strings.Lines(c.stderr.String()) {
		if !strings.Contains(line, "limits of a policy") {
			continue
		}
		var l logLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, l)
	}
	return list
}

// wantChanges waits for so many lines about changes and compares them.
func (c configured) wantChanges(t *testing.T, want ...logLine) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d changes in the log", len(want)), func() bool { return len(c.changes(t)) >= len(want) })
	got := c.changes(t)
	if len(got) != len(want) {
		t.Fatalf("logged %+v, want %+v", got, want)
	}
	for i, w := range want {
		g := got[i]
		when := g.Since
		if when.IsZero() {
			when = g.At
		}
		if when.IsZero() != (w.Msg == ownChange) || !when.IsZero() && time.Since(when).Abs() > time.Hour {
			t.Errorf("%q since %v", g.Msg, when)
		}
		if !strings.HasPrefix(g.Msg, w.Msg) {
			t.Errorf("logged %q, want %q", g.Msg, w.Msg)
		}
		w.Msg, w.Since, w.At, w.Policy = g.Msg, g.Since, g.At, "api"
		if g != w {
			t.Errorf("logged %+v, want %+v", g, w)
		}
	}
}

// The newest change wins, and a start is not a change: a daemon that restarts with an older file
// decides like the others and logs so, until it gets SIGHUP.
func TestRestartWithAnOlderFile(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"exact", "leased", "async"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			dir := t.TempDir()
			const ten, twenty = "10 per 10h0m0s (gcra)", "20 per 10h0m0s (gcra)"
			a := startConfigured(t, redis, filepath.Join(dir, "a.yaml"), perHour(10), "--consistency", mode)
			b := startConfigured(t, redis, filepath.Join(dir, "b.yaml"), perHour(10), "--consistency", mode)
			a.take(t, 6)
			wantLimit(t, 10, 4, a, b)
			write(t, a.file, perHour(20))
			wantLimit(t, 20, 14, a, b)
			madeByA := logLine{Level: "INFO", Msg: ownChange, From: ten, To: twenty}
			a.wantChanges(t, madeByA)
			b.wantChanges(t, logLine{Level: "INFO", Msg: byAnother, From: ten, To: twenty})

			b.stop(t)
			b = startConfigured(t, redis, b.file, perHour(10), "--consistency", mode)
			refused := logLine{Level: "WARN", Msg: notInForce, Configured: ten, InForce: twenty}
			b.wantChanges(t, refused)
			wantLimit(t, 20, 14, a, b)
			a.wantChanges(t, madeByA)

			if err := b.cmd.Process.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			madeByB := logLine{Level: "INFO", Msg: ownChange, From: twenty, To: ten}
			b.wantChanges(t, refused, madeByB)
			wantLimit(t, 10, 4, a, b)
			a.wantChanges(t, madeByA, logLine{Level: "INFO", Msg: byAnother, From: twenty, To: ten})

			if err := b.cmd.Process.Signal(syscall.SIGHUP); err != nil { // which changes nothing any more
				t.Fatal(err)
			}
			b.awaitLog(t, "the configuration was reloaded", 2)
			b.wantChanges(t, refused, madeByB)
			wantLimit(t, 10, 4, a, b)
		})
	}
}

// A reload whose limits are in force, as far as is known, needs no Redis: it may be about a
// certificate.
func TestReloadWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	d := startConfigured(t, redis, filepath.Join(t.TempDir(), "weir.yaml"), perHour(10))
	redis.Stop()
	d.take(t, 1)
	if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	d.awaitLog(t, "the configuration was reloaded", 1)
	if text := d.stderr.String(); strings.Contains(text, "the previous one stays in force") {
		t.Error("a reload that changes nothing was put off")
	}
}
