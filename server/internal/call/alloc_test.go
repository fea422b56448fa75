//go:build !race

package call

import (
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/weirlimit/weir/internal/tracing"
	"github.com/weirlimit/weir/ruleset"
)

// TestUntracedDecisionsCostNothing: a check in memory takes no memory, neither without a tracer nor with
// one for a call that is not traced. (The race detector makes pools forget.)
func TestUntracedDecisionsCostNothing(t *testing.T) {
	core, state, _ := newCore(t)
	core.Observe = func(*ruleset.Record) {}
	on, err := tracing.New(tracing.Config{Endpoint: "http://127.0.0.1:1", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	caller, q, policy := Caller{State: state}, &ruleset.Query{Key: "k", Cost: 1}, []byte("p")
	unsampled := metadata.NewIncomingContext(t.Context(), metadata.Pairs("traceparent", "00-"+strings.Repeat("a", 32)+"-"+strings.Repeat("b", 16)+"-00"))
	for name, tracer := range map[string]*tracing.Tracer{"off": nil, "on": on} {
		core.Tracer = tracer
		ctx, _ := tracer.RPC(unsampled, "/a.B/C")
		if n := testing.AllocsPerRun(1000, func() { _, _ = core.Check(ctx, caller, policy, q, false) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
