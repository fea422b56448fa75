package connectapi

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/weirlimit/weir"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/gen/weir/v1/weirv1connect"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
)

// TestVerbs calls every verb with the generated client, by every protocol.
func TestVerbs(t *testing.T) {
	for _, how := range transports() {
		t.Run(how.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.auth = apitest.Authenticator(t)
			client, _ := w.start(t, how, withToken(apitest.Alice))
			tour(t, client)
			want := []ruleset.Record{
				{Key: "a", Cost: 30, Client: "alice"},
				{Key: "a", Cost: 71, Client: "alice"},
				{Key: "a", Cost: 1, Client: "alice", Peek: true},
				{Key: "a", Cost: 1, Client: "alice"},
				{Key: "b", Cost: 13, Client: "alice"},
				{Key: "", Cost: 400, Client: "alice"}, // tokens
			}
			var got []ruleset.Record
			for _, r := range w.records {
				if (r.Took <= 0 && r.Took != ruleset.Untimed) || r.Variant == nil {
					t.Errorf("record %+v has no time or variant", r)
				}
				got = append(got, ruleset.Record{Key: r.Key, Cost: r.Cost, Client: r.Client, Peek: r.Peek})
			}
			if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b ruleset.Record) bool {
				return a.Key == b.Key && a.Cost == b.Cost && a.Client == b.Client && a.Peek == b.Peek
			})); diff != "" {
				t.Errorf("observed (-want +got):\n%s", diff)
			}
		})
	}
}

// tour calls every verb once or twice.
func tour(t *testing.T, client weirv1connect.LimiterServiceClient) {
	ctx := context.Background()
	same(t, &weirv1.CheckResponse{Allowed: true, Policy: "default", Limit: 100, Remaining: 70, ResetAfterMs: 300, Reason: "admitted"})(
		client.Check(ctx, &weirv1.CheckRequest{Policy: "default", Key: "a", Cost: proto.Int64(30)}))
	same(t, &weirv1.CheckResponse{Policy: "default", LimitedBy: "default", Limit: 100, Remaining: 70, RetryAfterMs: 10, ResetAfterMs: 300, Reason: "exhausted"})(
		client.Check(ctx, &weirv1.CheckRequest{Policy: "default", Key: "a", Cost: proto.Int64(71)}))
	same(t, &weirv1.CheckResponse{Allowed: true, Policy: "default", Limit: 100, Remaining: 70, ResetAfterMs: 300, Reason: "admitted"})(
		client.Check(ctx, &weirv1.CheckRequest{Policy: "default", Key: "a", Peek: true}))
	same(t, &weirv1.CheckBatchResponse{
		Allowed: []bool{true, false}, LimitedBy: []string{"", "api"}, LimitedByIndex: []uint32{0, 1},
		Reason: []string{"admitted", "too_costly"}, ReasonIndex: []uint32{0, 1},
		Limit: []int64{100, 10}, Remaining: []int64{69, 10}, RetryAfterMs: []int64{0, -1}, ResetAfterMs: []int64{310, 0},
	})(client.CheckBatch(ctx, &weirv1.CheckBatchRequest{
		Policy: []string{"default", "api"}, PolicyIndex: []uint32{0, 1}, Key: []string{"a", "b"}, Cost: []int64{1, 13},
	}))
	held, err := client.Reserve(ctx, &weirv1.ReserveRequest{Policy: "llm", Keys: map[string]string{"user": "a"}, Costs: map[string]int64{"tokens": 400}, TtlMs: 5000})
	must(t, err)
	if !held.Allowed || held.Id == "" || held.ExpiresInMs != 5000 || held.Remaining != 600 {
		t.Errorf("Reserve = %v", held)
	}
	same(t, &weirv1.RenewResponse{Renewed: true, ExpiresInMs: 60_000})(client.Renew(ctx, &weirv1.RenewRequest{Id: held.Id}))
	same(t, &weirv1.CommitResponse{Refunded: 300})(client.Commit(ctx, &weirv1.CommitRequest{Id: held.Id, UsedCosts: map[string]int64{"tokens": 100}}))
	same(t, &weirv1.CancelResponse{Refunded: 300})(client.Cancel(ctx, &weirv1.CancelRequest{Id: held.Id}))
	same(t, &weirv1.RenewResponse{})(client.Renew(ctx, &weirv1.RenewRequest{Id: held.Id}))
}

