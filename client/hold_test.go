package client_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/client"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/server"
)

// TestReserveSeveral: all or none, although each is an exchange of its own.
func TestReserveSeveral(t *testing.T) {
	hour := weir.Every(time.Hour)
	small, big := newPolicy(t, "small", weir.Limit{Rate: 2, Per: hour}), newPolicy(t, "big", weir.Limit{Rate: 10, Per: hour})
	address, _ := daemon(t, server.Config{Limiter: apitest.Table(t, apitest.NewClock().Now), Live: server.Live{Policies: rules(small, big)}})
	c := dial(t, client.Config{Address: address})

	refused, err := weir.Reserve(ctx, c, 0, weir.Charge{Policy: big, Key: "a", Cost: 4}, weir.Charge{Policy: small, Key: "a", Cost: 3}, weir.Charge{Policy: big, Key: "b", Cost: 1})
	must(t, err)
	if refused.Decision.Allowed || refused.Decision.Reason != weir.TooCostly || c.OpenHolds() != 0 {
		t.Errorf("%+v, %d open", refused.Decision, c.OpenHolds())
	}
	wantRemaining(t, c, big, "a", 10)
	wantRemaining(t, c, big, "b", 10)
	whole := weir.Batch{Op: weir.ReserveAll, Charges: []weir.Charge{{Policy: big, Key: "a", Cost: 1}, {Policy: small, Key: "a", Cost: 3}, {Policy: big, Key: "b", Cost: 1}}}
	must(t, c.Do(ctx, &whole))
	for i, reason := range []weir.Reason{weir.NotCharged, weir.TooCostly, weir.NotCharged} {
		if d := whole.Decisions[i]; d.Allowed || d.Reason != reason || whole.Receipts[i] != (weir.Receipt{}) {
			t.Errorf("%d: %+v, %v, want %v and no receipt", i, d, whole.Receipts[i], reason)
		}
	}

	held, err := weir.Reserve(ctx, c, 0, weir.Charge{Policy: big, Key: "a", Cost: 4}, weir.Charge{Policy: small, Key: "a", Cost: 2})
	must(t, err)
	if !held.Decision.Allowed || c.OpenHolds() != 2 {
		t.Fatalf("%+v, %d open", held.Decision, c.OpenHolds())
	}
	wantRemaining(t, c, big, "a", 6)
	if ok, err := held.Renew(ctx, time.Minute); !ok || err != nil {
		t.Errorf("renewed %v, %v", ok, err)
	}
	if got, err := held.Commit(ctx, 1, 2); err != nil || !slices.Equal(got, []weir.Settled{{Refunded: 3}, {}}) {
		t.Errorf("committed %+v, %v", got, err)
	}
	wantRemaining(t, c, big, "a", 9)
	if c.OpenHolds() != 0 {
		t.Errorf("%d are remembered", c.OpenHolds())
	}
}

func wantRemaining(t *testing.T, c *client.Client, p *weir.Policy, key string, want int64) {
	t.Helper()
	d, err := weir.Peek(ctx, c, p, key, 0)
	if must(t, err); d.Remaining != want {
		t.Errorf("%s of %s: %d remain, want %d", p.Name(), key, d.Remaining, want)
	}
}

// TestSettleAgain: settling that failed half way can be repeated, and what nobody knows is late.
func TestSettleAgain(t *testing.T) {
	calls := map[string]int{}
	var s service
	s.reserve = func(_ context.Context, r *weirv1.ReserveRequest) (*weirv1.ReserveResponse, error) {
		return &weirv1.ReserveResponse{Allowed: true, Id: "id-" + r.GetKey(), ExpiresInMs: 1000}, nil
	}
	s.commit = func(_ context.Context, r *weirv1.CommitRequest) (*weirv1.CommitResponse, error) {
		if calls[r.GetId()]++; r.GetId() == "id-b" && calls["id-b"] == 1 {
			return nil, connect.NewError(connect.CodeUnavailable, errors.New("not now"))
		}
		return &weirv1.CommitResponse{Refunded: 7}, nil
	}
	c := dial(t, client.Config{Address: s.start(t), Conns: 1})
	p := newPolicy(t, "p", weir.Limit{Rate: 9, Per: weir.Every(time.Second)})
	b := weir.Batch{Op: weir.ReserveAll, Charges: []weir.Charge{{Policy: p, Key: "a", Cost: 9}, {Policy: p, Key: "b", Cost: 9}}}
	must(t, c.Do(ctx, &b))
	b.Op = weir.Settle
	if err := c.Do(ctx, &b); !errors.Is(err, weir.ErrUnknown) {
		t.Fatal(err)
	}
	must(t, c.Do(ctx, &b))
	if b.Settled[0].Refunded != 7 || b.Settled[1].Refunded != 7 || b.Settled[0].Late || calls["id-a"] != 2 || calls["id-b"] != 2 {
		t.Errorf("%+v after %v", b.Settled, calls)
	}
	must(t, c.Do(ctx, &b))
	if !b.Settled[0].Late || !b.Settled[1].Late || calls["id-a"] != 2 {
		t.Errorf("once more: %+v after %v", b.Settled, calls)
	}
	b.Op, b.TTL = weir.Renew, time.Second
	must(t, c.Do(ctx, &b))
	if b.Decisions[0].Allowed {
		t.Error("a reservation that is over was renewed")
	}
}

