package adminapi

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/golden"
	"github.com/weirlimit/weir/ruleset"
)

// stories are decisions of all kinds.
func stories(d *daemon) []ruleset.Record {
	ip := []ruleset.Attribute{{Name: "ip", Value: "192.0.2.1"}}
	list := []ruleset.Record{
		d.check("api", ruleset.Query{Key: "alice", Cost: 20, Keys: ip}),
		d.check("api", ruleset.Query{Key: "alice", Cost: 1, Keys: ip}),
		d.check("api", ruleset.Query{Key: "partner-1", Cost: 40, Keys: ip}),
		d.check("llm", ruleset.Query{Key: "line\r\ndata: {}\n\n\u2028", Costs: []ruleset.Cost{{Unit: "tokens", Amount: 90_001}}}),
	}
	list[3].Client = ""
	return list
}

// recordEvents returns all that a stream says until there are no more decisions.
func recordEvents(d *daemon, query string) string {
	for _, r := range stories(d) {
		d.records <- r
	}
	close(d.records)
	w := d.send("GET /admin/v1/events" + query)
	if got := w.Header().Get("Content-Type"); got != "text/event-stream" {
		d.t.Errorf("Content-Type = %q", got)
	}
	if got := w.Header().Get("Cache-Control"); got != "no-store" {
		d.t.Errorf("Cache-Control = %q", got)
	}
	if d.left != 1 {
		d.t.Errorf("cancel was called %d times", d.left)
	}
	return w.Body.String()
}

func TestEvents(t *testing.T) {
	frozen(t, func(t *testing.T) {
		var got strings.Builder
		for _, query := range []string{"", "?policy=llm", "?denied=true", "?policy=api&denied=true", "?denied=false&policy=api"} {
			d := newDaemon(t)
			d.lost = 3
			got.WriteString("> " + query + "\n" + recordEvents(d, query))
		}
		golden.Check(t, "testdata/events.golden", []byte(got.String()))
	})
}

// A stream that has nothing to tell says that it lives, and ends when its reader leaves.
func TestKeepAlive(t *testing.T) {
	frozen(t, func(t *testing.T) {
		d := newDaemon(t)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
		defer cancel()
		w := httptest.NewRecorder()
		d.http.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/admin/v1/events", nil))
		if want := ": open\n\n" + strings.Repeat(": keep-alive\n\n", 3); w.Body.String() != want {
			t.Errorf("after 50 s: %q, want %q", w.Body, want)
		}
		if passed := time.Since(noon); passed != 50*time.Second || d.left != 1 {
			t.Errorf("it ended after %v, and cancel was called %d times", passed, d.left)
		}
	})
}

// Over a real connection events arrive at once, outlive the server's deadlines, and end
// with the connection.
func TestEventsOverAConnection(t *testing.T) {
	d := newDaemon(t).guarded()
	srv := httptest.NewUnstartedServer(d.http)
	srv.Config.ReadTimeout, srv.Config.WriteTimeout = 500*time.Millisecond, 500*time.Millisecond
	srv.Start()
	defer srv.Close()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	req, err := http.NewRequestWithContext(ctx, "GET", srv.URL+"/admin/v1/events?policy=api", nil)
	d.must(err)
	req.Header.Set("Authorization", "Bearer "+readToken)
	resp, err := srv.Client().Do(req)
	d.must(err)
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	wantLine(t, lines, ": open")
	list := stories(d)
	for i := range 4 {
		d.records <- list[0]
		wantLine(t, lines, `data: {"time":"20`)
		if i < 2 {
			time.Sleep(600 * time.Millisecond) // beyond both deadlines
		}
	}
	leave()
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("the stream ended by itself")
	}
	for d.leftBy() == 0 {
		time.Sleep(time.Millisecond)
	}
}

func (d *daemon) leftBy() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.left
}

// wantLine reads a line that is not empty.
func wantLine(t *testing.T, r *bufio.Reader, prefix string) {
	t.Helper()
	line := "\n"
	for line == "\n" {
		var err error
		if line, err = r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.HasPrefix(line, prefix) {
		t.Fatalf("%q, want it to begin with %q", line, prefix)
	}
}

// A reader who does not read is left after a while.
func TestSlowReader(t *testing.T) {
	frozen(t, func(t *testing.T) {
		d := newDaemon(t)
		for _, r := range stories(d) {
			d.records <- r
		}
		w := &stuck{header: http.Header{}}
		d.http.ServeHTTP(w, httptest.NewRequest("GET", "/admin/v1/events", nil))
		if passed := time.Since(noon); passed != patience || d.left != 1 {
			t.Errorf("it ended after %v, and cancel was called %d times", passed, d.left)
		}
	})
}

// stuck is a connection whose other end stops to read after the first line.
type stuck struct {
	header   http.Header
	deadline time.Time
	writes   int
}

func (s *stuck) Header() http.Header                { return s.header }
func (s *stuck) WriteHeader(int)                    {}
func (s *stuck) FlushError() error                  { return nil }
func (s *stuck) SetWriteDeadline(t time.Time) error { s.deadline = t; return nil }

func (s *stuck) Write(p []byte) (int, error) {
	if s.writes++; s.writes == 1 {
		return len(p), nil
	}
	if s.deadline.IsZero() {
		select {}
	}
	time.Sleep(time.Until(s.deadline))
	return 0, context.DeadlineExceeded
}
