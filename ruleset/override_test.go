package ruleset

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// rates tells a variant by its first rate.
func rate(v *Variant) int64 { return v.Limits()[0].Rate }

func TestOverridesThatMatch(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	until := func(o Override, d time.Duration) Override { o.Until = now.Add(d); return o }
	r := compile(t, nil, policy("p", perHour("", 1)).with(
		override("p-*", perHour("", 10)),
		override("p-alice-*", perHour("", 11)),
		override("p-alice", perHour("", 12)),
		override("p-alice", perHour("", 13)), // an operator's, after the file's
		override("p-*", perHour("", 14)),
		until(override("bob", perHour("", 20)), 2*time.Hour),
		until(override("bob", perHour("", 21)), time.Hour),
		until(override("carol", perHour("", 30)), time.Hour),
		until(override("c*", perHour("", 31)), 2*time.Hour),
		override("dave", perHour("", 40)),
		until(override("dave", perHour("", 41)), time.Hour),
		until(override("e*", perHour("", 50)), time.Hour),
		override("e*", perHour("", 51)),
		until(override("e*", perHour("", 52)), time.Hour),
	)).Rule("p")
	tests := []struct {
		key   string
		after time.Duration
		want  int64
	}{
		{"alice", 0, 1},
		{"", 0, 1},
		{"p-", 0, 14},
		{"p", 0, 1},
		{"p-alice", 0, 13},
		{"p-alice-2", 0, 11},
		{"p-bob", 0, 14},
		{"p-*", 0, 14},

		{"bob", 0, 21},
		{"bob", time.Hour - 1, 21},
		{"bob", time.Hour, 20}, // until then, not including
		{"bob", 2*time.Hour - 1, 20},
		{"bob", 2 * time.Hour, 1},
		{"bob", -1000 * time.Hour, 21},
		{"carol", time.Hour - 1, 30},
		{"carol", time.Hour, 31},
		{"carol", 2 * time.Hour, 1},
		{"dave", 0, 41},
		{"dave", time.Hour, 40}, // what an operator set is over: the file counts again
		{"eve", 0, 52},
		{"eve", time.Hour, 51},
	}
	for _, tt := range tests {
		if got := rate(r.For(tt.key, now.Add(tt.after))); got != tt.want {
			t.Errorf("%q after %v has the rate %d, want %d", tt.key, tt.after, got, tt.want)
		}
	}
	all := compile(t, nil, policy("p", perHour("", 1)).with(override("*", perHour("", 2)))).Rule("p")
	if rate(all.For("", now)) != 2 || rate(all.For("x", now)) != 2 {
		t.Error("* does not stand for all keys")
	}
}

func TestOverridesInherit(t *testing.T) {
	p := policy("p",
		Limit{Limit: weir.Limit{Name: "a", Rate: 5, Per: weir.Every(time.Hour), Algorithm: weir.FixedWindow, OnError: weir.FailClosed}, By: "ip", Unit: "tokens", Mode: Shadow},
		perHour("b", 7)).with(override("k", perHour("a", 9)), override("c", Limit{Limit: weir.Limit{Name: "a", Rate: 9, Per: weir.Calendar(weir.Day, time.UTC)}}))
	r := compile(t, nil, p).Rule("p")
	l := r.For("k", time.Now()).Limits()[0]
	if l.By != "ip" || l.Unit != "tokens" || l.Mode != Shadow || l.Algorithm != weir.FixedWindow || l.OnError != weir.FailClosed || l.Rate != 9 {
		t.Errorf("%+v", l)
	}
	sliding := policy("p", perHour("", 5).using(weir.SlidingWindow)).with(override("c", Limit{Limit: weir.Limit{Rate: 9, Per: weir.Calendar(weir.Day, time.UTC)}}))
	if _, err := Compile([]Policy{sliding}, nil); err != nil {
		t.Errorf("a calendar has its own algorithm: %v", err)
	}
	if b := r.For("k", time.Now()).Limits()[1]; b.Rate != 7 {
		t.Errorf("a limit that was not overridden is %+v", b)
	}
}

