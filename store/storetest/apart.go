package storetest

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/weirlimit/weir"
)

var apartTests = []test{
	{name: "keys and policies do not share", run: keysApart},
	{name: "any bytes are a key", run: oddKeys},
	{name: "thousands of keys", run: manyKeys, opts: Options{MaxKeys: 20_000}},
	{name: "key strings are not kept", run: keysNotKept},
	{name: "limits of a policy do not share", run: limitsApart},
}

func keysApart(r *rig) {
	a, b := r.policy("a", perHour(2)), r.policy("b", perHour(2))
	for _, p := range []*weir.Policy{a, b} {
		for _, key := range []string{"alice", "bob", ""} {
			r.wantTake(p, key, 2, admitted(2, 0, hours(1)))
			r.wantTake(p, key, 1, refused(2, 0, hours(0.5), hours(1)))
		}
	}
	r.reset(a, "alice")
	r.wantLeft("after a reset", a, "alice", 2, 2)
	r.wantLeft("after a reset of another key", a, "bob", 0, 2)
	r.wantLeft("after a reset under another policy", b, "alice", 0, 2)
}

// Names and keys that a store might run together or mistake for its own.
func oddKeys(r *rig) {
	keys := []string{
		"", " ", "a", "A", "a ", "a:b", "b", "a/b", "{a}", "a}", "*", "?", "%s", "\x00", "\x00a", "a\x00", "\xff\xfe",
		"ä", "a\u0308", "\r\n", "'", `"`, strings.Repeat("k", weir.MaxKeyBytes), strings.Repeat("k", weir.MaxKeyBytes-1),
	}
	policies := []*weir.Policy{r.policy("p", perHour(2)), r.policy("p:a", perHour(2)), r.policy("p:a:b", perHour(2)), r.policy("P", perHour(2))}
	for _, p := range policies {
		for _, key := range keys {
			r.wantTake(p, key, 1, admitted(2, 1, hours(0.5)))
		}
	}
}

// So many keys that a table must grow, and none may be lost or mistaken.
func manyKeys(r *rig) {
	p := r.policy("p", perHour(2))
	q := r.policy("q", named("minute", using(weir.SlidingWindow, perMinute(2))), named("hour", perHour(4)))
	want := [][]weir.Decision{
		{admitted(2, 1, hours(0.5)), admitted(2, 1, minutes(2))},
		{admitted(2, 0, hours(1)), admitted(2, 0, minutes(2))},
	}
	for round := range want {
		for first := 0; first < 3000; first += 250 {
			b := &weir.Batch{Op: weir.TakeEach}
			for i := range 250 {
				key := fmt.Sprint(first + i)
				b.Charges = append(b.Charges, charge(p, key, 1), charge(q, key, 1))
			}
			for i, d := range r.run(b).Decisions {
				if d != r.store.asReported(want[round][i%2]) {
					r.want(callText("take", b.Charges[i]), d, want[round][i%2])
					return
				}
			}
		}
	}
}

func limitsApart(r *rig) {
	p := r.policy("p", perHour(4), named("other", perHour(3)))
	q := r.policy("p.other", perHour(3)) // as headers name p's second limit
	r.wantTake(p, "k", 3, by(1, admitted(3, 0, hours(1))))
	r.wantTake(q, "k", 1, admitted(3, 2, hours(1)/3))
}

// Servers parse requests into buffers that they use again, and hand out strings
// that lie in them.
func keysNotKept(r *rig) {
	p := r.policy("p", perHour(5))
	buf := []byte("alice")
	key := unsafe.String(&buf[0], len(buf))

	r.take(p, key, 1)
	r.do(weir.TakeEach, charge(p, key, 1))
	r.do(weir.TakeAll, charge(p, key, 1))
	b := r.do(weir.ReserveAll, charge(p, key, 2))
	copy(buf, "bobby")

	r.wantLeft("after the buffer was used again", p, "alice", 0, 5)
	r.wantLeft("after the buffer was used again", p, "bobby", 5, 5)
	r.wantSettle("after the buffer was used again", b.Receipts[0], charge(p, "alice", 0), weir.Settled{Refunded: 2})
	r.wantLeft("after settling", p, "alice", 2, 5)
	r.wantTake(p, key, 5, admitted(5, 0, hours(1)))
}
