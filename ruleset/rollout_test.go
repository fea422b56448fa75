package ruleset

import (
	"fmt"
	hashfnv "hash/fnv"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// place is where a key is in a policy's order of keys: the least share that includes it,
// less one.
func place(policy, key string) int {
	for s := range int(All) {
		if Share(s).includes(policy, key) {
			return s - 1
		}
	}
	return int(All) - 1
}

// These must never change: whoever is limited on one node must be on the next, which may
// be of another version.
func TestRolloutGolden(t *testing.T) {
	tests := []struct {
		policy, key string
		want        int
	}{
		{"api", "alice", 5073},
		{"api", "bob", 8629},
		{"login", "alice", 411},
		{"api", "", 3422},
		{"a", "b\x00c\xff", 2386},
	}
	for _, tt := range tests {
		if got := place(tt.policy, tt.key); got != tt.want {
			t.Errorf("the place of %q in %s is %d, was %d", tt.key, tt.policy, got, tt.want)
		}
	}
}

// The hash is FNV-1a of the policy, a zero byte and the key, which others can compute.
func TestRolloutIsFNV(t *testing.T) {
	for i := range 100 {
		key := fmt.Sprint("key ", i)
		h := hashfnv.New64a()
		fmt.Fprintf(h, "api\x00%s", key)
		if want := int(float64(mix(h.Sum64())) / math.Pow(2, 64) * float64(All)); place("api", key) != want {
			t.Errorf("the place of %q is %d, want %d", key, place("api", key), want)
		}
	}
}

func TestRolloutIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.String().Draw(t, "key")
		small := Share(rapid.IntRange(0, int(All)).Draw(t, "small"))
		great := Share(rapid.IntRange(int(small), int(All)).Draw(t, "great"))
		if small.includes("p", key) && !great.includes("p", key) {
			t.Fatalf("%q is in %v but not in %v", key, small, great)
		}
		if Share(0).includes("p", key) || !All.includes("p", key) {
			t.Fatalf("%q is in none, or not in all", key)
		}
	})
}

// Of n keys a share s includes n×s, give or take three times the root of n×s×(1−s); and
// what one policy includes says nothing about another's.
func TestRolloutShare(t *testing.T) {
	const n = 100_000
	within := func(what string, got int, share float64) {
		t.Helper()
		if off := math.Abs(float64(got)-n*share) / math.Sqrt(n*share*(1-share)); off > 3 {
			t.Errorf("%s: %d of %d keys, %.1f sigma from %.4f", what, got, n, off, share)
		}
	}
	for _, s := range []Share{1, 10, 100, 1000, 2500, 5000, 9000, 9990} {
		single, both := 0, 0
		for i := range n {
			key := fmt.Sprint("user-", i)
			if s.includes("api", key) {
				single++
				if s.includes("login", key) {
					both++
				}
			}
		}
		share := float64(s) / float64(All)
		within(s.String(), single, share)
		if s >= 1000 {
			within(s.String()+" of both", both, share*share)
		}
	}
}

func TestRolloutEnforcesItsShare(t *testing.T) {
	p := policy("api", perHour("", 1), perHour("i", 1).by("ip"))
	p.Rollout = 3000
	g, _ := frozen(t, p)
	for i := range 200 {
		key := fmt.Sprint("user-", i)
		q := one(key, ip(key))
		check(t, g, "api", q)
		v := check(t, g, "api", q)
		in := p.Rollout.includes("api", key)
		if v.Allowed == in || (v.Shadow >= 0) == in {
			t.Fatalf("%s is included: %v, and gets %+v", key, in, v)
		}
	}
}
