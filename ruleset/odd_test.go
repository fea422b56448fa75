package ruleset

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// Odd input is an answer or an error, never a panic, and never shares with anything else.
func TestOddKeys(t *testing.T) {
	g, _ := frozen(t, policy("p", perHour("", 1)), policy("ip", perHour("", 1).by("ip")), policy("both", perHour("", 1), perHour("i", 1).by("ip")))
	keys := []string{"\x00", "\x00\x00", "\xff\xfe", "a\r\nb", "*", "a*", "p", "p\x00", "{p}", "p/ip", strings.Repeat("k", 256), strings.Repeat("\x00", 256), "ä", "a\u0308"}
	for _, key := range keys {
		for _, name := range []string{"p", "ip", "both"} {
			q := one(key, ip(key))
			if v := check(t, g, name, q); !v.Allowed {
				t.Errorf("%s: %q shares with another key", name, key)
			}
			if v := check(t, g, name, q); v.Allowed {
				t.Errorf("%s: %q has two units", name, key)
			}
		}
	}
	for _, name := range []string{"p", "ip", "both"} {
		key := strings.Repeat("k", 257)
		q := one(key, ip(key))
		_, err := g.Check(ctx, g.Rules().Rule(name), &q)
		if !errors.Is(err, weir.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(err.Error(), "kkk") {
			t.Errorf("the key is in the error: %v", err)
		}
	}
	q := one(strings.Repeat("k", 257), ip("1")) // which no limit asks for, but a ticket would have it
	if _, err := g.Check(ctx, g.Rules().Rule("ip"), &q); err == nil {
		t.Error("a key that is not charged may be too long")
	}
}

// A cost in one unit is none in another.
func TestUnitsAreApart(t *testing.T) {
	explicit := policy("explicit", perHour("", 5).in(Requests))
	g, _ := frozen(t, policy("tokens", perHour("", 5).in("tokens")), policy("p", perHour("", 5)), explicit)
	for range 10 {
		q := Query{Key: "k", Cost: 1, Implied: true, Costs: []Cost{{"tokens", 0}}}
		if v := check(t, g, "tokens", q); !v.Allowed || v.Remaining != 5 {
			t.Fatalf("requests are counted as tokens: %+v", v.Decision)
		}
	}
	for _, name := range []string{"p", "explicit"} {
		for _, unit := range []string{"tokens", ""} {
			q := Query{Key: "k", Costs: []Cost{{unit, 1}}}
			_, err := g.Check(ctx, g.Rules().Rule(name), &q)
			if bad, ok := errors.AsType[*InputError](err); !ok || bad.Field != "cost" {
				t.Errorf("%s: a cost in %q: %v", name, unit, err)
			}
		}
	}
}

func TestOddCosts(t *testing.T) {
	g, _ := frozen(t, policy("p", perHour("", 5)), policy("both", perHour("", 5), perHour("t", 5).in("t")), policy("vast", perHour("", weir.MaxCost)))
	for _, cost := range []int64{-1, -1 << 63, weir.MaxCost + 1, 1<<63 - 1} {
		for name, q := range map[string]Query{
			"p": {Key: "k", Cost: cost}, "both": {Key: "k", Cost: cost},
			"vast": {Key: "k", Cost: cost},
		} {
			r := g.Rules().Rule(name)
			_, err1 := g.Check(ctx, r, &q)
			_, err2 := g.Peek(ctx, r, &q)
			_, _, err3 := g.Reserve(ctx, r, &q, 0)
			for _, err := range []error{err1, err2, err3} {
				if !errors.Is(err, weir.ErrInvalid) {
					t.Errorf("%s: cost %d: %v", name, cost, err)
				}
			}
		}
		q := Query{Key: "k", Costs: []Cost{{"t", cost}}}
		if _, err := g.Check(ctx, g.Rules().Rule("both"), &q); err == nil {
			t.Errorf("%d of another unit is a cost", cost)
		}
	}
	if v := check(t, g, "p", Query{Key: "k", Cost: weir.MaxCost}); v.Allowed || v.Reason != weir.TooCostly || v.RetryAfter != weir.Never {
		t.Errorf("%+v", v.Decision)
	}
	if v := check(t, g, "vast", Query{Key: "k", Cost: weir.MaxCost}); !v.Allowed || v.Remaining != 0 {
		t.Errorf("%+v", v.Decision)
	}
	if v := check(t, g, "vast", Query{Key: "k", Cost: weir.MaxCost}); v.Allowed || v.RetryAfter <= 0 {
		t.Errorf("%+v", v.Decision)
	}
	for range 100 {
		if v := check(t, g, "p", Query{Key: "k"}); !v.Allowed || v.Remaining != 5 {
			t.Errorf("nothing costs something: %+v", v.Decision)
		}
	}
}

// Sixteen attributes, and units that are named like attributes.
func TestManyAttributes(t *testing.T) {
	p := policy("p")
	q := Query{Key: "k", Cost: 1}
	for i := range 16 {
		name := fmt.Sprint("a", i)
		p.Limits = append(p.Limits, perHour(name, 2).by(name))
		q.Keys = append(q.Keys, Attribute{name, "v"})
	}
	p.Limits = append(p.Limits, perHour("unit", 2).in("a3"), perHour("by", 1).by("a3").in("a3"))
	q.Costs = []Cost{{"a3", 1}}
	g, _ := frozen(t, p)
	wantAdmitted(t, g, "p", q, 1)
	other := q
	other.Keys = append([]Attribute{}, q.Keys...)
	other.Keys[3].Value = "w"
	wantAdmitted(t, g, "p", other, 1) // of a3 and of the others there was one left
	if v := check(t, g, "p", other); v.LimitedBy() == "" {
		t.Errorf("%+v", v)
	}
	for i := range 16 {
		lacks := q
		lacks.Keys = append(append([]Attribute{}, q.Keys[:i]...), q.Keys[i+1:]...)
		_, err := g.Check(ctx, g.Rules().Rule("p"), &lacks)
		if bad, ok := errors.AsType[*InputError](err); !ok || bad.Field != "keys" || !strings.Contains(err.Error(), fmt.Sprintf(`"a%d"`, i)) {
			t.Errorf("without a%d: %v", i, err)
		}
	}
}

// Policies, attributes and keys whose names join to the same text are different.
func TestNothingIsShared(t *testing.T) {
	g, _ := frozen(t,
		policy("a", perHour("b", 1).by("b")),
		policy("a.b", perHour("", 1)),
		policy("a-b", perHour("", 1).by("c")),
		policy("b", perHour("", 1).in("b"), perHour("r", 100)),
		policy("c", perHour("", 1).by("b").mode(Shadow), perHour("r", 1).by("b")),
		policy("d", perHour("x", 1), perHour("y", 2)),
	)
	q := Query{Key: "k", Cost: 1, Keys: []Attribute{{"b", "k"}, {"c", "k"}}}
	units := q
	units.Costs = []Cost{{"b", 1}}
	for _, name := range []string{"a", "a.b", "a-b", "c", "d"} {
		wantAdmitted(t, g, name, q, 1)
	}
	wantAdmitted(t, g, "b", units, 1)
}

func TestNoKey(t *testing.T) {
	g, _ := frozen(t, policy("p", perHour("", 5)), policy("ip", perHour("", 5).by("ip")), policy("both", perHour("", 5), perHour("i", 5).by("ip")))
	q := Query{Cost: 1, Keys: []Attribute{ip("1")}}
	for name, want := range map[string]bool{"p": false, "ip": true, "both": false} {
		r := g.Rules().Rule(name)
		v, err := g.Check(ctx, r, &q)
		if bad, ok := errors.AsType[*InputError](err); v.Allowed != want || ok == want || ok && bad.Field != "key" {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
		list := left(t, g, name, q) // groups that cannot be looked at are left out
		if len(list) != map[string]int{"p": 0, "ip": 1, "both": 1}[name] {
			t.Errorf("%s: %v", name, list)
		}
	}
	if list := left(t, g, "both", q); list[0] != 5 {
		t.Errorf("a query without key was charged to the address: %v", list)
	}
}

func TestReset(t *testing.T) {
	g, _ := frozen(t, policy("p", perHour("", 2), perHour("i", 2).by("ip"), perHour("s", 1).mode(Shadow)))
	wantAdmitted(t, g, "p", one("a", ip("1")), 2)
	q := one("a", ip("1"))
	if err := g.Reset(ctx, g.Rules().Rule("p"), &q); err != nil {
		t.Fatal(err)
	}
	if v := check(t, g, "p", q); v.Shadow != -1 {
		t.Errorf("the limit in shadow was not forgotten: %+v", v)
	}
	wantAdmitted(t, g, "p", q, 1)
	lacks := one("a")
	if err := g.Reset(ctx, g.Rules().Rule("p"), &lacks); err == nil {
		t.Error("a reset of nobody")
	}
}

// Memory does not grow with those who are refused, or wait, or are wrong.
func TestAskingsForget(t *testing.T) {
	g, _ := frozen(t, policy("p", perHour("", 1), perHour("i", 1).by("ip")))
	q := one("alice", ip("1"))
	a, err := newEvaluation(g.Rules().Rule("p").Base(), &q)
	if err != nil {
		t.Fatal(err)
	}
	charges, groups := a.charges, a.groups
	a.free()
	for i := range charges {
		if charges[i] != (weir.Charge{}) || groups[i] != nil {
			t.Errorf("%+v is kept", charges[i])
		}
	}
}

func TestVerdictOfNothing(t *testing.T) {
	g, _ := frozen(t, Policy{Name: "off", Mode: Off, Limits: []Limit{perHour("", 1)}})
	q := one("k")
	q.MaxWait = time.Second
	for range 3 {
		if v := check(t, g, "off", q); !v.Allowed || v.Limit != -1 || v.Shadow != -1 || v.Policy() != "off" || v.LimitedBy() != "" {
			t.Errorf("%+v", v)
		}
	}
	if _, list, err := g.Inspect(ctx, g.Rules().Rule("off"), &q); err != nil || len(list) != 0 {
		t.Error(list, err)
	}
	if err := g.Reset(ctx, g.Rules().Rule("off"), &q); err != nil {
		t.Error(err)
	}
}
