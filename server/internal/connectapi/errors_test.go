package connectapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/weirlimit/weir"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/gen/weir/v1/weirv1connect"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/ruleset"
)

type sent func(context.Context, weirv1connect.LimiterServiceClient) error

func checks(req *weirv1.CheckRequest) sent {
	return func(ctx context.Context, c weirv1connect.LimiterServiceClient) error {
		_, err := c.Check(ctx, req)
		return err
	}
}

func batches(req *weirv1.CheckBatchRequest) sent {
	return func(ctx context.Context, c weirv1connect.LimiterServiceClient) error {
		_, err := c.CheckBatch(ctx, req)
		return err
	}
}

func reserves(req *weirv1.ReserveRequest) sent {
	return func(ctx context.Context, c weirv1connect.LimiterServiceClient) error {
		_, err := c.Reserve(ctx, req)
		return err
	}
}

func commits(req *weirv1.CommitRequest) sent {
	return func(ctx context.Context, c weirv1connect.LimiterServiceClient) error {
		_, err := c.Commit(ctx, req)
		return err
	}
}

// many returns n entries of a map.
func many[T any](n int, value T) map[string]T {
	m := map[string]T{}
	for i := range n {
		m[fmt.Sprint("x", i)] = value
	}
	return m
}

type badCall struct {
	name    string
	call    sent
	code    connect.Code
	message string
}

