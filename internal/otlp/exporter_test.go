package otlp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// run starts an exporter that has been given to nobody else, and returns what stops it and
// waits.
func run(t *testing.T, e *Exporter) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func mustNew(t testing.TB, c Config) *Exporter {
	t.Helper()
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestSpansArrive(t *testing.T) {
	c := newCollector(t)
	e := mustNew(t, Config{
		Endpoint: strings.Replace(c.URL, "http://", "http://user:hunter2@", 1), Headers: map[string]string{"x-api-key": "canary"},
		ServiceVersion: "v1.2.3", Attributes: map[string]string{"service.instance.id": "a", "service.name": "not me"},
	})
	stop := run(t, e)

	before := time.Now().UnixNano()
	s := e.Start("POST /v1/check", example)
	s.Str("weir.policy", "old")
	s.Str("weir.policy", "lo\"gin\n<é>")
	s.Str("empty", "")
	s.Str("not text", "a\xffb")
	s.Int("weir.cost", math.MinInt64)
	s.Int("zero", 0)
	s.Bool("weir.allowed", false)
	s.Fail("the store is unavailable")
	header := s.Traceparent()
	s.End()
	s.End()
	s.Str("late", "x")
	stop()

	spans := c.spans()
	if len(spans) != 1 {
		t.Fatalf("%d spans", len(spans))
	}
	got := spans[0]
	if got.TraceID != exampleTrace || *got.ParentSpanID != exampleSpan || got.Name != "POST /v1/check" || string(got.Kind) != "2" {
		t.Errorf("%+v", got)
	}
	if want := "00-" + exampleTrace + "-" + got.SpanID + "-01"; header != want || got.SpanID == exampleSpan {
		t.Errorf("traceparent %s, want %s", header, want)
	}
	if got.Flags != 0x301 {
		t.Errorf("flags %#x", got.Flags)
	}
	if got.Status == nil || string(got.Status.Code) != "2" || got.Status.Message != "the store is unavailable" {
		t.Errorf("status %+v", got.Status)
	}
	want := map[string]any{
		"weir.policy": "lo\"gin\n<é>", "empty": "", "not text": "a\ufffdb", "weir.cost": int64(math.MinInt64), "zero": int64(0), "weir.allowed": false,
	}
	if attributes, _ := values(got.Attributes); !maps.Equal(attributes, want) {
		t.Errorf("attributes %v, want %v", attributes, want)
	}
	start, end := nanos(t, got.Start), nanos(t, got.End)
	if start < before || end < start || end > time.Now().UnixNano() {
		t.Errorf("from %d to %d", start, end)
	}
	wantResource := map[string]any{"service.name": "weir", "service.version": "v1.2.3", "service.instance.id": "a"}
	if b := c.batches[0]; !maps.Equal(b.resource, wantResource) || b.Scope.Name != "github.com/weirlimit/weir" || b.Scope.Version != "v1.2.3" {
		t.Errorf("from %v, %v", b.resource, b.Scope)
	}
	if h := c.headers[0]; h.Get("X-Api-Key") != "canary" || h.Get("Authorization") != "Basic dXNlcjpodW50ZXIy" {
		t.Errorf("headers %v", h)
	}
	if s := e.Stats(); s != (Stats{Sent: 1}) {
		t.Errorf("%+v", s)
	}
}

func nanos(t *testing.T, raw []byte) int64 {
	t.Helper()
	v, err := valueOf("intValue", raw)
	if err != nil {
		t.Fatal(err)
	}
	return v.(int64)
}

func TestSpansAreBounded(t *testing.T) {
	c := newCollector(t)
	e := mustNew(t, Config{Endpoint: c.URL, Ratio: 1})
	stop := run(t, e)
	s := e.Start(strings.Repeat("€", 1000), "")
	for i := range 100 {
		s.Str(fmt.Sprint(i, strings.Repeat("k", 1000)), strings.Repeat("v", 1000))
	}
	s.Fail(strings.Repeat("m", 1000))
	s.End()
	stop()
	got := c.spans()[0]
	if len(got.Name) != 255 || len(got.Attributes) != 16 || got.Dropped != 84 || len(got.Status.Message) != 256 {
		t.Errorf("name %d, %d attributes, %d dropped, message %d", len(got.Name), len(got.Attributes), got.Dropped, len(got.Status.Message))
	}
	for _, a := range got.Attributes {
		if len(a.Key) != 256 || len(a.Value["stringValue"]) != 258 {
			t.Errorf("%d bytes of key, %d of value", len(a.Key), len(a.Value["stringValue"]))
		}
	}
	if got.ParentSpanID != nil || got.Flags != 0x101 {
		t.Errorf("a root has parent %v, flags %#x", got.ParentSpanID, got.Flags)
	}
}

func TestSampling(t *testing.T) {
	const malformed = "00-" + exampleTrace + "-0000000000000000-01"
	tests := []struct {
		name, header string
		ratio        float64
		want         float64 // which part is traced
	}{
		{"no parent, none", "", 0, 0},
		{"no parent, all", "", 1, 1},
		{"no parent, a quarter", "", 0.25, 0.25},
		{"the parent is traced", example, 0, 1},
		{"the parent is not", unsampled, 1, 0},
		{"malformed is no parent", malformed, 1, 1},
		{"malformed, none", malformed, 0, 0},
		{"malformed, a half", malformed, 0.5, 0.5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := mustNew(t, Config{Endpoint: "http://127.0.0.1:1", Ratio: tt.ratio})
			const tries = 20_000
			traced, ids := 0, map[string]bool{}
			for range tries {
				if s := e.Start("x", tt.header); s != nil {
					traced++
					ids[s.TraceID()] = true
					if (s.TraceID() == exampleTrace) != (tt.header == example) {
						t.Fatalf("trace %s", s.TraceID())
					}
				}
			}
			part := float64(traced) / tries
			if math.Abs(part-tt.want) > 0.025 || (tt.want == 0 || tt.want == 1) && part != tt.want {
				t.Errorf("%v are traced, want %v", part, tt.want)
			}
			if tt.header != example && len(ids) != traced {
				t.Errorf("%d traces have %d ids", traced, len(ids))
			}
		})
	}
}

