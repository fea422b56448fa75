package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/client"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server"
)

// TestLongBatch: what is too long for one exchange travels in several, and if one of them fails
// that is not forgotten.
func TestLongBatch(t *testing.T) {
	p := newPolicy(t, "p", weir.Limit{Rate: 5000, Per: weir.Every(24 * time.Hour)})
	address, _ := daemon(t, server.Config{Limiter: apitest.Table(t, apitest.NewClock().Now), Live: server.Live{Policies: rules(p)}})
	c := dial(t, client.Config{Address: address})
	b := weir.Batch{Op: weir.TakeEach}
	for i := range 2500 {
		b.Charges = append(b.Charges, weir.Charge{Policy: p, Key: fmt.Sprintf("%0250d", i%3), Cost: 2})
	}
	must(t, c.Do(ctx, &b))
	for i, d := range b.Decisions {
		if want := int64(5000 - 2*(i/3+1)); !d.Allowed || d.Remaining != want {
			t.Fatalf("%d: %v, want %d to remain", i, d, want)
		}
	}

	var s service
	calls := 0
	s.checkBatch = func(_ context.Context, r *weirv1.CheckBatchRequest) (*weirv1.CheckBatchResponse, error) {
		if calls++; calls == 2 {
			return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("no"))
		}
		return admitAll(r), nil
	}
	err := dial(t, client.Config{Address: s.start(t)}).Do(ctx, &b)
	if !errors.Is(err, weir.ErrUnknown) || !strings.Contains(err.Error(), "no") {
		t.Errorf("%v", err)
	}
}

// TestLongKeys: calls travel together only as far as they fit one exchange.
func TestLongKeys(t *testing.T) {
	const calls = 400
	g := newGate()
	c := dial(t, client.Config{Address: g.start(t), Conns: 1, Timeout: time.Minute})
	p := newPolicy(t, "good", weir.Limit{Rate: 1, Per: weir.Every(time.Second)})
	var group sync.WaitGroup
	take := func(key string) {
		group.Go(func() {
			_, err := c.Take(ctx, p, key, weir.MaxCost)
			if err != nil {
				t.Error(err)
			}
		})
	}
	take("first")
	<-g.came
	for i := range calls {
		take(fmt.Sprintf("%0256d", i))
	}
	c.AwaitWaiting(t, calls)
	close(g.release)
	group.Wait()
	if len(g.came) != 3 { // 256 of 48 KiB
		t.Errorf("%d exchanges", len(g.came))
	}
	for range len(g.came) {
		if size := proto.Size(<-g.came); size > 64<<10 {
			t.Errorf("a message of %d bytes: the daemon takes 65536", size)
		}
	}
}

// TestCheck asks for what a Limiter cannot.
func TestCheck(t *testing.T) {
	hour := weir.Every(time.Hour)
	policy := ruleset.Policy{Name: "llm", Limits: []ruleset.Limit{
		{Limit: weir.Limit{Name: "calls", Rate: 10, Per: hour}, By: "ip"},
		{Limit: weir.Limit{Name: "tokens", Rate: 1000, Per: hour}, Unit: "tokens"},
	}}
	address, _ := daemon(t, server.Config{Limiter: apitest.Table(t, apitest.NewClock().Now), Live: server.Live{Policies: []ruleset.Policy{policy}}})
	c := dial(t, client.Config{Address: address})
	ip := map[string]string{"ip": "192.0.2.1"}
	for _, tt := range []struct {
		q    client.Query
		want client.Answer
	}{
		{
			client.Query{Policy: "llm", Key: "a", Keys: ip},
			client.Answer{Policy: "llm", Decision: weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: 10, Remaining: 9, ResetAfter: 6 * time.Minute}},
		},
		{
			client.Query{Policy: "llm", Key: "a", Keys: ip, Costs: map[string]int64{"requests": 3, "tokens": 10}},
			client.Answer{Policy: "llm", Decision: weir.Decision{Allowed: true, Reason: weir.Admitted, Limit: 10, Remaining: 6, ResetAfter: 24 * time.Minute}},
		},
		{
			client.Query{Policy: "llm", Key: "a", Keys: ip, Costs: map[string]int64{"requests": 0, "tokens": 1001}},
			client.Answer{Policy: "llm", LimitedBy: "llm.tokens", Decision: weir.Decision{Reason: weir.TooCostly, Limit: 1000, Remaining: 990, RetryAfter: weir.Never, ResetAfter: 36 * time.Second}},
		},
	} {
		got, err := c.Check(ctx, tt.q)
		if must(t, err); got != tt.want {
			t.Errorf("%+v: %+v, want %+v", tt.q, got, tt.want)
		}
	}
	_, err := c.Check(ctx, client.Query{Policy: "none", Key: "a"})
	if missing, ok := errors.AsType[*client.AnswerError](err); !ok || !missing.Missing {
		t.Errorf("%v", err)
	}
	for _, wait := range []time.Duration{-time.Second, math.MaxInt64} {
		if _, err = c.Check(ctx, client.Query{Policy: "llm", Key: "a", Keys: ip, MaxWait: wait}); err == nil || !strings.Contains(err.Error(), "max_wait_ms") || errors.Is(err, weir.ErrUnknown) {
			t.Errorf("%v: %v", wait, err)
		}
	}
}

// TestNotSent: after an error that comes before anything was sent, it is known that nothing was
// charged.
func TestNotSent(t *testing.T) {
	c := dial(t, client.Config{Address: "127.0.0.1:1"}) // nobody is asked
	p := newPolicy(t, "p", weir.Limit{Rate: 9, Per: weir.Every(time.Hour)})
	over, cancel := context.WithCancel(ctx)
	cancel()
	err := c.Do(over, &weir.Batch{Charges: []weir.Charge{{Policy: p, Key: "k", Cost: 1}}})
	if !errors.Is(err, context.Canceled) || errors.Is(err, weir.ErrUnknown) {
		t.Errorf("Do: %v", err)
	}
	if _, err = c.Check(over, client.Query{Policy: "p", Key: "k"}); !errors.Is(err, context.Canceled) || errors.Is(err, weir.ErrUnknown) {
		t.Errorf("Check: %v", err)
	}
	for _, q := range []client.Query{
		{Policy: "\xff", Key: "k"},
		{Policy: "p", Key: "\xff"},
		{Policy: "p", Key: "k", Class: "\xff"},
		{Policy: "p", Keys: map[string]string{"ip": "\xff"}},
		{Policy: "p", Keys: map[string]string{"\xff": "k"}},
		{Policy: "p", Costs: map[string]int64{"\xff": 1}},
	} {
		if _, err := c.Check(ctx, q); err == nil || !strings.Contains(err.Error(), "not UTF-8") || errors.Is(err, weir.ErrUnknown) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}
