package connectapi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/weirlimit/weir"
	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/gen/weir/v1/weirv1connect"
	"github.com/weirlimit/weir/ruleset"
)

// pair is a service and an engine that get the same calls.
type pair struct {
	t      *testing.T
	dice   *rand.Rand
	client weirv1connect.LimiterServiceClient
	far    *world // behind the client
	near   *world // asked directly
	held   []heldPair
}

// heldPair is one reservation, on both sides.
type heldPair struct {
	id     string
	ticket *ruleset.Ticket
}

// TestSameDecisions sends random calls through each protocol and straight to an engine, with
// the same clock: all answers are equal.
func TestSameDecisions(t *testing.T) {
	for i, how := range transports() {
		t.Run(how.name, func(t *testing.T) {
			p := &pair{t: t, dice: rand.New(rand.NewPCG(7, uint64(i))), far: newWorld(t, nil), near: newWorld(t, nil)}
			p.client, _ = p.far.start(t, how)
			for range 300 {
				p.step()
			}
			if len(p.far.records) < 100 {
				t.Errorf("only %d decisions were made", len(p.far.records))
			}
		})
	}
}

func (p *pair) step() {
	switch p.dice.IntN(10) {
	case 0:
		pause := time.Duration(p.dice.IntN(2000)) * time.Millisecond
		p.far.clock.Pass(pause)
		p.near.clock.Pass(pause)
	case 1, 2, 3:
		p.check()
	case 4, 5, 6:
		p.batch()
	case 7:
		p.reserve()
	default:
		p.settle()
	}
}

// ask invents a query that is in order. The keys are few, so that limits are met.
func (p *pair) ask() (policy string, q ruleset.Query) {
	policy = []string{"default", "api", "llm", "jobs"}[p.dice.IntN(4)]
	q = ruleset.Query{Key: fmt.Sprint("key", p.dice.IntN(3)), Cost: int64(p.dice.IntN(40))}
	q.Keys = []ruleset.Attribute{{Name: "user", Value: fmt.Sprint("user", p.dice.IntN(2))}}
	if policy == "llm" && p.dice.IntN(2) == 0 {
		q.Cost, q.Costs = 1, []ruleset.Cost{{Unit: "tokens", Amount: int64(1 + p.dice.IntN(300))}}
	}
	if policy == "jobs" {
		q.Cost, q.Class = q.Cost/5, []string{"", "realtime", "backfill"}[p.dice.IntN(3)]
	}
	return policy, q
}

func costMap(list []ruleset.Cost) map[string]int64 {
	m := map[string]int64{}
	for _, c := range list {
		m[c.Unit] = c.Amount
	}
	return m
}

func (p *pair) equal(got, want proto.Message) {
	p.t.Helper()
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		p.t.Fatalf("%T (-engine +service):\n%s", got, diff)
	}
}

func (p *pair) check() {
	policy, q := p.ask()
	peek := p.dice.IntN(4) == 0
	got, err := p.client.Check(context.Background(), &weirv1.CheckRequest{
		Policy: policy, Key: q.Key, Cost: &q.Cost, Keys: map[string]string{"user": q.Keys[0].Value}, Costs: costMap(q.Costs), Class: q.Class, Peek: peek,
	})
	must(p.t, err)
	decide := p.near.engine.Check
	if peek {
		decide = p.near.engine.Peek
	}
	v, err := decide(context.Background(), p.near.engine.Rules().Rule(policy), &q)
	must(p.t, err)
	p.equal(got, plainCheck(&v))
}

// plainCheck is the answer that a verdict must become, written without the code under
// test. The clock moves in whole milliseconds, but rates of 3 do not.
func plainCheck(v *ruleset.Verdict) *weirv1.CheckResponse {
	up := func(d time.Duration) int64 {
		if d == weir.Never {
			return -1
		}
		return (d + time.Millisecond - 1).Milliseconds()
	}
	out := &weirv1.CheckResponse{Allowed: v.Allowed, Policy: v.Policy(), Limit: v.Decision.Limit, Remaining: v.Remaining, ResetAfterMs: up(v.ResetAfter), Reason: v.Reason.String()}
	if !v.Allowed {
		out.LimitedBy, out.RetryAfterMs = v.LimitedBy(), up(v.RetryAfter)
	}
	return out
}

