package otlp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

const (
	batchSize = 512
	interval  = time.Second
)

// Exporter sends spans to a collector. Its methods may be called at the same time. A nil
// one traces nothing.
type Exporter struct {
	// Set by New.
	name     string // of the collector, without secrets
	url      string
	header   http.Header
	resource resource
	scope    scope
	sampled  uint64 // of 2^63 roots, so many are traced
	timeout  time.Duration
	client   *http.Client
	onError  func(error)

	queue   chan *Span // End sends and never waits; Run receives
	running atomic.Bool

	dropped, sent, lost, rejected, retries atomic.Int64

	reported time.Time // when onError was called last; Run's alone
}

// New returns an exporter that sends once Run is called.
func New(c Config) (*Exporter, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil {
		return nil, errors.New("otlp: Endpoint: not a URL") // which Validate has refused; err would repeat it
	}
	header := http.Header{}
	for name, value := range c.Headers {
		header.Set(name, value)
	}
	header.Set("Content-Type", "application/json")
	transport := c.Transport
	if transport == nil {
		transport = newTransport()
	}
	return &Exporter{
		name:     host(c.Endpoint),
		url:      u.JoinPath("v1", "traces").String(),
		header:   header,
		resource: newResource(c),
		scope:    scope{Name: "github.com/weirlimit/weir", Version: c.ServiceVersion},
		sampled:  uint64(math.Ldexp(c.Ratio, 63)),
		timeout:  cmp.Or(c.Timeout, 10*time.Second),
		client: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		onError: c.OnError,
		queue:   make(chan *Span, cmp.Or(c.QueueSize, 2048)),
	}, nil
}

func newTransport() *http.Transport {
	if t, ok := http.DefaultTransport.(*http.Transport); ok {
		return t.Clone()
	}
	return &http.Transport{Proxy: http.ProxyFromEnvironment}
}

// String tells the host.
func (e *Exporter) String() string {
	if e == nil {
		return "otlp to nobody"
	}
	return "otlp to " + e.name
}

// Format prints String for every verb, because others would show the fields.
func (e *Exporter) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, e.String()) }

// Stats is what became of spans.
type Stats struct {
	Queued   int   // wait to be sent
	Sent     int64 // the collector has them
	Dropped  int64 // met a full queue
	Lost     int64 // of batches that the collector did not take
	Rejected int64 // the collector took the batch without them
	Retries  int64 // batches sent again
}

// Stats returns the figures since New.
func (e *Exporter) Stats() Stats {
	if e == nil {
		return Stats{}
	}
	return Stats{
		Queued: len(e.queue), Sent: e.sent.Load(), Dropped: e.dropped.Load(), Lost: e.lost.Load(),
		Rejected: e.rejected.Load(), Retries: e.retries.Load(),
	}
}

// ErrRunning is the error of a second Run while the first goes on.
var ErrRunning = errors.New("otlp: running already")

// Run sends spans until ctx ends, and then for at most Config.Timeout what is left. Spans
// that end later wait for the next Run. Of a nil Exporter it returns at once.
func (e *Exporter) Run(ctx context.Context) error {
	if e == nil {
		return nil
	}
	if !e.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer e.running.Store(false)
	defer e.client.CloseIdleConnections()

	work, stop := outlive(ctx, e.timeout)
	defer stop()
	for ctx.Err() == nil {
		e.deliver(ctx, work, e.collect(ctx))
	}
	for work.Err() == nil {
		batch := e.fill(nil)
		if len(batch) == 0 {
			break
		}
		e.deliver(ctx, work, batch) // once: there is no time to try again
	}
	return nil
}

// outlive returns a context that ends d after ctx has, or when stop is called.
func outlive(ctx context.Context, d time.Duration) (work context.Context, stop func()) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	quit := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-work.Done():
		}
	})
	return work, func() { quit(); cancel() }
}

// collect waits for a span, and then for the batch to be full or old enough. When ctx
// ends it returns what it has.
func (e *Exporter) collect(ctx context.Context) (batch []*Span) {
	select {
	case s := <-e.queue:
		batch = append(batch, s)
	case <-ctx.Done():
		return nil
	}
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for len(batch) < batchSize {
		select {
		case s := <-e.queue:
			batch = append(batch, s)
		case <-timer.C:
			return batch
		case <-ctx.Done():
			return e.fill(batch)
		}
	}
	return batch
}

// fill adds what is in the queue to a batch, without waiting.
func (e *Exporter) fill(batch []*Span) []*Span {
	for len(batch) < batchSize {
		select {
		case s := <-e.queue:
			batch = append(batch, s)
		default:
			return batch
		}
	}
	return batch
}

// deliver sends a batch and counts what became of it. Waits between tries end with ctx,
// requests with work.
func (e *Exporter) deliver(ctx, work context.Context, batch []*Span) {
	if len(batch) == 0 {
		return
	}
	n := int64(len(batch))
	rejected, err := e.send(ctx, work, e.encode(batch))
	if err != nil {
		e.lost.Add(n)
		e.tell(fmt.Errorf("otlp: %d spans for %s are lost: %w", n, e.name, err))
		return
	}
	rejected = min(max(0, rejected), n)
	e.rejected.Add(rejected)
	e.sent.Add(n - rejected)
}

// tell calls onError unless it was called within a minute.
func (e *Exporter) tell(err error) {
	if e.onError == nil || (!e.reported.IsZero() && time.Since(e.reported) < time.Minute) {
		return
	}
	e.reported = time.Now()
	e.onError(err)
}