func TestNil(t *testing.T) {
	var e *Exporter
	s := e.Start("x", example)
	if s != nil {
		t.Fatal("a span of nobody")
	}
	s.Str("a", "b")
	s.Int("a", 1)
	s.Bool("a", true)
	s.Fail("x")
	s.End()
	if s.Traceparent() != "" || s.TraceID() != "" || e.Stats() != (Stats{}) || e.String() != "otlp to nobody" {
		t.Error("nothing is something")
	}
	if err := e.Run(context.Background()); err != nil {
		t.Error(err)
	}
}

// script is a collector that answers at once, for tests of time.
type script struct {
	mu      sync.Mutex
	began   time.Time
	answers []*http.Response
	at      []time.Duration // when requests came
	sizes   []int           // and how many spans they had
	takes   time.Duration   // how long an answer takes
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, time.Since(s.began))
	s.sizes = append(s.sizes, strings.Count(string(body), `"spanId"`))
	if s.takes > 0 {
		select {
		case <-time.After(s.takes):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	answer := respond(200, "", "{}")
	if len(s.answers) > 0 {
		answer, s.answers = s.answers[0], s.answers[1:]
	}
	return answer, nil
}

func respond(code int, retryAfter, body string) *http.Response {
	h := http.Header{}
	if retryAfter != "" {
		h.Set("Retry-After", retryAfter)
	}
	return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader(body))}
}

func end(e *Exporter, n int) {
	for range n {
		e.Start("x", example).End()
	}
}

