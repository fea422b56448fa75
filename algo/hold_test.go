package algo

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestHoldsInOrder: holds in chunks are the same as in one slice that is sorted
// whenever something changes, with so many that chunks are split and emptied.
func TestHoldsInOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var hs Holds
	var plain []Hold
	id := uint64(0)
	for i := range 20_000 {
		switch n := rng.IntN(10); {
		case n < 5 && i/4_000%2 == 0 || len(plain) == 0: // grows and shrinks by turns
			id++
			h := Hold{ID: id, Units: rng.Int64N(5), Expiry: rng.Int64N(300), charged: int64(i)}
			hs.add(h)
			plain = append(plain, h)
		case n < 7:
			h := &plain[rng.IntN(len(plain))]
			to := rng.Int64N(300)
			hs.move(*h, to)
			h.Expiry = to
		default:
			j := rng.IntN(len(plain))
			hs.remove(plain[j])
			if _, ok := hs.find(plain[j].ID); ok {
				t.Fatalf("step %d: hold %d is still there", i, plain[j].ID)
			}
			plain = slices.Delete(plain, j, j+1)
		}
		if i%50 == 0 {
			checkHolds(t, &hs, plain)
		}
	}
	checkHolds(t, &hs, plain)
}

func checkHolds(t *testing.T, hs *Holds, plain []Hold) {
	t.Helper()
	want := slices.Clone(plain)
	slices.SortFunc(want, func(a, b Hold) int {
		if a.before(b.Expiry, b.ID) {
			return -1
		}
		return 1
	})
	var got []Hold
	for h := range hs.all() {
		got = append(got, *h)
	}
	if !slices.Equal(got, want) || hs.count != len(want) {
		t.Fatalf("holds %v, %d of them, want %v", got, hs.count, want)
	}
	var units int64
	for _, h := range want {
		units += h.Units
		if found, ok := hs.find(h.ID); !ok || found != h {
			t.Fatalf("hold %d: found %+v, %v, want %+v", h.ID, found, ok, h)
		}
	}
	if hs.units != units {
		t.Fatalf("%d units, want %d", hs.units, units)
	}
	for _, c := range hs.chunks {
		if len(c) == 0 || len(c) > maxChunk {
			t.Fatalf("a chunk of %d holds", len(c))
		}
	}
	if len(hs.byID) > 2*len(want)+maxChunk {
		t.Fatalf("%d ids for %d holds", len(hs.byID), len(want))
	}
}

// TestRollback: what was tried after a checkpoint leaves no trace.
func TestRollback(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, src := reached(t, allKinds...)
		l, now := p.real, max(p.now, p.model.last)
		before := l.Clone()
		before.Advance(now)
		outer := l.Checkpoint(now)
		var inner []Checkpoint
		for range between(src, 1, 8) {
			switch between(src, 0, 6) {
			case 0:
				inner = append(inner, l.Checkpoint(now))
			case 1:
				if n := len(inner); n > 0 {
					l.Rollback(inner[n-1])
					inner = inner[:n-1]
				}
			case 2:
				l.Debit(now, between(src, 0, 9))
			case 3:
				l.EndHoldsBy(now + between(src, 1, hour))
			case 4:
				_ = l.Set(now, p.build([]ruleSpec{drawSpec(src, allKinds...), drawSpec(src, allKinds...)}), []int{0, -1})
			case 5:
				l.Take(now, between(src, 0, 3))
			default:
				l.Reserve(now, between(src, 0, 3), now+between(src, 1, hour))
			}
		}
		l.Rollback(outer)
		if got, want := l.AppendBinary(nil), before.AppendBinary(nil); !bytes.Equal(got, want) || !slices.Equal(l.rules, before.rules) {
			p.fail("after a rollback %x, want %x", got, want)
		}
		p.peekAll()
		if id, v := l.Reserve(now, 1, now+2*hour); v.OK && (id != before.nextID+1 || l.Settle(now, id, 1).Late) {
			p.fail("a hold after the rollback, %d, is not found", id)
		}
	})
}

// TestSetLooksAtNoHold: a call that has other limits costs the same however many
// holds are open.
func TestSetLooksAtNoHold(t *testing.T) {
	l := NewLedger([]Rule{must(t, gcraSpec(1_000_000, second, 1_000_000)), must(t, fixedSpec(1_000_000, hour))}, start)
	other := []Rule{must(t, gcraSpec(2_000_000, second, 2_000_000)), must(t, fixedSpec(2_000_000, minute))}
	for range 1_000 {
		l.Reserve(start, 1, start+hour)
	}
	chunks := l.holds.chunks
	l.holds.chunks = [][]Hold{chunks[0][:1], chunks[len(chunks)-1]} // whoever looks at all of them meets too few
	allocs := testing.AllocsPerRun(100, func() {
		c := l.Checkpoint(start)
		if err := l.Set(start, other, []int{0, 1}); err != nil {
			t.Fatal(err)
		}
		l.EndHoldsBy(start + 2*hour)
		if v := l.Take(start, 1); !v.OK || v.Remaining != 2_000_000-1_001 {
			t.Fatalf("%+v", v)
		}
		l.Rollback(c)
	})
	if allocs > 5 {
		t.Errorf("%v allocations", allocs)
	}
}

// TestSetAfterForfeit: a hold that is charged after a Set forfeited the holds before it is
// refunded after another Set at the same instant. Their forfeiture is not its own.
func TestSetAfterForfeit(t *testing.T) {
	short, long := ruleSpec{kind: kindAnchored, rate: 4, per: second}, ruleSpec{kind: kindAnchored, rate: 4, per: hour}
	l := NewLedger([]Rule{must(t, ruleSpec{kind: kindSlots, rate: 4})}, start)
	before, _ := l.Reserve(start, 1, start+minute)
	if err := l.Set(start, []Rule{must(t, short)}, []int{0}); err != nil {
		t.Fatal(err)
	}
	after, _ := l.Reserve(start, 1, start+minute)
	if err := l.Set(start, []Rule{must(t, long)}, []int{0}); err != nil {
		t.Fatal(err)
	}
	if got := l.Settle(start, before, 0); got.Refunded != 0 {
		t.Errorf("the slot of before, which was never charged to a window: %+v", got)
	}
	if got := l.Settle(start, after, 0); got.Refunded != 1 {
		t.Errorf("the unit charged after the first Set: %+v", got)
	}
}
