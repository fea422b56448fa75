package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	weirv1 "github.com/weirlimit/weir/gen/weir/v1"
	"github.com/weirlimit/weir/server/internal/call"
)

// pair is a client and a service that get the same calls.
type pair struct {
	t      *testing.T
	dice   *rand.Rand
	client weirv1.LimiterServiceClient
	far    *world          // behind the client
	near   *world          // called directly
	inside context.Context // of near's calls
	held   [][2]string     // ids of one reservation, on both sides
	failed int
}

// TestSameAnswers sends random calls, some of which are wrong, over a socket and straight to
// a service with the same clock: all answers and errors are equal.
func TestSameAnswers(t *testing.T) {
	p := &pair{t: t, dice: rand.New(rand.NewPCG(7, 1)), far: newWorld(t, nil), near: newWorld(t, nil)}
	p.client = p.far.limiter(t)
	p.inside = call.WithCaller(context.Background(), call.Caller{State: p.near.state})
	for range 1000 {
		p.step()
	}
	if len(p.far.records) < 300 || p.failed < 30 {
		t.Errorf("only %d decisions and %d errors", len(p.far.records), p.failed)
	}
}

func (p *pair) step() {
	switch p.dice.IntN(10) {
	case 0:
		pause := time.Duration(p.dice.IntN(2000)) * time.Millisecond
		p.far.clock.Pass(pause)
		p.near.clock.Pass(pause)
	case 1, 2, 3:
		r := p.check()
		both(p, p.client.Check, p.near.service.Check, r, r)
	case 4, 5:
		r := p.batch()
		both(p, p.client.CheckBatch, p.near.service.CheckBatch, r, r)
	case 6, 7:
		p.reserve()
	default:
		p.markProven()
	}
}

// both makes a call on both sides and compares the answers.
func both[Q, R proto.Message](p *pair, far func(context.Context, Q, ...grpc.CallOption) (R, error), near func(context.Context, Q) (R, error), farQuery, nearQuery Q) {
	p.t.Helper()
	got, err := far(context.Background(), farQuery)
	want, problem := near(p.inside, nearQuery)
	p.sameError(farQuery, err, problem)
	if err == nil {
		p.equal(got, want)
	}
}

func (p *pair) equal(got, want proto.Message) {
	p.t.Helper()
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		p.t.Fatalf("%T (-service +client):\n%s", got, diff)
	}
}

func (p *pair) sameError(request proto.Message, err, problem error) {
	p.t.Helper()
	want := status.New(codes.OK, "")
	if bad, ok := errors.AsType[*call.Error](problem); ok {
		p.failed++
		want = status.New(codes.Code(bad.Code()), bad.Text())
	}
	if got := status.Convert(err); got.Code() != want.Code() || got.Message() != want.Message() || len(got.Details()) > 0 {
		p.t.Fatalf("%v: error %v, want %v", request, got, want)
	}
}

// policy is mostly one that exists.
func (p *pair) policy() string {
	return []string{"default", "default", "api", "llm", "slots", "jobs", "", "nobody's"}[p.dice.IntN(8)]
}

// class is mostly none.
func (p *pair) class() string {
	return []string{"", "", "", "", "", "realtime", "backfill"}[p.dice.IntN(7)]
}

func (p *pair) check() *weirv1.CheckRequest {
	return &weirv1.CheckRequest{
		Policy: p.policy(), Key: fmt.Sprint("key", p.dice.IntN(3)), Cost: proto.Int64(int64(p.dice.IntN(45) - 2)),
		Keys: map[string]string{"user": fmt.Sprint("user", p.dice.IntN(2))}, Class: p.class(), Peek: p.dice.IntN(4) == 0,
	}
}

func (p *pair) batch() *weirv1.CheckBatchRequest {
	r := &weirv1.CheckBatchRequest{Policy: []string{"api", "default", p.policy()}, Class: []string{"", p.class()}, Atomic: p.dice.IntN(2) == 0}
	user := &weirv1.KeyColumn{Name: "user"}
	for range p.dice.IntN(6) {
		r.Key = append(r.Key, fmt.Sprint("key", p.dice.IntN(3)))
		r.Cost = append(r.Cost, int64(p.dice.IntN(40)))
		r.PolicyIndex = append(r.PolicyIndex, uint32(p.dice.IntN(3)))
		r.ClassIndex = append(r.ClassIndex, uint32(p.dice.IntN(2)))
		user.Key = append(user.Key, fmt.Sprint("user", p.dice.IntN(2)))
	}
	r.Keys = []*weirv1.KeyColumn{user}
	return r
}

func (p *pair) reserve() {
	c := p.check()
	r := &weirv1.ReserveRequest{Policy: c.Policy, Key: c.Key, Cost: c.Cost, Keys: c.Keys, Class: c.Class, TtlMs: int64(p.dice.IntN(5000))}
	got, err := p.client.Reserve(context.Background(), r)
	want, problem := p.near.service.Reserve(p.inside, r)
	p.sameError(r, err, problem)
	if problem != nil {
		return
	}
	if got.Id != "" {
		p.held = append(p.held, [2]string{got.Id, want.Id})
	}
	got.Id, want.Id = "", "" // they are random
	p.equal(got, want)
}

// settle ends or renews a reservation, old ones too: they must stay ended.
func (p *pair) markProven() {
	id := [2]string{"?", "?"}
	if n := len(p.held); n > 0 {
		id = p.held[p.dice.IntN(n)]
	}
	switch p.dice.IntN(3) {
	case 0:
		both(p, p.client.Renew, p.near.service.Renew, &weirv1.RenewRequest{Id: id[0], TtlMs: 3000}, &weirv1.RenewRequest{Id: id[1], TtlMs: 3000})
	case 1:
		both(p, p.client.Cancel, p.near.service.Cancel, &weirv1.CancelRequest{Id: id[0]}, &weirv1.CancelRequest{Id: id[1]})
	default:
		used := proto.Int64(int64(p.dice.IntN(20)))
		both(p, p.client.Commit, p.near.service.Commit, &weirv1.CommitRequest{Id: id[0], Used: used}, &weirv1.CommitRequest{Id: id[1], Used: used})
	}
}
