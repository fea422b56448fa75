package tracing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/tracetest"
)

// script is a transport that answers by a plan, for tests of time.
type script struct {
	began  time.Time
	takes  time.Duration // how long an answer takes; the request's context ends it
	answer string        // of 200

	mu      sync.Mutex // guards the fields below
	err     error      // instead of answers
	answers []int      // the statuses of the next answers; then it is 200
	at      []time.Duration
	sizes   []int // how many spans came
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var batch collectorpb.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &batch); err != nil {
		return nil, err
	}
	status := s.note(len(batch.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()))
	if s.takes > 0 {
		timer := time.NewTimer(s.takes)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	if err := s.error(); err != nil {
		return nil, err
	}
	answer := s.answer
	if status != http.StatusOK {
		answer = "CANARY"
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Location": {"http://elsewhere.example/"}}, Body: io.NopCloser(strings.NewReader(answer)), Request: r}, nil
}

// note records a request and returns the status of its answer.
func (s *script) note(size int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.sizes = append(s.at, time.Since(s.began)), append(s.sizes, size)
	if len(s.answers) == 0 {
		return http.StatusOK
	}
	status := s.answers[0]
	s.answers = s.answers[1:]
	return status
}

func (s *script) error() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *script) setError(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *script) came() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.at, s.sizes)
}

// started returns a tracer of a script, what it logs, and what ends n spans.
func (s *script) started(t *testing.T) (*Tracer, *logged, func(n int)) {
	t.Helper()
	s.began = time.Now()
	out := &logged{}
	tracer, err := New(Config{Endpoint: "http://user:CANARY@collector.example/CANARY", Headers: map[string]string{"x-key": "CANARY"}, Sample: always, Log: logTo(out), transport: s})
	if err != nil {
		t.Fatal(err)
	}
	tracer.Start()
	return tracer, out, func(n int) {
		for range n {
			_, span := tracer.RPC(context.Background(), "/a.B/C")
			span.End()
		}
	}
}

func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		tracer, _, spans := s.started(t)
		spans(3)
		time.Sleep(5 * time.Second)
		spans(512 + 5) // one batch at once, the rest five seconds later
		synctest.Wait()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		spans(9)
		tracer.Shutdown(context.Background()) // at once
		if got, want := s.came(), fmt.Sprint([]time.Duration{5 * time.Second, 5 * time.Second, 10 * time.Second, 10 * time.Second}, []int{3, 512, 5, 9}); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// TestAFullQueueDrops: a collector that does not answer costs spans, and never time.
func TestAFullQueueDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{takes: 8 * time.Second}
		tracer, _, spans := s.started(t)
		spans(512)
		synctest.Wait() // the first batch is in flight
		began := time.Now()
		spans(5000)
		if took := time.Since(began); took != 0 {
			t.Errorf("spans waited %v for the collector", took)
		}
		tracer.Shutdown(context.Background())
		sent := 0
		for _, n := range s.sizes {
			sent += n
		}
		if sent != 512+2048 || slices.Max(s.sizes) > 512 {
			t.Errorf("%v were sent, want the first batch and a queue of 2,048", s.sizes)
		}
	})
}

// TestLosses: what is sent again, what is not, and what the log says of it.
func TestLosses(t *testing.T) {
	for _, tt := range []struct {
		name     string
		s        *script
		requests int
		reason   string // "" if nothing was lost
	}{
		{"429 and 503 are tried again", &script{answers: []int{429, 503}}, 3, ""},
		{"400 is final", &script{answers: []int{400}}, 1, "the collector answered 400 Bad Request"},
		{"401 is final", &script{answers: []int{401}}, 1, "the collector answered 401 Unauthorized"},
		{"500 is final", &script{answers: []int{500}}, 1, "the collector answered 500 Internal Server Error"},
		{"redirects are not followed", &script{answers: []int{307}}, 1, "the collector answered 307 Temporary Redirect"},
		{"a part is rejected", &script{answer: rejectTwo}, 1, "the collector rejected some of a batch"},
		{"an answer that cannot be read", &script{answer: "\xff\xff"}, 1, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tracer, out, spans := tt.s.started(t)
				spans(2)
				time.Sleep(2 * time.Minute)
				tracer.Shutdown(context.Background())
				if len(tt.s.at) != tt.requests {
					t.Errorf("%d requests, want %d", len(tt.s.at), tt.requests)
				}
				want := ""
				if tt.reason != "" {
					want = fmt.Sprintf("level=WARN msg=\"spans are lost\" collector=http://***@collector.example spans=2 reason=%q\n", tt.reason)
				}
				if got := out.String(); got != want {
					t.Errorf("logged %s, want %s", got, want)
				}
			})
		})
	}
}

// rejectTwo is an answer by which two spans were not taken.
var rejectTwo = func() string {
	answer, err := proto.Marshal(&collectorpb.ExportTraceServiceResponse{PartialSuccess: &collectorpb.ExportTracePartialSuccess{RejectedSpans: 2, ErrorMessage: "CANARY"}})
	if err != nil {
		panic(err)
	}
	return string(answer)
}()

// TestRetryAfter: in both forms of the header.
func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-5": 0, "soon": 0, "0": 0,
		now.Add(9 * time.Second).Format(http.TimeFormat): 9 * time.Second,
		now.Add(-time.Hour).Format(http.TimeFormat):      0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}