func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{began: time.Now()}
		e := mustNew(t, Config{Endpoint: "http://collector", Transport: s})
		stop := run(t, e)
		time.Sleep(10 * time.Second)
		end(e, 3) // at 10 s
		time.Sleep(500 * time.Millisecond)
		end(e, 4) // they wait for the first
		time.Sleep(5 * time.Second)
		end(e, 512+5) // at 15.5 s: one batch at once, the rest a second later
		synctest.Wait()
		time.Sleep(5 * time.Second)
		end(e, 9) // at 20.5 s
		stop()    // at once
		wantAt := []time.Duration{11 * time.Second, 15500 * time.Millisecond, 16500 * time.Millisecond, 20500 * time.Millisecond}
		if got, want := fmt.Sprint(s.at, s.sizes), fmt.Sprint(wantAt, []int{7, 512, 5, 9}); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if got := e.Stats(); got != (Stats{Sent: 533}) {
			t.Errorf("%+v", got)
		}
	})
}

func TestAFullQueueDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{began: time.Now()}
		e := mustNew(t, Config{Endpoint: "http://collector", Transport: s, QueueSize: 1000})
		end(e, 1500)
		if got := e.Stats(); got != (Stats{Queued: 1000, Dropped: 500}) {
			t.Errorf("%+v", got)
		}
		stop := run(t, e)
		synctest.Wait()
		stop()
		if got := e.Stats(); got != (Stats{Sent: 1000, Dropped: 500}) {
			t.Errorf("%+v", got)
		}
	})
}

func TestTryingAgain(t *testing.T) {
	date := func(after time.Duration) string { // a bubble's time starts at midnight of 2000-01-01, UTC
		return time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC).Add(after).Format(http.TimeFormat)
	}
	const unknown = -time.Second
	tests := []struct {
		name    string
		answers []*http.Response
		waits   []time.Duration // between tries
		want    Stats
	}{
		{"429 with seconds", []*http.Response{respond(429, "7", "")}, []time.Duration{7 * time.Second}, Stats{Sent: 2, Retries: 1}},
		{"503 with a date", []*http.Response{respond(503, date(9*time.Second), "")}, []time.Duration{9 * time.Second}, Stats{Sent: 2, Retries: 1}},
		{"a date in the past", []*http.Response{respond(503, date(-time.Hour), "")}, []time.Duration{0}, Stats{Sent: 2, Retries: 1}},
		{"at once", []*http.Response{respond(503, "0", "")}, []time.Duration{0}, Stats{Sent: 2, Retries: 1}},
		{"without a header", []*http.Response{respond(502, "", ""), respond(504, "soon", "")}, []time.Duration{unknown, unknown}, Stats{Sent: 2, Retries: 2}},
		{"a negative wait", []*http.Response{respond(503, "-5", "")}, []time.Duration{unknown}, Stats{Sent: 2, Retries: 1}},
		{
			"five times",
			[]*http.Response{respond(503, "1", ""), respond(503, "1", ""), respond(503, "1", ""), respond(503, "1", ""), respond(503, "1", "")},
			[]time.Duration{time.Second, time.Second, time.Second, time.Second},
			Stats{Lost: 2, Retries: 4},
		},
		{"too long", []*http.Response{respond(503, "31", "")}, nil, Stats{Lost: 2}},
		{"400 is final", []*http.Response{respond(400, "1", "")}, nil, Stats{Lost: 2}},
		{"500 is final", []*http.Response{respond(500, "1", "")}, nil, Stats{Lost: 2}},
		{"413 is final", []*http.Response{respond(413, "1", "")}, nil, Stats{Lost: 2}},
		{"no redirects", []*http.Response{respond(307, "", "")}, nil, Stats{Lost: 2}},
		{"partly", []*http.Response{respond(200, "", `{"partialSuccess":{"rejectedSpans":"1","errorMessage":"no"}}`)}, nil, Stats{Sent: 1, Rejected: 1}},
		{"partly, as a number", []*http.Response{respond(200, "", `{"partialSuccess":{"rejectedSpans":1}}`)}, nil, Stats{Sent: 1, Rejected: 1}},
		{"more than there were", []*http.Response{respond(200, "", `{"partialSuccess":{"rejectedSpans":"99"}}`)}, nil, Stats{Rejected: 2}},
		{"less than none", []*http.Response{respond(200, "", `{"partialSuccess":{"rejectedSpans":"-9"}}`)}, nil, Stats{Sent: 2}},
		{"taken, with nonsense", []*http.Response{respond(202, "", `<html>`)}, nil, Stats{Sent: 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{began: time.Now(), answers: tt.answers}
				e := mustNew(t, Config{Endpoint: "http://collector", Transport: s})
				stop := run(t, e)
				end(e, 2)
				time.Sleep(3 * time.Minute)
				stop()
				if got := e.Stats(); got != tt.want {
					t.Errorf("%+v, want %+v", got, tt.want)
				}
				if len(s.at) != len(tt.waits)+1 {
					t.Fatalf("%d tries, want %d", len(s.at), len(tt.waits)+1)
				}
				for i, want := range tt.waits {
					got := s.at[i+1] - s.at[i]
					most := time.Second << i
					if want == unknown && (got < most/2 || got > most) || want != unknown && got != want {
						t.Errorf("wait %d is %v, want %v", i, got, want)
					}
				}
			})
		})
	}
}

func TestATimeOutPerRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{began: time.Now(), takes: time.Hour}
		var reported error
		e := mustNew(t, Config{Endpoint: "http://collector", Transport: s, Timeout: 3 * time.Second, OnError: func(err error) { reported = err }})
		stop := run(t, e)
		end(e, 1)
		time.Sleep(time.Second + 3*time.Second - 1)
		synctest.Wait()
		if e.Stats().Lost != 0 {
			t.Error("too early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if got := e.Stats(); got != (Stats{Lost: 1}) || !errors.Is(reported, context.DeadlineExceeded) {
			t.Errorf("%+v, %v", got, reported)
		}
		stop()
	})
}

// Run must end in bounded time, whatever the collector does.
func TestTheEnd(t *testing.T) {
	tests := []struct {
		name  string
		s     *script
		most  time.Duration
		spans int
		want  Stats
	}{
		{"what is left is sent", &script{}, 0, 1500, Stats{Sent: 1500}},
		{"a collector that hangs", &script{takes: time.Hour}, 10 * time.Second, 512, Stats{Lost: 512}},
		{"a collector that hangs, many", &script{takes: time.Hour}, 10 * time.Second, 1500, Stats{Lost: 1024, Queued: 476}},
		{"a collector that wants to wait", &script{answers: []*http.Response{respond(503, "20", "")}}, 0, 600, Stats{Sent: 88, Lost: 512}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.s.began = time.Now()
				e := mustNew(t, Config{Endpoint: "http://collector", Transport: tt.s})
				end(e, tt.spans)
				stop := run(t, e)
				time.Sleep(time.Second) // a first batch is under way, whose time is over before that for the end
				began := time.Now()
				stop()
				if took := time.Since(began); took > tt.most {
					t.Errorf("took %v", took)
				}
				if got := e.Stats(); got != tt.want {
					t.Errorf("%+v, want %+v", got, tt.want)
				}
			})
		})
	}
}