func badCalls() []badCall {
	const bad = connect.CodeInvalidArgument
	long := strings.Repeat("k", 257)
	user := map[string]string{"user": "a"}
	return []badCall{
		{"no policy", checks(&weirv1.CheckRequest{Key: "a"}), bad, `"policy" is missing: the name of a policy`},
		{"no key", checks(&weirv1.CheckRequest{Policy: "default"}), bad, `"key" is missing: the rate-limit key, such as a user's name`},
		{"long key", checks(&weirv1.CheckRequest{Policy: "default", Key: long}), bad, `"key" has 257 bytes: at most 256 fit; hash longer ones`},
		{"negative cost", checks(&weirv1.CheckRequest{Policy: "default", Key: "a", Cost: proto.Int64(-1)}), bad, `"cost" must not be negative`},
		{"great cost", checks(&weirv1.CheckRequest{Policy: "default", Key: "a", Cost: proto.Int64(1 << 31)}), bad, `"cost" must be at most 2147483647`},
		{"long wait", checks(&weirv1.CheckRequest{Policy: "default", Key: "a", MaxWaitMs: 10_001}), bad, `"max_wait_ms" must be at most 10000`},
		{"endless wait", checks(&weirv1.CheckRequest{Policy: "default", Key: "a", MaxWaitMs: 1<<63 - 1}), bad, `"max_wait_ms" must be at most 10000`},
		{"negative wait", checks(&weirv1.CheckRequest{Policy: "default", Key: "a", MaxWaitMs: -1}), bad, `"max_wait_ms" must not be negative`},
		{"attribute lacks", checks(&weirv1.CheckRequest{Policy: "llm", Key: "a"}), bad, `"keys" lacks "user", by which the policy limits`},
		{"long attribute", checks(&weirv1.CheckRequest{Policy: "default", Key: "a", Keys: map[string]string{"ip": long}}), bad, `a value of "keys" has 257 bytes`},
		{"attributes", checks(&weirv1.CheckRequest{Policy: "default", Key: "a", Keys: many(17, "x")}), bad, `"keys" may have 16 entries`},
		{"units", checks(&weirv1.CheckRequest{Policy: "default", Key: "a", Costs: many(17, int64(1))}), bad, `"costs" may have 16 entries`},
		{"unknown unit", checks(&weirv1.CheckRequest{Policy: "llm", Keys: user, Costs: map[string]int64{"b": 1, "a": 1, "c": 1}}), bad, `"cost" has the unit "a", which no limit of the policy counts`},
		{"negative unit", checks(&weirv1.CheckRequest{Policy: "llm", Keys: user, Costs: map[string]int64{"tokens": -1}}), bad, `a value of "costs" must not be negative`},
		{"requests twice", checks(&weirv1.CheckRequest{Policy: "default", Key: "a", Cost: proto.Int64(1), Costs: map[string]int64{"requests": 1}}), bad, `"cost" is in "requests" as a plain number, and has that unit besides`},
		{"unknown class", checks(&weirv1.CheckRequest{Policy: "jobs", Key: "a", Class: "urgent"}), bad, `"class" is "urgent", which the policy does not have; it has realtime, backfill`},
		{"class without classes", checks(&weirv1.CheckRequest{Policy: "default", Key: "a", Class: "realtime"}), bad, `"class" is "realtime", and the policy has no classes`},
		{"long unknown class", checks(&weirv1.CheckRequest{Policy: "jobs", Key: "a", Class: strings.Repeat("x", 60_000)}), bad, `"class" is "xxx`},
		{"slots", checks(&weirv1.CheckRequest{Policy: "slots", Key: "a"}), bad, `policy "slots" limits concurrency: slots are held, not spent, so a check cannot take one; reserve one instead`},
		{"unknown policy", checks(&weirv1.CheckRequest{Policy: "no\npe", Key: "a"}), connect.CodeNotFound, `no policy is called "no\npe"; the page at / and GET /admin/v1/policies list those there are`},
		{"long unknown policy", checks(&weirv1.CheckRequest{Policy: strings.Repeat("ü", 99), Key: "a"}), connect.CodeNotFound, `no policy is called "` + strings.Repeat(`\u00fc`, 32) + `"…;`},
		{"long unknown unit", checks(&weirv1.CheckRequest{Policy: "llm", Keys: user, Costs: map[string]int64{strings.Repeat("x", 60_000): 1}}), bad, `"cost" has the unit "xxx`},

		{"reservation that waits too long", reserves(&weirv1.ReserveRequest{Policy: "slots", Key: "a", MaxWaitMs: 10_001}), bad, `"max_wait_ms" must be at most 10000`},
		{"negative wait of a reservation", reserves(&weirv1.ReserveRequest{Policy: "slots", Key: "a", MaxWaitMs: -1}), bad, `"max_wait_ms" must not be negative`},
		{"unknown class of a reservation", reserves(&weirv1.ReserveRequest{Policy: "jobs", Key: "a", Class: "urgent"}), bad, `"class" is "urgent", which the policy does not have`},
		{"negative ttl", reserves(&weirv1.ReserveRequest{Policy: "slots", Key: "a", TtlMs: -1}), bad, `"ttl_ms" must not be negative`},
		{"long ttl", reserves(&weirv1.ReserveRequest{Policy: "default", Key: "a", TtlMs: 3_600_001}), bad, `"ttl_ms" must be at most 3600000`},
		{"reserve nowhere", reserves(&weirv1.ReserveRequest{Policy: "nope", Key: "a"}), connect.CodeNotFound, `no policy is called "nope"`},
		{"no id", commits(&weirv1.CommitRequest{}), bad, `"id" is missing: what Reserve returned`},
		{"no ticket", commits(&weirv1.CommitRequest{Id: "nonsense"}), bad, `"id" is no reservation of this client: it is what reserve returned`},
		{"negative use", commits(&weirv1.CommitRequest{Id: "x", Used: proto.Int64(-1)}), bad, `"used" must not be negative`},
		{"negative units used", commits(&weirv1.CommitRequest{Id: "x", UsedCosts: map[string]int64{"tokens": -1}}), bad, `a value of "used_costs" must not be negative`},
	}
}

