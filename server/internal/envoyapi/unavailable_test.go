package envoyapi

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/internal/storeapi"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/tiered"
)

// before puts a local tier before a store.
func before(t *testing.T, w *world, store weir.Limiter, nodes int, on weir.OnError) weir.Limiter {
	t.Helper()
	clock := func() weir.Instant { return weir.Instant(w.now.UnixNano()) }
	tier, err := tiered.New(tiered.Config{Store: store, Local: apitest.Table(t, clock), Nodes: nodes, OnError: on, Now: clock})
	must(t, err)
	t.Cleanup(tier.Close)
	return tier
}

// gone is a store that is unavailable.
type gone struct{ weir.Limiter }

func (gone) Take(context.Context, *weir.Policy, string, int64) (weir.Decision, error) {
	return weir.Decision{}, errors.New("gone")
}

func (gone) Do(_ context.Context, b *weir.Batch) error {
	if err := storeapi.CheckBatch(b); err != nil {
		return err
	}
	return errors.New("gone")
}

// TestStoreUnavailable: while the store is unavailable, on_error decides, with and without Compat.
func TestStoreUnavailable(t *testing.T) {
	for _, compat := range []bool{false, true} {
		for _, tt := range []struct {
			on    weir.OnError
			nodes int
			first int // how many requests are admitted; of 20
		}{
			{weir.FailOpen, 1, 20},
			{weir.FailLocal, 1, 7},
			{weir.FailLocal, 2, 3},
			{weir.FailClosed, 1, -1}, // none is decided
		} {
			d := tree()
			d.Compat = compat
			w := newWorld(t, d)
			w.limiter = before(t, w, gone{w.limiter}, tt.nodes, tt.on)
			admitted := 0
			for range 20 {
				got, err := w.ask(request(newDescriptor("any=vip"))) // of which there are 7 a minute
				if tt.first < 0 {
					wantFailure(t, err, codes.Unavailable, "no decision could be made")
					continue
				}
				must(t, err)
				if summary(got) == "OK: OK" {
					admitted++
				}
			}
			if admitted != max(0, tt.first) {
				t.Errorf("compat %v, on_error %v, %d nodes: %d admitted, want %d", compat, tt.on, tt.nodes, admitted, tt.first)
			}
		}
	}
}

// TestShareTooSmall: where each node's share is less than a hit, and refused hits count, Envoy
// decides.
func TestShareTooSmall(t *testing.T) {
	d := tree()
	d.Compat = true
	w := newWorld(t, d)
	w.limiter = before(t, w, gone{w.limiter}, 8, weir.FailLocal)
	_, err := w.ask(request(newDescriptor("any=vip")))
	wantFailure(t, err, codes.Unavailable, "no decision could be made")
}

// TestRestart: a service that is started anew changes no limits, not even if the store has
// replaced those of its rules. They can be put in force by Rules.Policies.
func TestRestart(t *testing.T) {
	with := func(n uint32) Domain {
		return Domain{Name: "d", Descriptors: []Descriptor{{Key: "k", Limit: perMinute(n)}}}
	}
	w := newWorld(t, with(5))
	w.want(t, request(newDescriptor("k=1")), "OK: OK", 4)
	w.set(t, with(50))
	w.want(t, request(newDescriptor("k=1")), "OK: OK", 48)
	w.start(t)
	w.rules = nil
	w.set(t, with(5))
	w.want(t, request(newDescriptor("k=1")), "OK: OK", 47)
	for _, p := range w.rules.Policies() {
		must(t, w.Set(context.Background(), p, p))
	}
	w.want(t, request(newDescriptor("k=1")), "OK: OK", 1)
}

// overlapping notes whether two refunds are between looking and charging at once.
type overlapping struct {
	weir.Limiter
	inside, met atomic.Int64
}

func (o *overlapping) Do(ctx context.Context, b *weir.Batch) error {
	switch b.Op {
	case weir.PeekEach:
		if o.inside.Add(1) > 1 {
			o.met.Add(1)
		}
	case weir.DebitEach:
		defer o.inside.Add(-1)
	}
	runtime.Gosched()
	return o.Limiter.Do(ctx, b)
}

