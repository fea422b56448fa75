package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// A refusal says whether reservations are open, unless none of them could make room for it.
func TestHeld(t *testing.T) {
	redis := redistest.Start(t)
	clock := duelStart
	for _, p := range twoWays(t) {
		s := open(t, Config{Redis: server(redis.Addr()), Now: func() weir.Instant { return clock }})
		want := func(what string, cost int64, allowed, held bool) {
			t.Helper()
			take, err := s.Take(context.Background(), p, "k", cost)
			if err != nil || take.Allowed != allowed || take.Held != held {
				t.Errorf("%s: take: %s, error %v; want allowed %v, held %v", what, show(take), err, allowed, held)
			}
			peek, err := weir.Peek(context.Background(), s, p, "k", cost)
			if err != nil || peek.Held != held {
				t.Errorf("%s: peek: %s, error %v; want held %v", what, show(peek), err, held)
			}
		}
		if _, err := weir.Reserve(context.Background(), s, time.Minute, weir.Charge{Policy: p, Key: "k", Cost: 60}); err != nil {
			t.Fatal(err)
		}
		want("open", 41, false, true)
		want("too costly", 101, false, false)
		want("allowed", 0, true, false)
		clock = clock.Add(time.Minute)
		want("expired", 41, false, false)
		res, err := weir.Reserve(context.Background(), s, time.Minute, weir.Charge{Policy: p, Key: "k", Cost: 40})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := res.Commit(context.Background(), 40); err != nil {
			t.Fatal(err)
		}
		want("settled", 41, false, false)
	}
}