// same compares the answer of a call.
func same[T proto.Message](t *testing.T, want T) func(T, error) {
	t.Helper()
	return func(got T, err error) {
		t.Helper()
		must(t, err)
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%T (-want +got):\n%s", got, diff)
		}
	}
}

// TestTurn: a response says how long the call waited. Time is virtual, so it is exact.
func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, start := time.Now(), apitest.NewClock().Now() // virtual time begins before instants do
		table, err := memstore.New(memstore.Config{Now: func() weir.Instant { return start.Add(time.Since(began)) }})
		must(t, err)
		w := newWorld(t, table)
		for _, tt := range []struct{ body, want string }{
			{`{"policy":"default","key":"a","cost":100}`, `"allowed":true,"policy":"default","limited_by":"","limit":"100","remaining":"0","retry_after_ms":"0","reset_after_ms":"1000","reason":"admitted"`},
			{`{"policy":"default","key":"a","cost":3,"max_wait_ms":5000}`, `"allowed":true,"policy":"default","limited_by":"","limit":"100","remaining":"0","retry_after_ms":"0","reset_after_ms":"1000","reason":"admitted","delay_ms":"30"`},
			{`{"policy":"default","key":"a","cost":3,"max_wait_ms":29}`, `"allowed":false,"policy":"default","limited_by":"default","limit":"100","remaining":"0","retry_after_ms":"30","reset_after_ms":"1000","reason":"too_late"`},
		} {
			if status, got := w.say(t, "Check", tt.body); status != 200 || got != "{"+tt.want+"}" {
				t.Errorf("%s: %d %s\nwant {%s}", tt.body, status, got, tt.want)
			}
		}
		const request, held = `{"policy":"default","key":"a","cost":7,"max_wait_ms":5000}`, `"reason":"admitted","delay_ms":"70","id":"`
		if status, got := w.say(t, "Reserve", request); status != 200 || !strings.Contains(got, held) {
			t.Errorf("%s: %d %s\nwant %s", request, status, got, held)
		}
		if r := w.records[3]; r.Waited != 70*time.Millisecond || r.Took != 0 {
			t.Errorf("took %v, waited %v", r.Took, r.Waited)
		}
		if r := w.records[1]; r.Waited != 30*time.Millisecond || r.Took != 0 {
			t.Errorf("took %v, waited %v", r.Took, r.Waited)
		}
	})
}

// TestNamespace: a reservation is of use only to the client that made it.
func TestNamespace(t *testing.T) {
	w := newWorld(t, nil)
	w.auth = apitest.Authenticator(t)
	alice, _ := w.start(t, transports()[0], withToken(apitest.Alice))
	bob, _ := w.start(t, transports()[5], withToken(apitest.Bob))
	held, err := alice.Reserve(context.Background(), &weirv1.ReserveRequest{Policy: "default", Key: "a", Cost: proto.Int64(10)})
	must(t, err)
	_, err = bob.Cancel(context.Background(), &weirv1.CancelRequest{Id: held.Id})
	wantError(t, err, connect.CodeInvalidArgument, `"id" is no reservation of this client: it is what reserve returned`)
	_, err = bob.Renew(context.Background(), &weirv1.RenewRequest{Id: held.Id})
	wantError(t, err, connect.CodeInvalidArgument, `"id" is no reservation of this client`)
	same(t, &weirv1.CancelResponse{Refunded: 10})(alice.Cancel(context.Background(), &weirv1.CancelRequest{Id: held.Id}))
}

// wantError checks an error's code and the beginning of its message.
func wantError(t *testing.T, err error, code connect.Code, message string) {
	t.Helper()
	got := (*connect.Error)(nil)
	if e, ok := err.(*connect.Error); ok {
		got = e
	}
	if got == nil || got.Code() != code || !strings.HasPrefix(got.Message(), message) {
		t.Errorf("error is %v, want %v: %s", err, code, message)
	}
}