// TestRefundsTakeTurns: of hits that are given back at the same time none is counted twice.
func TestRefundsTakeTurns(t *testing.T) {
	d := tree()
	d.NegativeHits = true
	d.Descriptors[1].Limit = perMinute(100)
	w := newWorld(t, d)
	w.want(t, request(hits(90, newDescriptor("any=vip"))), "OK: OK", 10)
	o := &overlapping{Limiter: w.limiter}
	w.limiter = o
	w.service.core.Observe = func(*ruleset.Record) {}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			x := hits(1, newDescriptor("any=vip"))
			x.IsNegativeHits = true
			if _, err := w.ask(request(x)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if o.met.Load() > 0 {
		t.Errorf("%d refunds began while another was under way", o.met.Load())
	}
	w.want(t, request(hits(0, newDescriptor("any=vip"))), "OK: OK", 30)
}

// TestWhatRemains: a descriptor that was not charged, because another one was refused, reports what
// remains, also if the store was not called, and for negative hits.
func TestWhatRemains(t *testing.T) {
	d := tree()
	d.NegativeHits = true
	w := newWorld(t, d)
	w.limiter = before(t, w, w.limiter, 1, weir.FailLocal)
	for range 3 {
		w.want(t, request(newDescriptor("any=x")), "OK: OK")
	}
	w.want(t, request(hits(2, newDescriptor("any=vip"))), "OK: OK", 5)
	for range 2 { // the second time, the tier knows
		w.want(t, request(newDescriptor("any=x"), newDescriptor("any=vip"), newDescriptor("any=y")), "OVER_LIMIT: OVER_LIMIT,OK,OK", 0, 5, 3)
	}
	x := hits(1, newDescriptor("any=vip"))
	x.IsNegativeHits = true
	w.want(t, request(newDescriptor("shut=x"), x), "OVER_LIMIT: OVER_LIMIT,OK", 0, 5)
}

// slow is a limiter that does not decide on one policy.
type slow struct {
	weir.Limiter
	policy string
}

func (s slow) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	if p.Name() == s.policy {
		return weir.Decision{}, errors.New("too slow")
	}
	return s.Limiter.Take(ctx, p, key, cost)
}

// TestShadowFails: what only watches fails no request.
func TestShadowFails(t *testing.T) {
	w := newWorld(t, tree())
	w.limiter = slow{w.limiter, "envoy/d/try"}
	w.want(t, request(newDescriptor("any=vip"), newDescriptor("try=x")), "OK: OK,OK", 6)
}

// named notes the names of policies.
type named struct {
	weir.Limiter
	names map[string]bool
}

func (n named) Take(ctx context.Context, p *weir.Policy, key string, cost int64) (weir.Decision, error) {
	n.names[p.Name()] = true
	return n.Limiter.Take(ctx, p, key, cost)
}

// TestOverridesAreFew: limits of requests with other periods are counted apart, and yet
// their numbers make no new policies.
func TestOverridesAreFew(t *testing.T) {
	w := newWorld(t, tree())
	n := named{w.limiter, map[string]bool{}}
	w.limiter = n
	for times := range uint32(100) {
		x := newDescriptor("any=vip")
		x.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{
			RequestsPerUnit: 5, Unit: typev3.RateLimitUnit_HOUR, UnitMultiplier: wrapperspb.UInt32(times + 1),
		}
		w.want(t, request(x), "OK: OK", 4)
		w.want(t, request(x), "OK: OK", 3)
	}
	if len(n.names) != 1 {
		t.Errorf("%d policies", len(n.names))
	}
}

// TestFloodOfOverrides: with too many different limit overrides in requests, further ones are refused
// with an error; other limits of this domain and of others are still decided, and rules can
// be set.
func TestFloodOfOverrides(t *testing.T) {
	other := tree()
	other.Name = "other"
	w := newWorld(t, tree(), other)
	brings := func(n uint32) *rlcommon.RateLimitDescriptor {
		x := newDescriptor(fmt.Sprint("any=", n))
		x.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: typev3.RateLimitUnit_HOUR}
		return x
	}
	var err error
	n := uint32(0)
	for ; err == nil && n < 70_000; n++ {
		_, err = w.ask(request(brings(100 + n)))
	}
	wantFailure(t, err, codes.ResourceExhausted, "bring fewer different limits")
	w.want(t, request(brings(100)), "OK: OK", 98) // one that is in use goes on
	w.want(t, request(newDescriptor("any=vip")), "OK: OK", 6)
	w.want(t, request(newDescriptor("top=1", "deep=1")), "OK: OK", 1)
	elsewhere := func(d *rlcommon.RateLimitDescriptor) *rlsv3.RateLimitRequest {
		r := request(d)
		r.Domain = "other"
		return r
	}
	for i := range uint32(500) {
		w.want(t, elsewhere(brings(100+i)), "OK: OK", 99+i)
	}
	changed := tree()
	for i := range changed.Descriptors {
		if l := changed.Descriptors[i].Limit; l != nil {
			l.RequestsPerUnit += 7
		}
	}
	w.set(t, changed, other)
	w.now = w.now.Add(2 * time.Hour) // and all of them are as if unused
	for i := range uint32(500) {
		w.want(t, request(brings(200_000+i)), "OK: OK")
	}
}
