package connectapi

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server/internal/call"
)

// FuzzRequests sends whatever bytes are a message to every verb: nothing panics, an error
// says that the caller is wrong, and the columns of a batch fit what was asked.
func FuzzRequests(f *testing.F) {
	two, index := int64(2), []uint32{0, 1}
	for _, m := range []proto.Message{
		&weirv1.CheckRequest{Policy: "default", Key: "alice", Cost: &two},
		&weirv1.CheckRequest{Policy: "llm", Keys: map[string]string{"user": "alice"}, Costs: map[string]int64{"tokens": 7}, Peek: true},
		&weirv1.CheckRequest{Policy: "slots", Key: "\x00", MaxWaitMs: -1},
		&weirv1.CheckBatchRequest{Policy: []string{"default", "api"}, PolicyIndex: index, Key: []string{"a", "b"}, Cost: []int64{1, 100}},
		&weirv1.CheckBatchRequest{Policy: []string{"default"}, PolicyIndex: []uint32{1 << 31}, Key: []string{"a"}, Atomic: true},
		&weirv1.CheckBatchRequest{Policy: []string{"jobs"}, Class: []string{"realtime", ""}, ClassIndex: index, Key: []string{"a", "b"}},
		&weirv1.ReserveRequest{Policy: "jobs", Key: "alice", Class: "backfill"},
		&weirv1.ReserveRequest{Policy: "slots", Key: "alice"},
		&weirv1.CommitRequest{Id: "AQ"},
	} {
		wire, err := proto.Marshal(m)
		must(f, err)
		for verb := range uint8(6) {
			f.Add(verb, wire)
		}
	}
	f.Fuzz(func(t *testing.T, verb uint8, wire []byte) {
		w := newWorld(t, nil)
		s := NewService(&call.Core{Engine: w.engine, Observe: func(*ruleset.Record) {}, ObserveEach: apitest.Each(func(*ruleset.Record) {}), Log: slog.New(slog.DiscardHandler)})
		ctx := call.WithCaller(context.Background(), call.Caller{State: &call.State{Rules: w.engine.Rules(), Authenticator: w.auth}})
		if err := callWith(ctx, t, s, verb, wire); err != nil {
			wantCallersFault(t, err)
		}
	})
}

// callWith makes a message of bytes, if it is one, and sends it.
func callWith(ctx context.Context, t *testing.T, s weirv1.LimiterServiceServer, verb uint8, wire []byte) (err error) {
	t.Helper()
	switch verb % 6 {
	case 0:
		_, err = send(ctx, wire, &weirv1.CheckRequest{}, s.Check)
	case 1:
		r := &weirv1.CheckBatchRequest{}
		var got *weirv1.CheckBatchResponse
		if got, err = send(ctx, wire, r, s.CheckBatch); got != nil {
			wantColumns(t, r, got)
		}
	case 2:
		_, err = send(ctx, wire, &weirv1.ReserveRequest{}, s.Reserve)
	case 3:
		_, err = send(ctx, wire, &weirv1.CommitRequest{}, s.Commit)
	case 4:
		_, err = send(ctx, wire, &weirv1.CancelRequest{}, s.Cancel)
	default:
		_, err = send(ctx, wire, &weirv1.RenewRequest{}, s.Renew)
	}
	return err
}

// send returns nothing for bytes that are no such message, or ask to wait.
func send[Q proto.Message, A any](ctx context.Context, wire []byte, r Q, verb func(context.Context, Q) (*A, error)) (*A, error) {
	if proto.Unmarshal(wire, r) != nil {
		return nil, nil
	}
	if w, ok := any(r).(interface{ GetMaxWaitMs() int64 }); ok && w.GetMaxWaitMs() > 0 {
		return nil, nil
	}
	return verb(ctx, r)
}

// wantColumns looks at how long they are: as many as checks, or none.
func wantColumns(t *testing.T, r *weirv1.CheckBatchRequest, got *weirv1.CheckBatchResponse) {
	t.Helper()
	n := len(r.GetKey())
	for name, length := range map[string]int{
		"allowed": len(got.GetAllowed()), "limit": len(got.GetLimit()), "remaining": len(got.GetRemaining()),
		"retry_after_ms": len(got.GetRetryAfterMs()), "reset_after_ms": len(got.GetResetAfterMs()),
		"reason_index": len(got.GetReasonIndex()), "limited_by_index": len(got.GetLimitedByIndex()),
	} {
		if length != n && length != 0 {
			t.Errorf("%s has %d entries for %d checks", name, length, n)
		}
	}
}

// wantCallersFault refuses errors that a store in memory cannot cause.
func wantCallersFault(t *testing.T, err error) {
	t.Helper()
	var e *call.Error
	if !errors.As(err, &e) {
		t.Fatalf("%T: %v", err, err)
	}
	if e.Kind != call.BadInput && e.Kind != call.NotFound {
		t.Errorf("%v", e)
	}
}