// What was used stays used when an override begins and when it ends, by the clock alone.
func TestOverridesEndByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := override("alice", every("", 10, 1000*time.Hour))
		o.Until = time.Now().Add(time.Minute)
		g := newEngine(t, newTable(t, nil), policy("p", every("", 4, 1000*time.Hour)).with(o))
		for range 7 {
			if v := check(t, g, "p", one("alice")); !v.Allowed || v.Decision.Limit != 10 {
				t.Fatalf("%+v", v.Decision)
			}
		}
		time.Sleep(time.Minute)
		if v := check(t, g, "p", one("alice")); v.Allowed || v.Decision.Limit != 4 {
			t.Errorf("7 of 4 are used, and one more is %+v", v.Decision)
		}
		wantAdmitted(t, g, "p", one("bob"), 4)
	})
}

// An operator's override goes before the policy's for the same keys, and not before a more specific
// one. It can be replaced and removed.
func TestOverridesOfOperators(t *testing.T) {
	r := compile(t, nil, policy("p", perHour("", 1)).with(override("a-*", perHour("", 10)), override("a-b-*", perHour("", 11)), override("bob", perHour("", 12)))).Rule("p")
	now := time.Now()
	want := func(step string, rates map[string]int64) {
		t.Helper()
		for key, want := range rates {
			if got := rate(r.For(key, now)); got != want {
				t.Errorf("%s: %q has the rate %d, want %d", step, key, got, want)
			}
		}
	}
	put := func(key string, n int64) {
		t.Helper()
		if err := r.Override(override(key, perHour("", n))); err != nil {
			t.Fatal(err)
		}
	}
	put("a-*", 20)
	put("bob", 22)
	put("carol", 23)
	want("set", map[string]int64{"a-1": 20, "a-b-1": 11, "bob": 22, "carol": 23, "dave": 1})
	put("a-*", 30)
	want("replaced", map[string]int64{"a-1": 30, "a-b-1": 11})
	ended := override("carol", perHour("", 24))
	ended.Until = now
	if err := r.Override(ended); err != nil {
		t.Fatal(err)
	}
	r.RemoveOverride("bob")
	r.RemoveOverride("a-*")
	r.RemoveOverride("nobody")
	want("removed", map[string]int64{"a-1": 10, "a-b-1": 11, "bob": 12, "carol": 1})
	for _, bad := range []Override{override("", perHour("", 1)), override("a*b*", perHour("", 1)), {Key: "x"}, override("x", perHour("other", 1)), override("x", perHour("", -1))} {
		if r.Override(bad) == nil || r.CheckOverride(bad) == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	want("wrong ones", map[string]int64{"x": 1, "a-1": 10})
}

// What is set again keeps its policy, by which stores find what they know.
func TestOverridesOfOperatorsAreReused(t *testing.T) {
	r := compile(t, nil, policy("p", perHour("", 1))).Rule("p")
	var serials []uint64
	for range 2 {
		if err := r.Override(override("k", perHour("", 5))); err != nil {
			t.Fatal(err)
		}
		serials = append(serials, r.For("k", time.Now()).groups[0].policy.Compiled().Serial)
	}
	if serials[0] != serials[1] {
		t.Error("the same override is another policy")
	}
}

// A policy that takes no overrides refuses those of operators and those of its own.
func TestNoOverrides(t *testing.T) {
	p := policy("p", perHour("", 1))
	p.NoOverrides = true
	if err := compile(t, nil, p).Rule("p").Override(override("a", perHour("", 5))); err == nil || !strings.Contains(err.Error(), "takes no overrides") {
		t.Error(err)
	}
	p = p.with(override("a", perHour("", 5)))
	if _, err := Compile([]Policy{p}, nil); err == nil || !strings.Contains(err.Error(), "takes no overrides") {
		t.Error(err)
	}
}