// badBatches have one thing wrong and, but for that, a check that would be charged.
func badBatches() []badCall {
	const bad = connect.CodeInvalidArgument
	one, two := []string{"default"}, []string{"a", "b"}
	return []badCall{
		{"no policy", batches(&weirv1.CheckBatchRequest{Key: two}), bad, `"policy" is missing: the name of a policy`},
		{"too many", batches(&weirv1.CheckBatchRequest{Policy: one, Key: make([]string, 1001)}), bad, `a batch may have 1000 checks`},
		{"short cost", batches(&weirv1.CheckBatchRequest{Policy: one, Key: two, Cost: []int64{1}}), bad, `"cost" has 1 entries for 2 checks: it has one for each entry of "key", or none`},
		{"long peek", batches(&weirv1.CheckBatchRequest{Policy: one, Key: two, Peek: make([]bool, 3)}), bad, `"peek" has 3 entries for 2 checks`},
		{"short wait", batches(&weirv1.CheckBatchRequest{Policy: one, Key: two, MaxWaitMs: []int64{0}}), bad, `"max_wait_ms" has 1 entries`},
		{"no keys", batches(&weirv1.CheckBatchRequest{Policy: one, PolicyIndex: []uint32{0}}), bad, `"policy_index" has 1 entries for 0 checks`},
		{"short attributes", batches(&weirv1.CheckBatchRequest{Policy: one, Key: two, Keys: []*weirv1.KeyColumn{{Name: "ip", Key: []string{"x"}}}}), bad, `the column "ip" of "keys" has 1 entries for 2 checks`},
		{"attribute twice", batches(&weirv1.CheckBatchRequest{Policy: one, Key: two, Keys: []*weirv1.KeyColumn{{Name: "ip"}, {Name: "ip"}}}), bad, `"keys" has "ip" twice`},
		{"attributes", batches(&weirv1.CheckBatchRequest{Policy: one, Key: two, Keys: make([]*weirv1.KeyColumn, 17)}), bad, `"keys" may have 16 entries`},
		{"short units", batches(&weirv1.CheckBatchRequest{Policy: one, Key: two, Costs: []*weirv1.CostColumn{{Unit: "x", Cost: []int64{1}}}}), bad, `the column "x" of "costs" has 1 entries`},
		{"unit twice", batches(&weirv1.CheckBatchRequest{Policy: one, Key: two, Costs: []*weirv1.CostColumn{{Unit: "x"}, {Unit: "x"}}}), bad, `"costs" has "x" twice`},
		{"units", batches(&weirv1.CheckBatchRequest{Policy: one, Key: two, Costs: make([]*weirv1.CostColumn, 17)}), bad, `"costs" may have 16 entries`},
		{"index", batches(&weirv1.CheckBatchRequest{Policy: one, Key: two, PolicyIndex: []uint32{0, 1}}), bad, `checks[1]: "policy_index" is 1, and "policy" has 1 entries, counted from 0`},
		{"great index", batches(&weirv1.CheckBatchRequest{Policy: one, Key: two, PolicyIndex: []uint32{0, 1<<32 - 1}}), bad, `checks[1]: "policy_index" is 4294967295`},
		{"negative cost", batches(&weirv1.CheckBatchRequest{Policy: one, Key: two, Cost: []int64{1, -1}}), bad, `checks[1]: "cost" must not be negative`},
		{"long key", batches(&weirv1.CheckBatchRequest{Policy: one, Key: []string{"a", strings.Repeat("k", 257)}}), bad, `checks[1]: "key" has 257 bytes`},
		{"no key", batches(&weirv1.CheckBatchRequest{Policy: one, Key: []string{"a", ""}}), bad, `checks[1]: "key" is missing`},
		{"long attribute", batches(&weirv1.CheckBatchRequest{Policy: one, Key: two, Keys: []*weirv1.KeyColumn{{Name: "ip", Key: []string{"x", strings.Repeat("k", 257)}}}}), bad, `checks[1]: a value of "keys" has 257 bytes`},
		{"negative unit", batches(&weirv1.CheckBatchRequest{Policy: one, Key: two, Costs: []*weirv1.CostColumn{{Unit: "x", Cost: []int64{0, -1}}}}), bad, `checks[1]: a value of "costs" must not be negative`},
		{"unknown unit", batches(&weirv1.CheckBatchRequest{Policy: one, Key: two, Costs: []*weirv1.CostColumn{{Unit: "x", Cost: []int64{0, 1}}}}), bad, `checks[1]: "cost" has the unit "x", which no limit of the policy counts`},
		{"short classes", batches(&weirv1.CheckBatchRequest{Policy: []string{"jobs"}, Key: two, Class: []string{"realtime"}, ClassIndex: []uint32{0}}), bad, `"class_index" has 1 entries for 2 checks`},
		{"index of a class", batches(&weirv1.CheckBatchRequest{Policy: []string{"jobs"}, Key: two, Class: []string{"realtime"}, ClassIndex: []uint32{0, 1}}), bad, `checks[1]: "class_index" is 1, and "class" has 1 entries, counted from 0`},
		{"great index of a class", batches(&weirv1.CheckBatchRequest{Policy: []string{"jobs"}, Key: two, ClassIndex: []uint32{0, 1<<32 - 1}}), bad, `checks[1]: "class_index" is 4294967295, and "class" has 0 entries`},
		{"unknown class", batches(&weirv1.CheckBatchRequest{Policy: []string{"jobs"}, Key: two, Class: []string{"realtime", "urgent"}, ClassIndex: []uint32{0, 1}}), bad, `checks[1]: "class" is "urgent", which the policy does not have`},
		{"class without classes", batches(&weirv1.CheckBatchRequest{Policy: []string{"jobs", "default"}, PolicyIndex: []uint32{0, 1}, Key: two, Class: []string{"realtime"}}), bad, `checks[1]: "class" is "realtime", and the policy has no classes`},
		{"wait", batches(&weirv1.CheckBatchRequest{Policy: one, Key: two, MaxWaitMs: []int64{0, 5}}), bad, `checks[1]: "max_wait_ms" is for single checks: those of a batch are answered together`},
		{"attribute lacks", batches(&weirv1.CheckBatchRequest{Policy: []string{"default", "llm"}, PolicyIndex: []uint32{0, 1}, Key: two, Keys: []*weirv1.KeyColumn{{Name: "user", Key: []string{"x", ""}}}}), bad, `checks[1]: "keys" lacks "user"`},
		{"slots", batches(&weirv1.CheckBatchRequest{Policy: []string{"default", "slots"}, PolicyIndex: []uint32{0, 1}, Key: two}), bad, `checks[1]: policy "slots" limits concurrency`},
		{"unknown policy", batches(&weirv1.CheckBatchRequest{Policy: []string{"default", "nope"}, PolicyIndex: []uint32{0, 1}, Key: two}), connect.CodeNotFound, `checks[1]: no policy is called "nope"`},
		{"atomic debit", batches(&weirv1.CheckBatchRequest{Policy: one, Key: two, Atomic: true, Debit: true}), bad, `"debit" charges every check, "atomic" all or none: a batch is one or the other`},
		{"debit peek", batches(&weirv1.CheckBatchRequest{Policy: one, Key: two, Peek: []bool{false, true}, Debit: true}), bad, `checks[1]: "peek" cannot be used for units that were used already`},
		{"atomic peek", batches(&weirv1.CheckBatchRequest{Policy: one, Key: two, Peek: []bool{false, true}, Atomic: true}), bad, `checks[1]: a check with peek cannot be part of an atomic batch`},
	}
}

