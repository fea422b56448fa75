package redisstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/internal/storeapi"
)

// What a node sends that decides on its own in between is one call of small.lua: what it has
// granted, the costs of those who wait, and a cost of 0 to learn what is left.
func TestUsedIsOneSmallCall(t *testing.T) {
	redis := redistest.Start(t)
	s := open(t, Config{Redis: server(redis.Addr()), Now: still})
	p := newPolicy(t, "p", weir.Limit{Rate: 10, Per: weir.Every(time.Hour)})
	charges := []weir.Charge{{Policy: p, Key: "k", Cost: 2}, {Policy: p, Key: "k", Cost: 5}, {Policy: p, Key: "k", Cost: 1}, {Policy: p, Key: "k"}}
	b := weir.Batch{Op: weir.TakeEach, Charges: charges, Used: []int64{4, 0, 0, 0}}
	whole, err := s.newCall(context.Background(), &b)
	if err != nil {
		t.Fatal(err)
	}
	if script, _, _ := whole.encode(s); script != smallScript {
		t.Error("the batch is not for small.lua")
	}
	do(t, s, &weir.Batch{Op: weir.TakeEach, Charges: []weir.Charge{{Policy: p, Key: "other"}}}) // the server gets to know the script
	before := s.counts.commands.Load()
	do(t, s, &b)
	if got := s.counts.commands.Load() - before; got != 1 {
		t.Errorf("%d commands, want 1", got)
	}
	for i, want := range []struct {
		allowed bool
		left    int64
	}{{true, 4}, {false, 4}, {true, 3}, {true, 3}} {
		if d := b.Decisions[i]; d.Allowed != want.allowed || d.Remaining != want.left {
			t.Errorf("charge %d: %s, want allowed %v and %d left", i, show(d), want.allowed, want.left)
		}
	}
}

// What was used stays charged if the batch is refused, whichever script decides, and on
// however many slots.
func TestUsedStaysWhenRefused(t *testing.T) {
	redis := redistest.Start(t)
	for _, p := range twoWays(t) {
		for _, op := range []weir.Op{weir.TakeEach, weir.TakeAll, weir.ReserveAll} {
			for _, slots := range []int{1, 2} {
				s := open(t, Config{Redis: server(redis.Addr()), Now: still})
				b := weir.Batch{Op: op, Charges: []weir.Charge{{Policy: p, Key: "a", Cost: 96}, {Policy: p, Key: "b", Cost: 1}}, Used: []int64{5, 7}}
				if err := doOver(s, &b, slots); err != nil {
					t.Fatal(err)
				}
				left := int64(93)
				if op == weir.TakeEach {
					left--
				}
				wantLeft(t, p.Name()+" "+ops[op], s, p, "a", 95)
				wantLeft(t, p.Name()+" "+ops[op], s, p, "b", left)
				if b.Decisions[0].Allowed {
					t.Errorf("%s: 96 of 95 were allowed", ops[op])
				}
			}
		}
	}
}

// doOver carries out a batch of two charges as if they were on so many slots.
func doOver(s *Store, b *weir.Batch, slots int) error {
	if slots == 1 {
		return s.Do(context.Background(), b)
	}
	if err := storeapi.CheckBatch(b); err != nil {
		return err
	}
	whole, err := s.newCall(context.Background(), b)
	if err != nil {
		return err
	}
	whole.until = weir.Now().Add(s.timeout)
	if err := s.carryOutOver(context.Background(), whole, [][]int{{0}, {1}}, s.timeout); err != nil {
		return err
	}
	fill(b, whole)
	return nil
}

// A batch that fails after it has charged what was used does not say that nothing was charged.
func TestUsedAndThenAnError(t *testing.T) {
	redis := redistest.Start(t)
	s := open(t, Config{Redis: server(redis.Addr()), Now: still})
	p := newPolicy(t, "p", weir.Limit{Rate: 10, Per: weir.Every(time.Hour)})
	redis.MustDo("SET", rowKey(s.rowPrefix("p"), "b"), "foreign")
	b := weir.Batch{Op: weir.TakeAll, Charges: []weir.Charge{{Policy: p, Key: "a", Cost: 1}, {Policy: p, Key: "b", Cost: 1}}, Used: []int64{5, 0}}
	if err := doOver(s, &b, 2); !errors.Is(err, weir.ErrUnknown) {
		t.Errorf("got error %v, want one with ErrUnknown", err)
	}
	wantLeft(t, "after what was used", s, p, "a", 5)
}
