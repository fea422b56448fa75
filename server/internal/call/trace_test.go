package call

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/tracetest"
	"github.com/weirlimit/weir/internal/tracing"
	"github.com/weirlimit/weir/ruleset"
)

// TestSpansOfDecisions: each operation of the store has a span in that of the call, with names from the
// configuration and no keys.
func TestSpansOfDecisions(t *testing.T) {
	c := tracetest.New(t)
	core, state, _ := newCore(t)
	always := 1.0
	tracer, err := tracing.New(tracing.Config{Endpoint: c.URL, Sample: &always, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	tracer.Start()
	core.Tracer = tracer
	ctx, span := tracer.RPC(t.Context(), "/a.B/C")
	caller := Caller{State: state}
	query := func(cost int64) *ruleset.Query { return &ruleset.Query{Key: "CANARY", Cost: cost} }

	for _, cost := range []int64{10, 1} { // admitted, refused
		if _, err := core.Check(ctx, caller, []byte("p"), query(cost), false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := core.Check(ctx, caller, []byte("slots"), query(1), false); err == nil { // the caller's mistake
		t.Fatal("a check took a slot")
	}
	rule, bad := caller.Rule([]byte("p"))
	if bad != nil {
		t.Fatal(bad)
	}
	if _, err := core.CheckBatch(ctx, caller, Each, []ruleset.Item{{Rule: rule, Query: *query(1)}, {Rule: rule, Query: *query(1)}}, nil); err != nil {
		t.Fatal(err)
	}
	_, ticket, bad := core.Reserve(ctx, caller, []byte("slots"), query(1), time.Minute)
	if bad != nil {
		t.Fatal(bad)
	}
	if _, err := core.Renew(ctx, caller, ticket.String(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := core.Settle(ctx, caller, ticket.String(), ruleset.Used{All: true}); err != nil {
		t.Fatal(err)
	}
	span.End()
	tracer.Shutdown(context.Background())

	const want = `INTERNAL weir.check weir.allowed=false weir.policy=p weir.reason=exhausted
INTERNAL weir.check weir.allowed=true weir.policy=p weir.reason=admitted
INTERNAL weir.check weir.policy=slots
INTERNAL weir.check_batch weir.batch.size=2
INTERNAL weir.renew
INTERNAL weir.reserve weir.allowed=true weir.policy=slots weir.reason=admitted
INTERNAL weir.settle
SERVER a.B/C rpc.method=a.B/C rpc.system.name=grpc`
	if got := c.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, s := range c.Spans() {
		if s.Kind == "INTERNAL" && s.Parent != c.One("a.B/C").ID {
			t.Errorf("the parent of %v is %s", s, s.Parent)
		}
	}
	if c.Contains("CANARY") {
		t.Error("a key is in a span")
	}
}