// TestGiveBack: what was reserved for nothing is given back, as long as the daemon answers.
func TestGiveBack(t *testing.T) {
	unavailable := connect.NewError(connect.CodeUnavailable, errors.New("not now"))
	for _, tt := range []struct {
		answer error // to Cancel
		calls  int64
	}{
		{nil, 3},
		{connect.NewError(connect.CodeNotFound, errors.New("gone")), 3},
		{unavailable, 1},
	} {
		var s service
		s.reserve = func(_ context.Context, r *weirv1.ReserveRequest) (*weirv1.ReserveResponse, error) {
			if r.GetKey() == "last" {
				return nil, unavailable
			}
			return &weirv1.ReserveResponse{Allowed: true, Id: "x", ExpiresInMs: 1000}, nil
		}
		var calls atomic.Int64
		s.cancel = func(context.Context, *weirv1.CancelRequest) (*weirv1.CancelResponse, error) {
			calls.Add(1)
			return &weirv1.CancelResponse{}, tt.answer
		}
		c := dial(t, client.Config{Address: s.start(t)})
		p := newPolicy(t, "p", weir.Limit{Rate: 9, Per: weir.Every(time.Second)})
		b := weir.Batch{Op: weir.ReserveAll}
		for _, key := range []string{"a", "b", "c", "last"} {
			b.Charges = append(b.Charges, weir.Charge{Policy: p, Key: key, Cost: 1})
		}
		if err := c.Do(ctx, &b); !errors.Is(err, weir.ErrUnknown) || calls.Load() != tt.calls || c.OpenHolds() != 0 {
			t.Errorf("to Cancel %v: %v, %d calls, %d open", tt.answer, err, calls.Load(), c.OpenHolds())
		}
	}
}

// TestManyHolds: those that are over make room; if none is, there is none.
func TestManyHolds(t *testing.T) {
	var s service
	s.reserve = func(context.Context, *weirv1.ReserveRequest) (*weirv1.ReserveResponse, error) {
		return &weirv1.ReserveResponse{Allowed: true, Id: "x", ExpiresInMs: 1000}, nil
	}
	c := dial(t, client.Config{Address: s.start(t)})
	p := newPolicy(t, "p", weir.Limit{Rate: 9, Per: weir.Every(time.Second)})
	reserve := func() weir.Decision {
		t.Helper()
		b := weir.Batch{Op: weir.ReserveAll, Charges: []weir.Charge{{Policy: p, Key: "a", Cost: 1}}}
		must(t, c.Do(ctx, &b))
		return b.Decisions[0]
	}
	c.FillHolds(client.MaxHolds, 1000)
	if d := reserve(); !d.Allowed || c.OpenHolds() != client.MaxHolds-1000+1 {
		t.Errorf("%v, %d remembered", d, c.OpenHolds())
	}
	c.FillHolds(client.MaxHolds, 0)
	if d := reserve(); d.Allowed || d.Reason != weir.QueueFull {
		t.Errorf("%v, %d remembered", d, c.OpenHolds())
	}
}

// TestSlots: slots are free again when they are settled or their time is over.
func TestSlots(t *testing.T) {
	slots := newPolicy(t, "slots", weir.Limit{Rate: 1, Algorithm: weir.Concurrency})
	clock := apitest.NewClock()
	address, _ := daemon(t, server.Config{Limiter: apitest.Table(t, clock.Now), Live: server.Live{Policies: rules(slots)}})
	c := dial(t, client.Config{Address: address})
	one := weir.Charge{Policy: slots, Key: "k", Cost: 1}
	held, err := weir.Reserve(ctx, c, time.Minute, one)
	must(t, err)
	if second, err := weir.Reserve(ctx, c, time.Minute, one); err != nil || second.Decision.Allowed || !held.Decision.Allowed {
		t.Errorf("%+v, %v", second, err)
	}
	clock.Pass(time.Minute)
	if third, err := weir.Reserve(ctx, c, time.Minute, one); err != nil || !third.Decision.Allowed {
		t.Errorf("the slot is not free: %+v, %v", third, err)
	}
	if got, err := held.Commit(ctx); err != nil || !got[0].Late {
		t.Errorf("%+v, %v", got, err)
	}
	for _, ttl := range []time.Duration{2 * time.Hour, weir.NoExpiry, -7} {
		if _, err := weir.Reserve(ctx, c, ttl, one); !errors.Is(err, weir.ErrInvalid) {
			t.Errorf("for %v: %v", ttl, err)
		}
	}
}
