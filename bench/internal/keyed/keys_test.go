package keyed

import (
	"strings"
	"testing"
)

func TestKeys(t *testing.T) {
	if got, want := keysFrom(9, 2), "user-000000000000009user-000000000000010"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := keyOf(9_999_999); string(got[:]) != "user-000000009999999" {
		t.Errorf("%q", got)
	}
}

// TestWalk makes sure that a walk meets every key equally often, in another order
// than the one they were inserted in, whoever asks for how many.
func TestWalk(t *testing.T) {
	for _, n := range []int{1, 7, block, 3 * block} {
		w := newWalk(n)
		seen, order := make(map[string]int), ""
		for range max(1, n/block) {
			keys := w.next(block)
			order += keys
			for ; keys != ""; keys = keys[keyLen:] {
				seen[keys[:keyLen]]++
			}
		}
		if len(seen) != n {
			t.Errorf("%d of %d keys were met", len(seen), n)
		}
		for key, times := range seen {
			if want := max(1, block/n); times != want && times != want+1 {
				t.Errorf("%d keys: %s was met %d times, want %d", n, key, times, want)
			}
		}
		if n > 1 && strings.HasPrefix(order, keysFrom(0, 3)) {
			t.Errorf("%d keys are in order", n)
		}
		if got := len(w.next(5)); got != 5*keyLen {
			t.Errorf("%d bytes for 5 keys", got)
		}
	}
}

func TestWalkOver(t *testing.T) {
	calls := 0
	run := newWalk(3).over(func(keys string) int {
		calls++
		return len(keys) / keyLen
	})
	if got := run(2*block + 5); got != 2*block+5 || calls != 3 {
		t.Errorf("%d admitted in %d calls, want %d in 3", got, calls, 2*block+5)
	}
}
