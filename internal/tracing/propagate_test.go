package tracing

import (
	"context"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"

	"github.com/weirlimit/weir/internal/tracetest"
)

const (
	traceID  = "4bf92f3577b34da6a3ce929d0e0e4736"
	parentID = "00f067aa0ba902b7"
	traced   = "00-" + traceID + "-" + parentID + "-01"
	untraced = "00-" + traceID + "-" + parentID + "-00"
)

// callers are the ways in which a trace context arrives: HTTP and gRPC.
var callers = map[string]func(ctx context.Context, headers map[string][]string) context.Context{
	"HTTP": func(ctx context.Context, headers map[string][]string) context.Context {
		h := http.Header{}
		for name, values := range headers {
			h[http.CanonicalHeaderKey(name)] = values
		}
		return incoming(ctx, headerValues(h))
	},
	"gRPC": func(ctx context.Context, headers map[string][]string) context.Context {
		md := metadata.MD(headers)
		return incoming(ctx, func(name string) []string {
			return metadata.ValueFromIncomingContext(metadata.NewIncomingContext(ctx, md), name)
		})
	},
}

func TestIncoming(t *testing.T) {
	ids := traceID + "-" + parentID
	tests := []struct {
		name        string
		traceparent []string
		tracestate  []string
		want, state string // want is "" if there is no parent
	}{
		{"sampled", []string{traced}, nil, "01", ""},
		{"not sampled", []string{untraced}, nil, "00", ""},
		{"a state", []string{traced}, []string{"congo=t61rcWkgMzE,rojo=00f067"}, "01", "congo=t61rcWkgMzE,rojo=00f067"},
		{"a state in two lines", []string{traced}, []string{"congo=t61rcWkgMzE", "rojo=00f067"}, "01", "congo=t61rcWkgMzE,rojo=00f067"},
		{"a malformed state is dropped alone", []string{traced}, []string{"congo"}, "01", ""},
		{"a state without a parent", nil, []string{"congo=t61rcWkgMzE"}, "", ""},
		{"a version of the future", []string{"cc-" + ids + "-01-what the future brings"}, nil, "01", ""},
		{"nothing", nil, nil, "", ""},
		{"two parents", []string{traced, traced}, nil, "", ""},
		{"two parents in one line", []string{traced + "," + traced}, nil, "", ""},
		{"version 00 with more", []string{traced + "-more"}, nil, "", ""},
		{"version ff", []string{"ff-" + ids + "-01"}, nil, "", ""},
		{"too short", []string{traced[:54]}, nil, "", ""},
		{"trace of zeros", []string{"00-" + strings.Repeat("0", 32) + "-" + parentID + "-01"}, nil, "", ""},
		{"span of zeros", []string{"00-" + traceID + "-0000000000000000-01"}, nil, "", ""},
		{"capitals", []string{strings.ToUpper(traced)}, nil, "", ""},
		{"not a digit", []string{"00-g" + ids[1:] + "-01"}, nil, "", ""},
	}
	for _, tt := range tests {
		for protocol, caller := range callers {
			t.Run(tt.name+"/"+protocol, func(t *testing.T) {
				headers := map[string][]string{}
				if tt.traceparent != nil {
					headers["traceparent"] = tt.traceparent
				}
				if tt.tracestate != nil {
					headers["tracestate"] = tt.tracestate
				}
				got := trace.SpanContextFromContext(caller(t.Context(), headers))
				if got.IsValid() != (tt.want != "") {
					t.Fatalf("%+v", got)
				}
				if tt.want == "" {
					return
				}
				if got.TraceID().String() != traceID || got.SpanID().String() != parentID || got.TraceFlags().String() != tt.want || got.TraceState().String() != tt.state {
					t.Errorf("%v %v %v %q", got.TraceID(), got.SpanID(), got.TraceFlags(), got.TraceState())
				}
			})
		}
	}
}