func (p *pair) batch() {
	req := &weirv1.CheckBatchRequest{Policy: []string{"api", "default", "llm", "jobs"}, Class: []string{"", "backfill", "realtime"}, Atomic: p.dice.IntN(2) == 0}
	users, tokens := &weirv1.KeyColumn{Name: "user"}, &weirv1.CostColumn{Unit: "tokens"}
	var items []ruleset.Item
	for range p.dice.IntN(6) {
		policy, q := p.ask()
		rule := p.near.engine.Rules().Rule(policy)
		items = append(items, ruleset.Item{Rule: rule, Query: q, Peek: !req.Atomic && p.dice.IntN(4) == 0})
		req.Key, req.Cost, req.Peek = append(req.Key, q.Key), append(req.Cost, q.Cost), append(req.Peek, items[len(items)-1].Peek)
		req.PolicyIndex = append(req.PolicyIndex, map[string]uint32{"api": 0, "default": 1, "llm": 2, "jobs": 3}[policy])
		req.ClassIndex = append(req.ClassIndex, map[string]uint32{"": 0, "backfill": 1, "realtime": 2}[q.Class])
		users.Key, tokens.Cost = append(users.Key, q.Keys[0].Value), append(tokens.Cost, costMap(q.Costs)["tokens"])
	}
	req.Keys, req.Costs = []*weirv1.KeyColumn{users}, []*weirv1.CostColumn{tokens}
	got, err := p.client.CheckBatch(context.Background(), req)
	must(p.t, err)
	var verdicts []ruleset.Verdict
	if req.Atomic {
		verdicts, err = p.near.engine.CheckAll(context.Background(), items)
	} else {
		verdicts, err = p.near.engine.CheckEach(context.Background(), items, nil)
	}
	must(p.t, err)
	if len(got.Allowed) != len(verdicts) {
		p.t.Fatalf("%d decisions of %d", len(got.Allowed), len(verdicts))
	}
	for i := range verdicts {
		p.equal(row(got, verdicts[i].Policy(), i), plainCheck(&verdicts[i]))
	}
}

// row returns a decision of a batch.
func row(b *weirv1.CheckBatchResponse, policy string, i int) *weirv1.CheckResponse {
	number := func(column []int64) int64 {
		if len(column) == 0 {
			return 0
		}
		return column[i]
	}
	word := func(words []string, column []uint32) string {
		if len(column) == 0 {
			return words[0]
		}
		return words[column[i]]
	}
	return &weirv1.CheckResponse{
		Allowed: b.Allowed[i], Policy: policy, LimitedBy: word(b.LimitedBy, b.LimitedByIndex), Reason: word(b.Reason, b.ReasonIndex),
		Limit: number(b.Limit), Remaining: number(b.Remaining), RetryAfterMs: number(b.RetryAfterMs), ResetAfterMs: number(b.ResetAfterMs),
	}
}

func (p *pair) reserve() {
	policy, q := p.ask()
	if p.dice.IntN(3) == 0 {
		policy, q.Costs, q.Cost, q.Class = "slots", nil, 1, ""
	}
	ttl := int64(p.dice.IntN(5000))
	got, err := p.client.Reserve(context.Background(), &weirv1.ReserveRequest{
		Policy: policy, Key: q.Key, Cost: &q.Cost, Keys: map[string]string{"user": q.Keys[0].Value}, Costs: costMap(q.Costs), Class: q.Class, TtlMs: ttl,
	})
	must(p.t, err)
	v, ticket, err := p.near.engine.Reserve(context.Background(), p.near.engine.Rules().Rule(policy), &q, time.Duration(ttl)*time.Millisecond)
	must(p.t, err)
	c := plainCheck(&v)
	want := &weirv1.ReserveResponse{
		Allowed: c.Allowed, Policy: c.Policy, LimitedBy: c.LimitedBy, Limit: c.Limit, Remaining: c.Remaining,
		RetryAfterMs: c.RetryAfterMs, ResetAfterMs: c.ResetAfterMs, Reason: c.Reason, Id: got.Id, ExpiresInMs: got.ExpiresInMs,
	}
	p.equal(got, want)
	if got.Allowed != (got.Id != "") || got.Allowed != (got.ExpiresInMs > 0) {
		p.t.Fatalf("Reserve = %v", got)
	}
	if got.Allowed {
		p.held = append(p.held, heldPair{got.Id, ticket})
	}
}

// settle ends or renews a reservation, old ones too: they must stay ended.
func (p *pair) settle() {
	if len(p.held) == 0 {
		return
	}
	h := p.held[p.dice.IntN(len(p.held))]
	ctx := context.Background()
	switch p.dice.IntN(3) {
	case 0:
		got, err := p.client.Renew(ctx, &weirv1.RenewRequest{Id: h.id, TtlMs: 3000})
		must(p.t, err)
		renewed, err := p.near.engine.Renew(ctx, h.ticket, 3*time.Second)
		must(p.t, err)
		if got.Renewed != renewed {
			p.t.Fatalf("renewed = %v, want %v", got.Renewed, renewed)
		}
	case 1:
		got, err := p.client.Cancel(ctx, &weirv1.CancelRequest{Id: h.id})
		must(p.t, err)
		want, err := p.near.engine.Settle(ctx, h.ticket, ruleset.Used{None: true})
		must(p.t, err)
		p.equal(got, &weirv1.CancelResponse{Refunded: want.Refunded, Overrun: want.Overrun, Late: want.Late})
	default:
		used := ruleset.Used{HaveCost: true, Cost: int64(p.dice.IntN(20))}
		if h.ticket.Policy() == "llm" {
			used.Costs = []ruleset.Cost{{Unit: "tokens", Amount: int64(p.dice.IntN(400))}}
		}
		got, err := p.client.Commit(ctx, &weirv1.CommitRequest{Id: h.id, Used: &used.Cost, UsedCosts: costMap(used.Costs)})
		must(p.t, err)
		want, err := p.near.engine.Settle(ctx, h.ticket, used)
		must(p.t, err)
		p.equal(got, &weirv1.CommitResponse{Refunded: want.Refunded, Overrun: want.Overrun, Late: want.Late})
	}
}