// TestBadInput: what is wrong is said by every protocol in the same words, and nothing
// is charged or observed.
func TestBadInput(t *testing.T) {
	for _, how := range transports() {
		t.Run(how.name, func(t *testing.T) {
			limiter := newCounting(t)
			w := newWorld(t, limiter)
			client, _ := w.start(t, how)
			for _, tt := range append(badCalls(), badBatches()...) {
				err := tt.call(context.Background(), client)
				wantError(t, err, tt.code, tt.message)
				if e, ok := err.(*connect.Error); ok && len(e.Message()) > 512+len("…") {
					t.Errorf("%s: the message has %d bytes", tt.name, len(e.Message()))
				}
				if limiter.calls > 0 || len(w.records) > 0 {
					t.Fatalf("%s: %d charges were made, %d decisions observed", tt.name, limiter.calls, len(w.records))
				}
			}
		})
	}
}

// TestFirstProblem: of several things that are wrong it is always the same that is complained of.
func TestFirstProblem(t *testing.T) {
	keys := map[string]string{}
	for i := range 16 {
		keys[fmt.Sprintf("%02d", i)] = strings.Repeat("k", 300+i)
	}
	for range 20 {
		_, err := entries("keys", keys, len(keys), checkKey, attribute)
		if err == nil || !strings.HasPrefix(err.Error(), `a value of "keys" has 300 bytes`) {
			t.Error(err)
		}
	}
}