// TestAnOutageOfTheCollector: while it cannot be reached, the batch is tried again for 30 seconds.
func TestAnOutageOfTheCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{err: errors.New("connection refused")}
		tracer, out, spans := s.started(t)
		spans(2)
		time.Sleep(5*time.Second + 10*time.Second)
		synctest.Wait()
		s.setError(nil) // it is back
		time.Sleep(30 * time.Second)
		tracer.Shutdown(context.Background())
		if n := len(s.at); n < 3 || out.String() != "" {
			t.Errorf("%d tries, logged %s", n, out)
		}
	})
}

// TestRetriesEnd: a batch that is never taken is lost after 30 seconds, and the next one is tried.
func TestRetriesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		for range 1000 {
			s.answers = append(s.answers, http.StatusServiceUnavailable)
		}
		tracer, out, spans := s.started(t)
		spans(1)
		time.Sleep(5*time.Second + 31*time.Second)
		synctest.Wait()
		if got := out.String(); !strings.Contains(got, "503 Service Unavailable") || out.lines() != 1 {
			t.Errorf("logged %s", got)
		}
		if n := len(s.at); n < 4 || n > 12 {
			t.Errorf("%d tries in 30 s", n)
		}
		tracer.Shutdown(canceled())
	})
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestLossesAreLoggedOnceAMinute: an outage of two and a half minutes is three lines, with all spans in
// them.
func TestLossesAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		for range 100 {
			s.answers = append(s.answers, http.StatusBadRequest)
		}
		tracer, out, spans := s.started(t)
		for range 30 { // a batch in each five seconds
			spans(2)
			time.Sleep(5 * time.Second)
			synctest.Wait()
		}
		if out.lines() != 3 {
			t.Errorf("%d lines", out.lines())
		}
		tracer.Shutdown(context.Background())
		logged := 0
		for line := range strings.Lines(out.String()) {
			var n int
			if _, err := fmt.Sscanf(line[strings.Index(line, "spans="):], "spans=%d", &n); err != nil {
				t.Fatal(err)
			}
			logged += n
		}
		if logged != 60 {
			t.Errorf("%d spans in\n%s", logged, out)
		}
	})
}

// TestTheEnd: Shutdown ends in bounded time, whatever the collector does, and leaves no goroutine (the
// bubble would not end).
func TestTheEnd(t *testing.T) {
	for _, tt := range []struct {
		name  string
		s     *script
		spans int
		most  time.Duration
		lost  bool
	}{
		{"what is left is sent", &script{}, 1500, 0, false},
		{"a slow collector", &script{takes: 500 * time.Millisecond}, 1500, 3 * time.Second, false},
		{"a collector that hangs", &script{takes: time.Hour}, 1500, 3 * time.Second, true},
		{"a collector that wants to wait", &script{answers: []int{503}}, 10, 0, true},
		{"no collector", &script{err: errors.New("connection refused")}, 1500, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tracer, out, spans := tt.s.started(t)
				spans(tt.spans)
				synctest.Wait()
				ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
				defer cancel()
				began := time.Now()
				tracer.Shutdown(ctx)
				if took := time.Since(began); took > tt.most {
					t.Errorf("took %v", took)
				}
				if lost := strings.Contains(out.String(), "spans are lost"); lost != tt.lost {
					t.Errorf("logged %s", out)
				}
				spans(1) // too late, and no harm
			})
		})
	}
}

// TestSecretsStaySecret: what goes wrong is logged without the endpoint's user, password and path, the
// headers, and what the collector answers.
func TestSecretsStaySecret(t *testing.T) {
	secretive := &url.Error{Op: "Post", URL: "http://collector.example/CANARY", Err: errors.New("connection refused")}
	for _, s := range []*script{{answers: []int{400}}, {answers: []int{503}}, {err: secretive}, {takes: time.Hour}} {
		synctest.Test(t, func(t *testing.T) {
			tracer, out, spans := s.started(t)
			spans(1)
			time.Sleep(10 * time.Second)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			tracer.Shutdown(ctx)
			if strings.Contains(out.String(), "CANARY") || len(s.at) == 0 {
				t.Errorf("%d requests, logged %s", len(s.at), out)
			}
		})
	}
}

// TestRedirectsAreNotFollowed: also not by the real client, whose headers are for the collector alone.
func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := tracetest.New(t)
	c := tracetest.New(t, func(w http.ResponseWriter) {
		w.Header().Set("Location", elsewhere.URL+"/v1/traces")
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	tracer, end := must(t, Config{Endpoint: c.URL, Headers: map[string]string{"X-Key": "canary"}, Sample: always})
	_, span := tracer.RPC(t.Context(), "/a.B/C")
	span.End()
	end()
	if len(elsewhere.Requests()) != 0 || len(c.Requests()) != 1 {
		t.Errorf("%d requests elsewhere", len(elsewhere.Requests()))
	}
}

// TestAnUnreachableCollector: nothing listens.
func TestAnUnreachableCollector(t *testing.T) {
	c := tracetest.New(t)
	c.Close()
	out := &logged{}
	tracer, end := must(t, Config{Endpoint: c.URL, Sample: always, Log: logTo(out)})
	for range 1000 {
		_, span := tracer.RPC(t.Context(), "/a.B/C")
		span.End()
	}
	end()
	if n := out.lines(); n < 1 || n > 2 || !strings.Contains(out.String(), "refused") {
		t.Errorf("logged %s", out)
	}
}
