package httpapi

import (
	"bytes"
	"context"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// golden compares got with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got), go test -update writes it:\n%s", file, diff)
	}
}

// start is when the clocks of these tests stand still.
var start = weir.InstantOf(time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC))

func frozenTable(t *testing.T) *memstore.Table {
	t.Helper()
	table, err := memstore.New(memstore.Config{Now: func() weir.Instant { return start }})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func policy(t *testing.T, name string, limits ...weir.Limit) *weir.Policy {
	t.Helper()
	p, err := weir.NewPolicy(name, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// config serves the policies "default", "api" with two limits and "slots", which
// only reservations can take.
func config(t *testing.T, l weir.Limiter) Config {
	t.Helper()
	second := weir.Every(time.Second)
	return Config{
		Limiter: l,
		Policies: []*weir.Policy{
			policy(t, "default", weir.Limit{Rate: 100, Per: second, Burst: 100}),
			policy(t, "api", weir.Limit{Rate: 3, Per: second, Burst: 10}, weir.Limit{Name: "daily", Rate: 12, Per: weir.Calendar(weir.Day, nil)}),
			policy(t, "slots", weir.Limit{Rate: 2, Algorithm: weir.Concurrency}),
		},
		Log:     slog.New(slog.DiscardHandler),
		Ready:   func() bool { return true },
		Version: "v0.0.0-test",
	}
}

// serve answers one request that names loopback as its host.
func serve(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://localhost:8080"+path, strings.NewReader(body))
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// scripted is a limiter that answers from its fields and counts how often it is
// asked.
type scripted struct {
	weir.Limiter // nil: other methods are not called
	decision     weir.Decision
	err          error
	calls        int
}

func (s *scripted) Take(context.Context, *weir.Policy, string, int64) (weir.Decision, error) {
	s.calls++
	return s.decision, s.err
}

func (s *scripted) Do(_ context.Context, b *weir.Batch) error {
	s.calls++
	b.Decisions = []weir.Decision{s.decision}
	return s.err
}

// post sends body over a real connection and returns the status and the body.
func post(t *testing.T, client *http.Client, url, body string) (int, []byte) {
	t.Helper()
	resp, err := client.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := io.Copy(&b, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b.Bytes()
}