// TestUnauthenticated: every protocol reports a failed authentication.
func TestUnauthenticated(t *testing.T) {
	for _, how := range transports() {
		t.Run(how.name, func(t *testing.T) {
			limiter := newCounting(t)
			w := newWorld(t, limiter)
			w.auth = apitest.Authenticator(t)
			ask := checks(&weirv1.CheckRequest{Policy: "secret", Key: "a"})
			nobody, _ := w.start(t, how)
			err := ask(context.Background(), nobody)
			wantError(t, err, connect.CodeUnauthenticated, "missing client token: send the header Authorization: Bearer TOKEN")
			if got := err.(*connect.Error).Meta().Get("WWW-Authenticate"); got != `Bearer realm="weir"` {
				t.Errorf("WWW-Authenticate = %q", got)
			}
			bob, _ := w.start(t, how, withToken(apitest.Bob))
			wantError(t, ask(context.Background(), bob), connect.CodePermissionDenied, `the client bob may not use the policy "secret"`)
			err = batches(&weirv1.CheckBatchRequest{Policy: []string{"default", "secret"}, PolicyIndex: []uint32{0, 1}, Key: []string{"a", "a"}})(context.Background(), bob)
			wantError(t, err, connect.CodePermissionDenied, `checks[1]: the client bob may not use the policy "secret"`)
			mallory, _ := w.start(t, how, withToken(apitest.Wrong))
			for err = ask(context.Background(), mallory); connect.CodeOf(err) == connect.CodeUnauthenticated; err = ask(context.Background(), mallory) {
				wantError(t, err, connect.CodeUnauthenticated, "unknown client token")
			}
			wantError(t, err, connect.CodeResourceExhausted, "too many wrong tokens came from this address")
			// One more is tried every 3 s.
			if got, err := strconv.Atoi(err.(*connect.Error).Meta().Get("Retry-After")); err != nil || got < 1 || got > 4 {
				t.Errorf("Retry-After = %d, %v", got, err)
			}
			wantDetails(t, err.(*connect.Error), strings.HasPrefix(how.name, "grpc"))
			if limiter.calls > 0 {
				t.Errorf("the limiter was asked %d times", limiter.calls)
			}
		})
	}
}

// TestClassesOfClients: every protocol refuses a class that the client may not use, and charges the
// only one that it may use.
func TestClassesOfClients(t *testing.T) {
	for _, how := range transports() {
		t.Run(how.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.auth = apitest.Authenticator(t)
			carol, _ := w.start(t, how, withToken(apitest.Carol))
			for _, tt := range []struct {
				call    sent
				message string // "" if it is admitted as realtime
			}{
				{checks(&weirv1.CheckRequest{Policy: "jobs", Key: "a"}), ""},
				{checks(&weirv1.CheckRequest{Policy: "jobs", Key: "a", Class: "realtime"}), ""},
				{reserves(&weirv1.ReserveRequest{Policy: "jobs", Key: "a"}), ""},
				{batches(&weirv1.CheckBatchRequest{Policy: []string{"jobs"}, Key: []string{"a"}}), ""},
				{checks(&weirv1.CheckRequest{Policy: "jobs", Key: "a", Class: "backfill"}), `the client carol may not use the class "backfill"`},
				{reserves(&weirv1.ReserveRequest{Policy: "jobs", Key: "a", Class: "backfill"}), `the client carol may not use the class "backfill"`},
				{batches(&weirv1.CheckBatchRequest{Policy: []string{"jobs"}, Key: []string{"a", "b"}, Class: []string{"", "backfill"}, ClassIndex: []uint32{0, 1}}), `checks[1]: the client carol may not use the class "backfill"`},
			} {
				w.records = nil
				err := tt.call(context.Background(), carol)
				if tt.message != "" {
					wantError(t, err, connect.CodePermissionDenied, tt.message)
					continue
				}
				if must(t, err); len(w.records) != 1 || w.records[0].Class != "realtime" || !w.records[0].Allowed {
					t.Errorf("%+v", w.records)
				}
			}
		})
	}
}

