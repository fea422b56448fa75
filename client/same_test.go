package client_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/server"
)

// pair is a daemon's limiter beside one in this process, with the same clock and the same
// policies: what one says, the other must.
type pair struct {
	near, far weir.Limiter
	clock     *apitest.Clock
	policies  []*weir.Policy
	open      []opened
}

// opened is a reservation, known to each side by another number.
type opened struct {
	charge    weir.Charge
	near, far weir.Receipt
}

// TestSame drives a daemon and a table with the same steps and compares every answer.
func TestSame(t *testing.T) {
	minute := weir.Every(time.Minute)
	policies := []*weir.Policy{
		newPolicy(t, "plain", weir.Limit{Rate: 7, Per: minute, Burst: 5}),
		newPolicy(t, "two", weir.Limit{Name: "short", Rate: 3, Per: weir.Every(time.Second)}, weir.Limit{Name: "long", Rate: 10, Per: minute, Algorithm: weir.FixedWindow}),
		newPolicy(t, "slots", weir.Limit{Rate: 2, Algorithm: weir.Concurrency}),
		newPolicy(t, "jobs", weir.Limit{Rate: 10, Per: minute, Burst: 8, Classes: weir.ClassesOf(
			weir.Class{Name: "realtime", Guaranteed: 6}, weir.Class{Name: "batch", Guaranteed: 2, NoBorrow: true}, weir.Class{Name: "backfill"})}),
	}
	time := apitest.NewClock()
	address, _ := daemon(t, server.Config{Limiter: apitest.Table(t, time.Now), Live: server.Live{Policies: rules(policies...)}})
	far := dial(t, client.Config{Address: address})
	for _, class := range []string{"realtime", "batch"} {
		policies = append(policies, ofClass(t, policies[3], class))
	}
	run := uint64(0)
	rapid.Check(t, func(r *rapid.T) {
		// What one run leaves behind does not concern the next: its keys are others.
		p := &pair{near: apitest.Table(t, time.Now), far: far, clock: time, policies: policies}
		run++
		for range rapid.IntRange(1, 40).Draw(r, "steps") {
			p.step(r, run)
		}
	})
}

func (p *pair) charge(r *rapid.T, run uint64) weir.Charge {
	return weir.Charge{
		Policy: rapid.SampledFrom(p.policies).Draw(r, "policy"),
		Key:    fmt.Sprint(run, "-", rapid.IntRange(1, 3).Draw(r, "key")),
		Cost:   rapid.Int64Range(0, 6).Draw(r, "cost"),
	}
}

func (p *pair) charges(r *rapid.T, run uint64) (out []weir.Charge) {
	for range rapid.IntRange(1, 5).Draw(r, "charges") {
		if c := p.charge(r, run); !c.Policy.ReserveOnly() {
			out = append(out, c)
		}
	}
	return out
}

func (p *pair) step(r *rapid.T, run uint64) {
	switch kind := rapid.IntRange(0, 8).Draw(r, "kind"); kind {
	case 0:
		p.clock.Pass(time.Duration(rapid.IntRange(0, 20_000).Draw(r, "ms")) * time.Millisecond)
	case 1, 2:
		p.take(r, p.charge(r, run))
	case 3, 4, 5, 6:
		op := []weir.Op{weir.TakeEach, weir.TakeAll, weir.PeekEach, weir.DebitEach}[kind-3]
		if charges := p.charges(r, run); len(charges) > 0 {
			p.do(r, op, charges)
		}
	case 7:
		p.reserve(r, p.charge(r, run))
	case 8:
		p.settle(r)
	}
}

func (p *pair) take(r *rapid.T, c weir.Charge) {
	near, nearErr := p.near.Take(ctx, c.Policy, c.Key, c.Cost)
	far, farErr := p.far.Take(ctx, c.Policy, c.Key, c.Cost)
	if nearErr != farErr { //nolint:errorlint // it is the same one
		r.Fatalf("Take %v: %v, want %v", c, farErr, nearErr)
	}
	sameDecisions(r, []weir.Decision{near}, []weir.Decision{far})
}

func (p *pair) do(r *rapid.T, op weir.Op, charges []weir.Charge) {
	near, far := weir.Batch{Op: op, Charges: charges}, weir.Batch{Op: op, Charges: charges}
	if err := p.near.Do(ctx, &near); err != nil {
		r.Fatal(err)
	}
	if err := p.far.Do(ctx, &far); err != nil {
		r.Fatal(err)
	}
	sameDecisions(r, near.Decisions, far.Decisions)
}

func (p *pair) reserve(r *rapid.T, c weir.Charge) {
	ttl := time.Duration(rapid.IntRange(0, 30).Draw(r, "ttl")) * time.Second
	near := weir.Batch{Op: weir.ReserveAll, Charges: []weir.Charge{c}, TTL: ttl}
	far := weir.Batch{Op: weir.ReserveAll, Charges: []weir.Charge{c}, TTL: ttl}
	if err := p.near.Do(ctx, &near); err != nil {
		r.Fatal(err)
	}
	if err := p.far.Do(ctx, &far); err != nil {
		r.Fatal(err)
	}
	sameDecisions(r, near.Decisions, far.Decisions)
	if near.Allowed() {
		p.open = append(p.open, opened{charge: c, near: near.Receipts[0], far: far.Receipts[0]})
	}
}

// settle settles or renews a reservation.
func (p *pair) settle(r *rapid.T) {
	if len(p.open) == 0 {
		return
	}
	i := rapid.IntRange(0, len(p.open)-1).Draw(r, "reservation")
	o := p.open[i]
	op, ttl := weir.Settle, time.Duration(0)
	if rapid.Bool().Draw(r, "renew") {
		op, ttl = weir.Renew, time.Duration(rapid.IntRange(1, 30).Draw(r, "ttl"))*time.Second
	} else {
		o.charge.Cost = rapid.Int64Range(0, 8).Draw(r, "used")
		p.open = append(p.open[:i], p.open[i+1:]...)
	}
	near := weir.Batch{Op: op, Charges: []weir.Charge{o.charge}, Receipts: []weir.Receipt{o.near}, TTL: ttl}
	far := weir.Batch{Op: op, Charges: []weir.Charge{o.charge}, Receipts: []weir.Receipt{o.far}, TTL: ttl}
	if err := p.near.Do(ctx, &near); err != nil {
		r.Fatal(err)
	}
	if err := p.far.Do(ctx, &far); err != nil {
		r.Fatal(err)
	}
	if diff := cmp.Diff(near.Settled, far.Settled); op == weir.Settle && diff != "" {
		r.Fatalf("settled (-near +far):\n%s", diff)
	}
	if near.Allowed() != far.Allowed() {
		r.Fatalf("renewed %v here, %v there", near.Allowed(), far.Allowed())
	}
}

// sameDecisions compares decisions, those of the daemon in whole milliseconds. If allowed, it does
// not tell by which limit. Held is not on the wire.
func sameDecisions(r *rapid.T, near, far []weir.Decision) {
	want := make([]weir.Decision, len(near))
	for i, d := range near {
		d.RetryAfter, d.ResetAfter, d.Held = millis(d.RetryAfter), millis(d.ResetAfter), false
		if d.Allowed || d.Reason == weir.NotCharged {
			d.By = 0
		}
		want[i] = d
	}
	if diff := cmp.Diff(want, far); diff != "" {
		r.Fatalf("decisions (-near +far):\n%s", diff)
	}
}

func millis(d time.Duration) time.Duration {
	if d == weir.Never {
		return weir.Never
	}
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}
