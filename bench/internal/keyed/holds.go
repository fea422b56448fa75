package keyed

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/bench/internal/harness"
	"github.com/weirlimit/weir/store/memstore"
)

// besideHolds is the least ratio that is good beside many open reservations: a call
// costs at most three times what it costs beside none, or beside one.
const besideHolds = 1.0 / 3

// heldKey is the key that has the reservations.
const heldKey = "held"

// holdCases are about one key on which reservations are open.
func holdCases() []harness.Case {
	return []harness.Case{
		{
			Name: "Take beside reservations", Note: "One key, on which so many reservations are open.",
			Goroutines: 1, Expect: harness.Admit, NoChart: true, Against: holdName("Take", 0),
			Contenders: []harness.Contender{
				besideOpen("Take", 0, 0, takeOne), besideOpen("Take", 1_000, besideHolds, takeOne),
			},
		},
		{
			Name: "Reserve and Settle beside reservations", Note: "One key, on which so many other reservations are open.",
			Goroutines: 1, Expect: harness.Admit, NoChart: true, Against: holdName("ReserveAll and Settle", 1),
			Contenders: []harness.Contender{
				besideOpen("ReserveAll and Settle", 1, 0, reserveOne),
				besideOpen("ReserveAll and Settle", 1_000, besideHolds, reserveOne),
				besideOpen("ReserveAll and Settle", 9_990, besideHolds, reserveOne),
			},
		},
	}
}

func holdName(what string, open int) string {
	return fmt.Sprintf("weir %s, %s open", what, harness.Grouped(open))
}

// besideOpen is a contender that makes calls on a key with so many open reservations.
func besideOpen(what string, open int, goal float64, call func(*memstore.Table, *weir.Policy) func() bool) harness.Contender {
	return harness.Contender{Name: holdName(what, open), Kind: harness.Weir, Goal: goal, New: func() (harness.Run, error) {
		t, p, err := newTable(memstore.Config{MaxKeys: 1}, plenty.limit("main"))
		if err != nil {
			return nil, err
		}
		for i := range open {
			ttl := 30*time.Minute + time.Duration(i*7919%1000)*time.Second
			if _, err := weir.Reserve(context.Background(), t, ttl, weir.Charge{Policy: p, Key: heldKey, Cost: 1}); err != nil {
				return nil, err
			}
		}
		return func(n int) (admitted int) {
			one := call(t, p)
			for range n {
				if one() {
					admitted++
				}
			}
			return admitted
		}, nil
	}}
}

func takeOne(t *memstore.Table, p *weir.Policy) func() bool {
	ctx := context.Background()
	return func() bool {
		d, err := t.Take(ctx, p, heldKey, 1)
		return d.Allowed && err == nil
	}
}

func reserveOne(t *memstore.Table, p *weir.Policy) func() bool {
	ctx := context.Background()
	b := weir.Batch{Charges: []weir.Charge{{Policy: p, Key: heldKey, Cost: 1}}}
	return func() bool {
		b.Op = weir.ReserveAll
		if err := t.Do(ctx, &b); err != nil || !b.Allowed() {
			return false
		}
		b.Op = weir.Settle
		err := t.Do(ctx, &b)
		return err == nil && !b.Settled[0].Late
	}
}