// wantDetails checks that an error says why and how long to wait, as its protocol does.
func wantDetails(t *testing.T, err *connect.Error, grpc bool) {
	t.Helper()
	var got []proto.Message
	for _, detail := range err.Details() {
		m, bad := detail.Value()
		must(t, bad)
		got = append(got, m)
	}
	if len(got) != 2 {
		t.Fatalf("details %v, want two", got)
	}
	want := &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{
		Subject: "clientip:127.0.0.1", Description: "too many wrong tokens came from this address", QuotaId: "failed-logins", QuotaValue: 20,
	}}}
	if diff := cmp.Diff(want, got[0], protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	info, _ := got[1].(*errdetails.RetryInfo)
	wait := info.GetRetryDelay().AsDuration()
	if wait <= 0 || wait > 3*time.Second {
		t.Errorf("RetryInfo says %v", wait)
	}
	pushback := ""
	if grpc {
		pushback = strconv.FormatInt(ruleset.Millis(wait), 10)
	}
	if ms := err.Meta().Get("grpc-retry-pushback-ms"); ms != pushback {
		t.Errorf("grpc-retry-pushback-ms is %q, want %q", ms, pushback)
	}
}

// TestUndecided: what keeps the limiter from deciding stays in the log.
func TestUndecided(t *testing.T) {
	for _, how := range transports() {
		t.Run(how.name, func(t *testing.T) {
			limiter := newCounting(t)
			limiter.err = errors.New("redis: password is hunter2")
			w := newWorld(t, limiter)
			client, _ := w.start(t, how)
			const message = "no decision could be made; the daemon's log says why"
			wantError(t, checks(&weirv1.CheckRequest{Policy: "default", Key: "a"})(context.Background(), client), connect.CodeUnavailable, message)
			wantError(t, batches(&weirv1.CheckBatchRequest{Policy: []string{"api"}, Key: []string{"a"}})(context.Background(), client), connect.CodeUnavailable, message)
			wantError(t, reserves(&weirv1.ReserveRequest{Policy: "slots", Key: "a"})(context.Background(), client), connect.CodeUnavailable, message)
			limiter.panic = "hunter2"
			wantError(t, checks(&weirv1.CheckRequest{Policy: "default", Key: "a"})(context.Background(), client), connect.CodeInternal, "the daemon made a mistake; its log says which")
			if len(w.records) > 0 {
				t.Errorf("observed %v", w.records)
			}
		})
	}
}

// TestStoreDown: what is refused because the store does not answer is decided, too.
func TestStoreDown(t *testing.T) {
	for _, how := range transports() {
		t.Run(how.name, func(t *testing.T) {
			w := newWorld(t, apitest.Always{Decision: weir.Decision{Reason: weir.StoreDown, RetryAfter: time.Second, ResetAfter: time.Second}})
			client, _ := w.start(t, how)
			same(t, &weirv1.CheckResponse{Policy: "default", LimitedBy: "default", RetryAfterMs: 1000, ResetAfterMs: 1000, Reason: "store_down"})(
				client.Check(context.Background(), &weirv1.CheckRequest{Policy: "default", Key: "a"}))
			if len(w.records) != 1 || w.records[0].Reason != weir.StoreDown {
				t.Errorf("observed %v", w.records)
			}
		})
	}
}

// TestGone: a reservation under a policy that was removed can still be committed.
func TestGone(t *testing.T) {
	w := newWorld(t, nil)
	client, _ := w.start(t, transports()[0])
	held, err := client.Reserve(context.Background(), &weirv1.ReserveRequest{Policy: "api", Key: "a"})
	must(t, err)
	rules, err := ruleset.Compile(apitest.Policies()[:1], w.engine.Rules())
	must(t, err)
	must(t, w.engine.Set(context.Background(), rules))
	same(t, &weirv1.CommitResponse{})(client.Commit(context.Background(), &weirv1.CommitRequest{Id: held.Id}))
}

// endless is a body that never ends, and counts what was read of it.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	e.read += len(b)
	return len(b), nil
}

// TestLongBodies are not read to their end, however they are framed.
func TestLongBodies(t *testing.T) {
	for _, tt := range []struct{ kind, head string }{
		{"application/json", ""},
		{"application/proto", ""},
		{"application/grpc", "\x00\xff\xff\xff\xff"},
		{"application/grpc-web+proto", "\x00\xff\xff\xff\xff"},
	} {
		w := newWorld(t, newCounting(t))
		rest := &endless{}
		r := httptest.NewRequest("POST", w.path+"Check", io.MultiReader(strings.NewReader(tt.head), rest))
		r.Header.Set("Content-Type", tt.kind)
		got := httptest.NewRecorder()
		w.handler.ServeHTTP(got, r)
		if rest.read > 4*maxBody {
			t.Errorf("%s: %d bytes were read", tt.kind, rest.read)
		}
		answer := fmt.Sprint(got.Code, got.Header(), got.Body, got.Result().Trailer)
		if !strings.Contains(answer, "resource_exhausted") && !strings.Contains(strings.ToLower(answer), "grpc-status:[8]") {
			t.Errorf("%s: %s", tt.kind, answer)
		}
	}
}

