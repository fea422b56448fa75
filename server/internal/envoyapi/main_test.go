package envoyapi

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/ruleset"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a service with its rules and a clock that stands still.
type world struct {
	service *Service
	rules   *Rules
	limiter weir.Limiter
	client  *identity.Client
	now     time.Time
	records []ruleset.Record
}

// noon is 40 s into a minute.
var noon = time.Date(2026, 5, 17, 12, 0, 40, 0, time.UTC)

func newWorld(t testing.TB, domains ...Domain) *world {
	t.Helper()
	w := &world{now: noon}
	w.limiter = apitest.Table(t, func() weir.Instant { return weir.Instant(w.now.UnixNano()) })
	w.service = New(Config{
		Limiter: w, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return w.now },
		Observe: func(r *ruleset.Record) { w.records = append(w.records, *r) },
	})
	w.set(t, domains...)
	return w
}

func (w *world) set(t testing.TB, domains ...Domain) {
	t.Helper()
	rules, err := Compile(domains, w.rules)
	must(t, err)
	must(t, w.service.Set(context.Background(), rules))
	w.rules = rules
}

// The world passes calls on to its limiter, which tests replace.
func (w *world) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	return w.limiter.Take(ctx, p, key, cost)
}
func (w *world) Do(ctx context.Context, b *weir.Batch) error { return w.limiter.Do(ctx, b) }
func (w *world) Set(ctx context.Context, old, new *weir.Policy) error {
	return w.limiter.Set(ctx, old, new)
}

func (w *world) ask(r *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	return w.service.ShouldRateLimit(WithCaller(context.Background(), w.rules, &identity.Authenticator{}, w.client), r)
}

// descriptor makes one of "key=value" texts.
func newDescriptor(entries ...string) *rlcommon.RateLimitDescriptor {
	d := &rlcommon.RateLimitDescriptor{}
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		d.Entries = append(d.Entries, &rlcommon.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

// hits gives a descriptor a number of its own.
func hits(n uint64, d *rlcommon.RateLimitDescriptor) *rlcommon.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(n)
	return d
}

// request is for the domain "d".
func request(list ...*rlcommon.RateLimitDescriptor) *rlsv3.RateLimitRequest {
	return &rlsv3.RateLimitRequest{Domain: "d", Descriptors: list}
}

func perMinute(n uint32) *Limit { return &Limit{Unit: Minute, RequestsPerUnit: n} }

// summary returns the overall code and those of descriptors, such as "OK: OK,OVER_LIMIT".
func summary(r *rlsv3.RateLimitResponse) string {
	var list []string
	for _, s := range r.Statuses {
		list = append(list, s.Code.String())
	}
	return r.OverallCode.String() + ": " + strings.Join(list, ",")
}

// want asks and compares codes and remaining.
func (w *world) want(t *testing.T, r *rlsv3.RateLimitRequest, want string, remaining ...uint32) *rlsv3.RateLimitResponse {
	t.Helper()
	got, err := w.ask(r)
	must(t, err)
	if summary(got) != want {
		t.Errorf("codes %q, want %q", summary(got), want)
	}
	for i, n := range remaining {
		if got.Statuses[i].LimitRemaining != n {
			t.Errorf("descriptor %d: %d remaining, want %d", i, got.Statuses[i].LimitRemaining, n)
		}
	}
	return got
}