// TestSampling: the caller's decision is honoured either way; without one, the configuration decides.
func TestSampling(t *testing.T) {
	const malformed = "00-" + traceID + "-0000000000000000-01"
	for _, tt := range []struct {
		name, header string
		sample       float64
		want         bool
	}{
		{"no parent, none", "", 0, false},
		{"no parent, all", "", 1, true},
		{"the parent is traced", traced, 0, true},
		{"the parent is not", untraced, 1, false},
		{"malformed is no parent", malformed, 1, true},
		{"malformed, none", malformed, 0, false},
		{"malformed, and not sampled", malformed[:53] + "00", 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := tracetest.New(t)
			tracer, end := must(t, Config{Endpoint: c.URL, Sample: &tt.sample})
			ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("traceparent", tt.header, "tracestate", "congo=1"))
			ctx, span := tracer.RPC(ctx, "/a.B/C")
			if span.IsRecording() != tt.want || tracer.SpanOf(ctx).IsRecording() != tt.want {
				t.Errorf("traced: %v, want %v", span.IsRecording(), tt.want)
			}
			_, child := tracer.Child(ctx, "weir.check")
			child.End()
			span.End()
			end()
			if got := len(c.Spans()); got != 0 != tt.want {
				t.Fatalf("%d spans arrived", got)
			}
			if !tt.want {
				return
			}
			got, isOfCaller := c.One("a.B/C"), tt.header == traced
			if (got.Trace == traceID) != isOfCaller || (got.Parent == parentID) != isOfCaller || (got.State == "congo=1") != isOfCaller {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestAPartIsTraced: the ratio applies once, whoever decides: Handler before the SDK, or the SDK behind Relay.
func TestAPartIsTraced(t *testing.T) {
	for _, c := range []Config{{Sample: quarter()}, {}} {
		if c.Sample == nil {
			set(t, map[string]string{"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"})
		}
		c.Endpoint = "http://127.0.0.1:1"
		c.Log = slog.New(slog.DiscardHandler)
		tracer, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		for name, wrap := range map[string]func(http.Handler, func(*http.Request) Call) http.Handler{"Handler": tracer.Handler, "Relay": tracer.Relay} {
			const tries = 20_000
			calls, children := 0, 0
			h := wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				ctx := r.Context()
				if tracer.SpanOf(ctx).IsRecording() {
					calls++
				}
				if _, child := tracer.Child(ctx, "weir.check"); child.IsRecording() {
					children++
				}
			}), func(*http.Request) Call { return Call{Route: "/"} })
			r, w := httptest.NewRequest(http.MethodPost, "/", nil), httptest.NewRecorder()
			for range tries {
				h.ServeHTTP(w, r)
			}
			if part := float64(calls) / tries; math.Abs(part-0.25) > 0.025 || children != calls {
				t.Errorf("%s: %v are traced, %d of %d have a child", name, part, children, calls)
			}
		}
	}
}

func quarter() *float64 {
	part := 0.25
	return &part
}

// TestEarly: what is decided without the SDK. Of the requests without a parent, the ratio is chosen.
func TestEarly(t *testing.T) {
	const malformed = "00-" + traceID + "-0000000000000000-01"
	for _, tt := range []struct {
		name     string
		sampling sampling
		parents  []string
		want     [3]float64 // the parts that the SDK decides, that are skipped and that are chosen
	}{
		{"none", sampling{true, 0}, nil, [3]float64{skipped: 1}},
		{"all", sampling{true, 1}, nil, [3]float64{chosen: 1}},
		{"a quarter", sampling{true, 0.25}, nil, [3]float64{skipped: 0.75, chosen: 0.25}},
		{"a quarter, without parents", sampling{false, 0.25}, nil, [3]float64{skipped: 0.75, chosen: 0.25}},
		{"the parent is traced", sampling{true, 0}, []string{traced}, [3]float64{undecided: 1}},
		{"the parent is not", sampling{true, 1}, []string{untraced}, [3]float64{skipped: 1}},
		{"the parent is not, and does not count", sampling{false, 1}, []string{untraced}, [3]float64{undecided: 1}},
		{"malformed", sampling{true, 0.25}, []string{malformed}, [3]float64{undecided: 1}},
		{"two parents", sampling{true, 1}, []string{untraced, untraced}, [3]float64{undecided: 1}},
		{"too long", sampling{true, 1}, []string{untraced + "-00"}, [3]float64{undecided: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const tries = 20_000
			var got [3]float64
			for range tries {
				got[tt.sampling.early(tt.parents)] += 1.0 / tries
			}
			for v := range got {
				if math.Abs(got[v]-tt.want[v]) > 0.025 {
					t.Errorf("%v, want %v", got, tt.want)
				}
			}
		})
	}
}