// TestCompression: there is none.
func TestCompression(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, err := z.Write(make([]byte, 1<<20))
	must(t, err)
	must(t, z.Close())
	w := newWorld(t, newCounting(t))
	status, answer := w.say(t, "Check", bomb.String(), "Content-Encoding", "gzip")
	if status != http.StatusNotImplemented || !strings.Contains(answer, `unknown compression`) {
		t.Errorf("%d %s", status, answer)
	}
	for _, how := range transports() {
		client, _ := w.start(t, how, connect.WithSendGzip())
		err := checks(&weirv1.CheckRequest{Policy: "default", Key: strings.Repeat("a", 200)})(context.Background(), client)
		wantError(t, err, connect.CodeUnimplemented, "unknown compression")
	}
}

// TestJSONIsStrict: what is misspelt, twice or of the wrong kind is refused, and no text
// that somebody sent comes back whole.
func TestJSONIsStrict(t *testing.T) {
	limiter := newCounting(t)
	w := newWorld(t, limiter)
	const ok = `{"policy":"default","key":"a"`
	for _, tt := range []struct{ body, message string }{
		{``, `the body is empty`},
		{`null`, `unexpected token null`},
		{`[]`, `unexpected token [`},
		{ok, `unexpected`},
		{ok + `,"colour":"x"}`, `unknown field \"colour\"`},
		{ok + `,"class":1}`, `invalid value for string field class`},
		{ok + `,"Cost":1}`, `unknown field \"Cost\"`},
		{ok + `,"key":"b"}`, `duplicate field \"key\"`},
		{ok + `,"cost":1.5}`, `invalid value for int64 field cost: 1.5`},
		{ok + `,"cost":"x"}`, `invalid value for int64 field cost`},
		{ok + `,"cost":99999999999999999999}`, `invalid value for int64 field cost`},
		{ok + `,"peek":"true"}`, `invalid value for bool field peek`},
		{ok + `} {}`, `unexpected token {`},
		{"{\"policy\":\"default\",\"key\":\"\xff\"}", `invalid UTF-8`},
		{ok + `,"` + strings.Repeat("x", 60_000) + `":1}`, `unknown field`},
	} {
		status, answer := w.say(t, "Check", tt.body)
		if status != http.StatusBadRequest || !strings.Contains(answer, tt.message) || !strings.Contains(answer, `"invalid_argument"`) || len(answer) > 1000 || strings.Contains(answer, "\u00a0") {
			t.Errorf("%.60q: %d %.200s, want %s", tt.body, status, answer, tt.message)
		}
	}
	if limiter.calls > 0 {
		t.Errorf("the limiter was asked %d times", limiter.calls)
	}
	if err := (jsonCodec{}).Unmarshal([]byte("{}"), 1); err == nil {
		t.Error("1 is a message")
	}
	if _, err := (jsonCodec{}).Marshal(1); err == nil {
		t.Error("1 is a message")
	}
}

// TestOtherRequests: what is no call is no decision.
func TestOtherRequests(t *testing.T) {
	w := newWorld(t, newCounting(t))
	for _, tt := range []struct {
		method, verb, kind string
		status             int
	}{
		{"GET", "Check?encoding=json&message=%7B%7D", "", 405},
		{"PUT", "Check", "application/json", 405},
		{"POST", "Check", "text/plain", 415},
		{"POST", "Check", "application/x-www-form-urlencoded", 415},
		{"POST", "Nope", "application/json", 404},
		{"POST", "", "application/json", 404},
	} {
		r := httptest.NewRequest(tt.method, w.path+tt.verb, strings.NewReader("{}"))
		r.Header.Set("Content-Type", tt.kind)
		got := httptest.NewRecorder()
		w.handler.ServeHTTP(got, r)
		if got.Code != tt.status {
			t.Errorf("%s %s as %s: %d, want %d", tt.method, tt.verb, tt.kind, got.Code, tt.status)
		}
	}
}