// At the end nothing is tried again, not even at once.
func TestTheEndTriesOnce(t *testing.T) {
	for range 200 { // two things are ready then, and chance must not decide
		synctest.Test(t, func(t *testing.T) {
			s := &script{began: time.Now(), answers: []*http.Response{respond(503, "0", "")}}
			e := mustNew(t, Config{Endpoint: "http://collector", Transport: s})
			end(e, 1)
			stop := run(t, e)
			synctest.Wait()
			stop()
			if got := e.Stats(); got != (Stats{Lost: 1}) {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestErrorsAreToldOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reported := 0
		s := &script{began: time.Now()}
		for range 200 {
			s.answers = append(s.answers, respond(500, "", ""))
		}
		e := mustNew(t, Config{Endpoint: "http://collector", Transport: s, OnError: func(error) { reported++ }})
		stop := run(t, e)
		for range 150 { // one batch every second
			end(e, 1)
			time.Sleep(1100 * time.Millisecond)
		}
		stop()
		if reported != 3 || e.Stats().Lost != 150 {
			t.Errorf("reported %d times of %d lost in 165 s", reported, e.Stats().Lost)
		}
	})
}

func TestRunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := mustNew(t, Config{Endpoint: "http://collector", Transport: &script{began: time.Now()}})
		stop := run(t, e)
		synctest.Wait()
		if err := e.Run(context.Background()); !errors.Is(err, ErrRunning) {
			t.Error(err)
		}
		stop()
		stop = run(t, e) // again is fine
		end(e, 1)
		stop()
		if e.Stats().Sent != 1 {
			t.Errorf("%+v", e.Stats())
		}
	})
}

func TestConcurrently(t *testing.T) {
	c := newCollector(t, answering(503, "0"), answering(429, "0"))
	// On a busy machine, the end may take more than the ten seconds that it has by default.
	e := mustNew(t, Config{Endpoint: c.URL, Ratio: 0.5, QueueSize: 1 << 14, Timeout: 5 * time.Minute})
	stop := run(t, e)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				s := e.Start("x", "")
				s.Int("i", int64(i))
				s.Bool("even", g%2 == 0)
				s.End()
				e.Start("y", example).End()
			}
		})
	}
	wg.Wait()
	for e.Stats().Sent == 0 { // at the end nothing is tried again
		time.Sleep(time.Millisecond)
	}
	stop()
	got := e.Stats()
	if got.Retries != 2 || got.Sent != int64(len(c.spans())) || got.Sent < 4000 || got.Dropped+got.Lost+got.Rejected != 0 {
		t.Errorf("%+v, %d arrived", got, len(c.spans()))
	}
}

func TestSecretsStaySecret(t *testing.T) {
	refused := mustRefuse(t)
	for name, endpoint := range map[string]string{
		"refused":       "http://canary:canary@" + refused + "/canary",
		"not a URL":     "http://canary:canary@[::1/canary",
		"control":       "http://canary:canary@host/\x7fcanary",
		"bad scheme":    "canary://canary:canary@host",
		"no host":       "http://canary@/canary",
		"a query":       "http://host/?canary=canary",
		"a bad port":    "http://canary:canary@host:canary/",
		"not a server":  "http://canary:canary@" + refused + "/%63anary",
		"unknown names": "http://canary:canary@canary-free.invalid/canary",
	} {
		t.Run(name, func(t *testing.T) {
			var reported error
			c := Config{Endpoint: endpoint, Headers: map[string]string{"X-Key": "canary\n", "X-Bad Name": "canary"}, OnError: func(err error) { reported = err }}
			texts := []string{fmt.Sprint(c.Validate())}
			c.Headers = map[string]string{"X-Key": "canary"}
			e, err := New(c)
			if err == nil {
				stop := run(t, e)
				end(e, 1)
				stop()
				if reported == nil {
					t.Error("no error")
				}
			}
			var logged strings.Builder
			slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "config", c, "exporter", e, "err", reported)
			slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "config", c, "exporter", e, "err", reported)
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
				texts = append(texts, fmt.Sprintf(verb+verb+verb, c, &c, e))
			}
			texts = append(texts, fmt.Sprint(err), fmt.Sprint(reported), fmt.Sprintf("%+v", []any{c, e}), logged.String())
			for _, text := range texts {
				text = strings.ReplaceAll(text, "canary-free.invalid", "")
				if strings.Contains(text, "canary") || strings.Contains(text, "63616e617279") {
					t.Errorf("leaks: %s", text)
				}
			}
		})
	}
}

