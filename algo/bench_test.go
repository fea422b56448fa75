package algo

import (
	"strconv"
	"testing"
)

// BenchmarkTakeBesideHolds takes from a ledger with so many open holds.
func BenchmarkTakeBesideHolds(b *testing.B) {
	for _, n := range []int{0, 1_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			l := holdingLedger(b, n)
			for now := start; b.Loop(); now += 1_000 {
				if v := l.Take(now, 1); !v.OK {
					b.Fatal(v)
				}
			}
		})
	}
}

// BenchmarkReserveBesideHolds reserves and settles with so many other holds open.
func BenchmarkReserveBesideHolds(b *testing.B) {
	for _, n := range []int{1, 1_000, 9_999} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			l := holdingLedger(b, n)
			for now := start; b.Loop(); now += 1_000 {
				id, v := l.Reserve(now, 1, now+30*minute)
				if !v.OK || l.Settle(now, id, 0).Late {
					b.Fatal(v)
				}
			}
		})
	}
}

// holdingLedger has n open holds, of different lengths.
func holdingLedger(b *testing.B, n int) *Ledger {
	l := NewLedger([]Rule{must(b, gcraSpec(1_000_000_000, second, 1_000_000_000))}, start)
	for i := range int64(n) {
		if _, v := l.Reserve(start, 1, start+20*hour+i*7919%1000*second); !v.OK {
			b.Fatal(v)
		}
	}
	return l
}
