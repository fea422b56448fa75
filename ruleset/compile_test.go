package ruleset

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/fielderr"
)

// problems returns what is wrong with policies, a line each: where, and the field.
func problems(t *testing.T, policies ...Policy) (list []string) {
	t.Helper()
	rules, err := Compile(policies, nil)
	if (rules == nil) != (err != nil) {
		t.Errorf("rules %v with error %v", rules, err)
	}
	for _, e := range fielderr.Split(err) {
		bad, ok := errors.AsType[*Error](e)
		if !ok {
			t.Fatalf("%T: %v", e, e)
		}
		list = append(list, fmt.Sprintf("%s|%s|%d|%s", bad.Policy, bad.Override, bad.Limit, bad.Field))
	}
	return list
}

func TestCompileProblems(t *testing.T) {
	fine := perHour("", 5)
	long := strings.Repeat("n", 65)
	many := make([]Limit, 33)
	groups := make([]Limit, maxGroups+1)
	for i := range many {
		many[i] = perHour(fmt.Sprintf("l%d", i), 5)
	}
	for i := range groups {
		groups[i] = perHour(fmt.Sprintf("l%d", i), 5).by(fmt.Sprintf("a%d", i))
	}
	dual := every("a", 5, time.Second).using(weir.DualWindow)
	dualToo := dual
	dualToo.Name = "b"
	tests := []struct {
		name     string
		policies []Policy
		want     []string
	}{
		{"none", nil, nil},
		{"fine", []Policy{policy("a", fine), policy("b", fine)}, nil},
		{"longest names", []Policy{policy(long[1:], perHour(long[1:], 1).by(long[:24]).in(long[:24]).mode(Enforce))}, nil},
		{"all off", []Policy{policy("a", fine.mode(Off))}, nil},
		{"as many limits as fit", []Policy{policy("a", many[:32]...)}, nil},
		{"as many groups as fit", []Policy{policy("a", groups[:maxGroups]...)}, nil},

		{"no name", []Policy{policy("", fine)}, []string{"||-1|name"}},
		{"long name", []Policy{policy(long, fine)}, []string{long + "||-1|name"}},
		{"slash in a name", []Policy{policy("a/b", fine)}, []string{"a/b||-1|name"}},
		{"colon in a name", []Policy{policy("a:b", fine)}, []string{"a:b||-1|name"}},
		{"not ASCII", []Policy{policy("ä", fine)}, []string{"ä||-1|name"}},
		{"not even text", []Policy{policy("a\xff", fine)}, []string{"a\xff||-1|name"}},
		{"control character", []Policy{policy("a\r\nb", fine)}, []string{"a\r\nb||-1|name"}},
		{"name taken", []Policy{policy("a", fine), policy("a", fine), policy("b", fine)}, []string{"a||-1|name"}},
		{"no limits", []Policy{policy("a")}, []string{"a||-1|limits"}},
		{"unknown mode", []Policy{{Name: "a", Mode: 7, Limits: []Limit{fine}}}, []string{"a||-1|mode"}},
		{"rollout", []Policy{{Name: "a", Rollout: All + 1, Limits: []Limit{fine}}}, []string{"a||-1|rollout"}},
		{"overrides", []Policy{policy("a", fine).with(slices.Repeat([]Override{override("k", fine)}, 10_001)...)}, []string{"a||-1|overrides"}},

		{"limit's name", []Policy{policy("a", perHour("x y", 5))}, []string{"a||0|name"}},
		{"limits named alike", []Policy{policy("a", fine, perHour("main", 6))}, []string{"a||1|name"}},
		{"named alike in different groups", []Policy{policy("a", fine, fine.by("ip"))}, []string{"a||1|name"}},
		{"attribute", []Policy{policy("a", fine.by("x/y"))}, []string{"a||0|by"}},
		{"long attribute", []Policy{policy("a", fine.by(long[:25]))}, []string{"a||0|by"}},
		{"unit", []Policy{policy("a", fine.in("x:y"))}, []string{"a||0|unit"}},
		{"long unit", []Policy{policy("a", fine.in(long[:25]))}, []string{"a||0|unit"}},
		{"limit's mode", []Policy{policy("a", fine.mode(9))}, []string{"a||0|mode"}},
		{"rate", []Policy{policy("a", perHour("", 0))}, []string{"a||0|rate"}},
		{"negative rate", []Policy{policy("a", perHour("", -1))}, []string{"a||0|rate"}},
		{"period", []Policy{policy("a", Limit{Limit: weir.Limit{Rate: 1}})}, []string{"a||0|per"}},
		{"burst of a window", []Policy{policy("a", Limit{Limit: weir.Limit{Rate: 1, Burst: 2, Per: weir.Every(time.Hour), Algorithm: weir.FixedWindow}})}, []string{"a||0|burst"}},
		{"a limit that is off is checked, too", []Policy{policy("a", perHour("", 0).mode(Off))}, []string{"a||0|rate"}},
		{"more limits than fit", []Policy{policy("a", many...)}, []string{"a||-1|limits"}},
		{"more groups than fit", []Policy{policy("a", groups...)}, []string{"a||-1|limits"}},
		{"two dual windows", []Policy{policy("a", dual, dualToo)}, []string{"a||-1|per"}},
		{"two dual windows apart", []Policy{policy("a", dual, dualToo.by("ip"))}, nil},

		{"override without key", []Policy{policy("a", fine).with(override("", fine))}, []string{"a||-1|overrides"}},
		{"star inside", []Policy{policy("a", fine).with(override("x*y", fine))}, []string{"a|x*y|-1|overrides"}},
		{"two stars", []Policy{policy("a", fine).with(override("x**", fine))}, []string{"a|x**|-1|overrides"}},
		{"long key", []Policy{policy("a", fine).with(override(strings.Repeat("k", 257), fine))}, []string{"a|" + strings.Repeat("k", 257) + "|-1|overrides"}},
		{"override of nothing", []Policy{policy("a", fine).with(override("k"))}, []string{"a|k|-1|limits"}},
		{"no such limit", []Policy{policy("a", fine).with(override("k", perHour("x", 1)))}, []string{"a|k|0|name"}},
		{"twice", []Policy{policy("a", fine).with(override("k", fine, fine))}, []string{"a|k|1|name"}},
		{"override's rate", []Policy{policy("a", fine).with(override("k", perHour("", 0)))}, []string{"a|k|0|rate"}},
		{"override's attribute", []Policy{policy("a", fine).with(override("k", fine.by("ip")))}, []string{"a|k|0|by"}},
		{"override's unit", []Policy{policy("a", fine).with(override("k", fine.in("tokens")))}, []string{"a|k|0|by"}},
		{"override's mode", []Policy{policy("a", fine).with(override("k", fine.mode(Shadow)))}, []string{"a|k|0|by"}},
		{"override of a wrong limit", []Policy{policy("a", perHour("", 0)).with(override("k", perHour("x", 1)), override("l", fine))}, []string{"a||0|rate", "a|k|0|name"}},
		{"override of no limit", []Policy{policy("a").with(override("k", fine))}, []string{"a||-1|limits"}},
		{
			"everything at once",
			[]Policy{
				{Name: "x y", Mode: 8, Rollout: 20_000, Limits: []Limit{perHour("a b", 0).by("a b").in("a b"), fine.mode(Enforce)}},
				policy("a", fine).with(override("", fine), override("k", perHour("", 0), perHour("z", 1)), override("*", perHour("", 0))),
				policy("a"),
			},
			[]string{
				"x y||-1|name", "x y||-1|mode", "x y||-1|rollout",
				"x y||0|name", "x y||0|by", "x y||0|unit", "x y||0|rate",
				"a||-1|overrides", "a|k|0|rate", "a|k|1|name", "a|*|0|rate",
				"a||-1|name", "a||-1|limits",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, problems(t, tt.policies...)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestErrorsSayWhere(t *testing.T) {
	tests := []struct {
		err  Error
		want string
	}{
		{Error{Policy: "api", Limit: -1, Field: "name", Problem: "is taken"}, `ruleset: policy "api": name: is taken`},
		{Error{Policy: "api", Limit: 1, Field: "rate", Problem: "0 is none"}, `ruleset: policy "api": limit 2: rate: 0 is none`},
		{Error{Policy: "a\nb", Override: "k\x00", Limit: 0, Field: "by", Problem: "no"}, `ruleset: policy "a\nb": override "k\x00": limit 1: by: no`},
	}
	for _, tt := range tests {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// groupNames returns what the limiter calls the groups of a policy.
func groupNames(v *Variant) (names []string) {
	for _, g := range v.groups {
		names = append(names, g.policy.Name())
	}
	return names
}

func TestGroupNames(t *testing.T) {
	main := perHour("", 5)
	ofIP, tokens, both := perHour("i", 5).by("ip"), perHour("t", 5).in("tokens"), perHour("b", 5).by("ip").in("tokens")
	tests := []struct {
		name   string
		policy Policy
		want   string
	}{
		{"one", policy("p", main), "p"},
		{"two limits of one group", policy("p", main, perHour("x", 1), perHour("y", 1).in(Requests)), "p"},
		{"all kinds", policy("p", main, ofIP, tokens, both), "p p/ip p:tokens p/ip:tokens"},
		{"in shadow by itself", policy("p", main, perHour("x", 1).mode(Shadow)), "p p//shadow"},
		{"enforced come first", policy("p", perHour("x", 1).by("ip").mode(Shadow), main), "p p/ip//shadow"},
		{"off", policy("p", main, ofIP.mode(Off)), "p"},
		{"all in shadow", Policy{Name: "p", Mode: Shadow, Limits: []Limit{main, ofIP}}, "p p/ip"},
		{"one of them enforced", Policy{Name: "p", Mode: Shadow, Limits: []Limit{main, ofIP.mode(Enforce)}}, "p/ip//enforce p"},
		{"off but for one", Policy{Name: "p", Mode: Off, Limits: []Limit{main, ofIP.mode(Shadow)}}, "p/ip//shadow"},
		{"unit like an attribute", policy("p", perHour("a", 1).by("x"), perHour("b", 1).in("x")), "p/x p:x"},
		{"attribute called requests", policy("p", perHour("a", 1).by("requests")), "p/requests"},
		{"attribute called shadow", policy("p", perHour("a", 1).by("shadow"), perHour("b", 1).mode(Shadow)), "p/shadow p//shadow"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := compile(t, nil, tt.policy).Rule("p").Base()
			if got := strings.Join(groupNames(v), " "); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// Policies whose names join to the same text must not share what they count.
func TestGroupNamesNeverCollide(t *testing.T) {
	names := []string{"a", "a.b", "a-b", "b", "shadow", "a.shadow", "requests"}
	attributes := []string{"", "a", "b", "shadow", "requests", ".", "-"}
	seen := map[string]string{}
	for _, name := range names {
		for _, by := range attributes {
			for _, unit := range attributes {
				for _, mode := range []Mode{Enforce, Shadow} {
					if unit == "" {
						continue
					}
					p := policy(name, perHour("", 1).by(by).in(unit).mode(mode))
					got := groupNames(compile(t, nil, p).Rule(name).Base())[0]
					here := fmt.Sprint(name, "|", by, "|", unit, "|", mode)
					if seen[got] != "" {
						t.Errorf("%s and %s are both %s", seen[got], here, got)
					}
					seen[got] = here
				}
			}
		}
	}
}

func TestLimitNames(t *testing.T) {
	v := compile(t, nil, policy("p", perHour("x", 1), perHour("off", 1).mode(Off), perHour("", 1).by("ip"))).Rule("p").Base()
	if got := []string{v.LimitName(0), v.LimitName(1)}; !slices.Equal(got, []string{"p.x", "p"}) || len(v.Limits()) != 2 {
		t.Errorf("%q of %d limits", got, len(v.Limits()))
	}
	if v.Limits()[1].Unit != Requests || v.Limits()[1].Mode != Enforce || v.Limits()[1].Name != "main" {
		t.Errorf("no defaults: %+v", v.Limits()[1])
	}
}

func TestRulesFindPolicies(t *testing.T) {
	rules := compile(t, nil, policy("b", perHour("", 1)), policy("a", perHour("", 1)).with(override("k", perHour("", 2))))
	if rules.Rule("c") != nil || rules.RuleNamed([]byte("c")) != nil || rules.Rule("") != nil {
		t.Error("there is a policy that nobody wrote")
	}
	if r := rules.Rule("a"); r.Name() != "a" || rules.RuleNamed([]byte("a")) != r || rules.All()[1] != r || r.Policy().Rollout != All {
		t.Error("a is not found, or is not a")
	}
	if v := rules.Rule("a").For("k", time.Now()); v.Override().Key != "k" || v.Rule() != rules.Rule("a") {
		t.Error("the override is not found")
	}
}

// What did not change keeps its policies, by which stores find what they know.
func TestCompileReusesPolicies(t *testing.T) {
	policies := []Policy{
		policy("a", perHour("", 5), perHour("i", 5).by("ip")).with(
			override("k", perHour("", 7)), override("k", perHour("", 8)), override("p-*", perHour("", 9)), override("p-*", perHour("", 10))),
		policy("b", perHour("", 5)),
	}
	first := compile(t, nil, policies...)
	again := compile(t, first, policies...)
	serials := func(r *Rules) (list []uint64) {
		for _, v := range []*Variant{r.Rule("a").base, r.Rule("a").own.exact["k"], r.Rule("a").own.prefixes["p-"], r.Rule("b").base} {
			for ; v != nil; v = v.before {
				for _, g := range v.groups {
					list = append(list, g.policy.Compiled().Serial)
				}
			}
		}
		return list
	}
	if diff := cmp.Diff(serials(first), serials(again)); diff != "" {
		t.Errorf("serials changed (-first +again):\n%s", diff)
	}
	if first.Rule("a").Base().groups[1].policy != first.Rule("a").own.exact["k"].groups[1].policy {
		t.Error("an override has a policy of its own for a group that it does not change")
	}

	changed := slices.Clone(policies)
	changed[1].Limits = []Limit{perHour("", 6)}
	after := compile(t, again, changed...)
	if after.Rule("a").base.groups[0].policy != first.Rule("a").base.groups[0].policy {
		t.Error("another policy's change was taken for a's")
	}
	if after.Rule("b").base.groups[0].policy == first.Rule("b").base.groups[0].policy {
		t.Error("b has its old numbers")
	}
	onError := policies[1]
	onError.Limits = []Limit{perHour("", 5)}
	onError.Limits[0].OnError = weir.FailClosed
	if p := compile(t, first, onError).Rule("b").base.groups[0].policy; p.Limits()[0].OnError != weir.FailClosed {
		t.Error("a change of on_error was ignored")
	}
}

func TestModeText(t *testing.T) {
	for _, m := range []Mode{Enforce, Shadow, Off} {
		text, _ := m.MarshalText()
		var back Mode
		if err := back.UnmarshalText(text); err != nil || back != m {
			t.Errorf("%v is written %q and read %v, %v", m, text, back, err)
		}
	}
	for _, text := range []string{"", "default", "Enforce", "on"} {
		m := Shadow
		if err := m.UnmarshalText([]byte(text)); err == nil || m != Shadow {
			t.Errorf("%q is read as %v", text, m)
		}
	}
	if got := Mode(9).String(); got != "mode(9)" {
		t.Error(got)
	}
}

func TestShareText(t *testing.T) {
	for share, want := range map[Share]string{0: "0%", 1: "0.01%", 10: "0.1%", 100: "1%", 1000: "10%", 1250: "12.5%", 9999: "99.99%", All: "100%"} {
		if got := share.String(); got != want {
			t.Errorf("%d is %s, want %s", share, got, want)
		}
	}
}