// mustRefuse returns an address at which nobody listens.
func mustRefuse(t *testing.T) string {
	t.Helper()
	c := newCollector(t)
	address := strings.TrimPrefix(c.URL, "http://")
	c.Close()
	return address
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := newCollector(t)
	c := newCollector(t, func(w http.ResponseWriter) {
		w.Header().Set("Location", elsewhere.URL+"/v1/traces")
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	e := mustNew(t, Config{Endpoint: c.URL, Headers: map[string]string{"X-Key": "canary"}})
	stop := run(t, e)
	end(e, 1)
	stop()
	if len(elsewhere.headers) != 0 || e.Stats().Lost != 1 {
		t.Errorf("%d requests elsewhere, %+v", len(elsewhere.headers), e.Stats())
	}
}

func TestValidate(t *testing.T) {
	good := Config{Endpoint: "https://collector.example/otlp", Ratio: 1, Headers: map[string]string{"Authorization": "Bearer x"}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	if e := mustNew(t, good); e.url != "https://collector.example/otlp/v1/traces" {
		t.Error(e.url)
	}
	bad := Config{
		Ratio: math.NaN(), QueueSize: -1, Timeout: -1,
		Headers: map[string]string{"content-type": "x", "": "x", "X-Ok": "a\r\nb: c"},
	}
	err := bad.Validate()
	for _, part := range []string{"Endpoint", "Ratio", "QueueSize", "Timeout", "content-type", `""`, "X-Ok"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s is not in: %v", part, err)
		}
	}
	for _, endpoint := range []string{"", "collector:4318", "ftp://x", "http://", "http://:4318", "http://x?", "http://x#f", "/v1"} {
		if (Config{Endpoint: endpoint}).Validate() == nil {
			t.Errorf("%q is taken", endpoint)
		}
	}
	for _, ratio := range []float64{-0.1, 1.1, math.Inf(1)} {
		if (Config{Endpoint: "http://x", Ratio: ratio}).Validate() == nil {
			t.Errorf("ratio %v is taken", ratio)
		}
	}
}

func TestWhatIsNotTracedCostsNothing(t *testing.T) {
	never := mustNew(t, Config{Endpoint: "http://x"})
	seldom := mustNew(t, Config{Endpoint: "http://x", Ratio: 1e-12})
	for name, start := range map[string]func() *Span{
		"no exporter":   func() *Span { return (*Exporter)(nil).Start("x", example) },
		"ratio 0":       func() *Span { return never.Start("x", "") },
		"not by chance": func() *Span { return seldom.Start("x", "") },
		"parent says":   func() *Span { return seldom.Start("x", unsampled) },
	} {
		if n := testing.AllocsPerRun(100, func() {
			s := start()
			s.Str("a", "b")
			s.Int("c", 1)
			s.End()
			_ = s.Traceparent()
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkStart(b *testing.B) {
	seldom := mustNew(b, Config{Endpoint: "http://x", Ratio: 1e-12})
	never := mustNew(b, Config{Endpoint: "http://x"})
	for _, bb := range []struct {
		name, header string
		e            *Exporter
	}{
		{"no exporter", example, nil},
		{"ratio 0", "", never},
		{"not by chance", "", seldom},
		{"parent says", unsampled, seldom},
		{"traced", example, never},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s := bb.e.Start("x", bb.header)
				s.Str("a", "b")
				s.Int("c", 1)
				s.End()
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	e := mustNew(b, Config{Endpoint: "http://x"})
	var batch []*Span
	for range batchSize {
		s := e.Start("POST /v1/check", example)
		s.Str("weir.policy", "login")
		s.Int("weir.cost", 1)
		batch = append(batch, s)
	}
	for b.Loop() {
		b.SetBytes(int64(len(e.encode(batch))))
	}
}
