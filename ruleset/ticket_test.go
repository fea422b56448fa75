package ruleset

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/compiled"
)

// llm is requests and tokens of a user, and requests of an address.
func llm(rate int64) Policy {
	return policy("llm", perHour("", rate), perHour("i", rate).by("ip"), perHour("t", 100*rate).in("tokens"))
}

func reserve(t tester, g *Engine, policy string, q Query, ttl time.Duration) *Ticket {
	t.Helper()
	v, ticket, err := g.Reserve(ctx, g.Rules().Rule(policy), &q, ttl)
	if err != nil || !v.Allowed || ticket == nil {
		t.Fatalf("%+v, %v, %v", v, ticket, err)
	}
	return ticket
}

func settle(t tester, g *Engine, ticket *Ticket, used Used) weir.Settled {
	t.Helper()
	out, err := g.Settle(ctx, ticket, used)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func ask(requests, tokens int64) Query {
	return Query{Key: "alice", Client: "shop", Cost: requests, Keys: []Attribute{ip("1")}, Costs: []Cost{{"tokens", tokens}}}
}

// left returns what is left of each group.
func left(t tester, g *Engine, policy string, q Query) (list []int64) {
	t.Helper()
	_, statuses, err := g.Inspect(ctx, g.Rules().Rule(policy), &q)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range statuses {
		list = append(list, s.Remaining)
	}
	return list
}

func TestSettle(t *testing.T) {
	tests := []struct {
		name string
		used Used
		want weir.Settled
		left []int64 // of 10, 10 and 1000, after 4 and 500 were reserved
	}{
		{"all", Used{All: true}, weir.Settled{}, []int64{6, 6, 500}},
		{"all, whatever else", Used{All: true, HaveCost: true, Cost: 1}, weir.Settled{}, []int64{6, 6, 500}},
		{"nothing said", Used{}, weir.Settled{}, []int64{6, 6, 500}},
		{"none", Used{None: true, HaveCost: true, Cost: 3}, weir.Settled{Refunded: 508}, []int64{10, 10, 1000}},
		{"fewer requests", Used{HaveCost: true, Cost: 1}, weir.Settled{Refunded: 6}, []int64{9, 9, 500}},
		{"no requests", Used{HaveCost: true}, weir.Settled{Refunded: 8}, []int64{10, 10, 500}},
		{"fewer tokens", Used{Costs: []Cost{{"tokens", 123}}}, weir.Settled{Refunded: 377}, []int64{6, 6, 877}},
		{"more tokens", Used{Costs: []Cost{{"tokens", 600}}}, weir.Settled{Overrun: 100}, []int64{6, 6, 400}},
		{"more than there are", Used{Costs: []Cost{{"tokens", 1200}}}, weir.Settled{Overrun: 700}, []int64{6, 6, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g, _ := frozen(t, llm(10))
			ticket := reserve(t, g, "llm", ask(4, 500), 0)
			if got := left(t, g, "llm", ask(0, 0)); !cmp.Equal(got, []int64{6, 6, 500}) {
				t.Fatalf("while it is held, %v is left", got)
			}
			for range 3 { // the second and third change nothing
				if got := settle(t, g, ticket, tt.used); got != tt.want {
					t.Errorf("%+v, want %+v", got, tt.want)
				}
				if got := left(t, g, "llm", ask(0, 0)); !cmp.Equal(got, tt.left) {
					t.Errorf("%v is left, want %v", got, tt.left)
				}
			}
			if got := settle(t, g, ticket, Used{None: true}); got != tt.want {
				t.Errorf("a settled one was settled once more: %+v", got)
			}
			if ok, err := g.Renew(ctx, ticket, time.Minute); ok || err != nil {
				t.Errorf("a settled one was renewed: %v, %v", ok, err)
			}
		})
	}
}

func TestSettleRefusesBadCosts(t *testing.T) {
	g, _ := frozen(t, llm(10))
	ticket := reserve(t, g, "llm", ask(4, 500), 0)
	for _, used := range []Used{{HaveCost: true, Cost: -1}, {HaveCost: true, Cost: weir.MaxCost + 1}, {Costs: []Cost{{"tokens", -1}}}} {
		_, err := g.Settle(ctx, ticket, used)
		if !errors.Is(err, weir.ErrInvalid) {
			t.Errorf("%+v: %v", used, err)
		}
	}
	if got := left(t, g, "llm", ask(0, 0)); !cmp.Equal(got, []int64{6, 6, 500}) {
		t.Errorf("%v is left", got)
	}
}

func TestReserveRefused(t *testing.T) {
	g, _ := frozen(t, llm(10))
	q := ask(4, 1001)
	v, ticket, err := g.Reserve(ctx, g.Rules().Rule("llm"), &q, 0)
	if err != nil || ticket != nil || v.Allowed || v.LimitedBy() != "llm.t" || v.Reason != weir.TooCostly {
		t.Errorf("%+v, %v, %v", v, ticket, err)
	}
	if got := left(t, g, "llm", q); !cmp.Equal(got, []int64{10, 10, 1000}) {
		t.Errorf("%v is left", got)
	}
	for _, ttl := range []time.Duration{-2, compiled.MaxTTL + 1, weir.NoExpiry} {
		q := ask(1, 1)
		_, ticket, err := g.Reserve(ctx, g.Rules().Rule("llm"), &q, ttl)
		if !errors.Is(err, weir.ErrInvalid) || ticket != nil {
			t.Errorf("%v: %v", ttl, err)
		}
	}
	q = ask(1, 1)
	q.Client = strings.Repeat("c", 257)
	if _, _, err := g.Reserve(ctx, g.Rules().Rule("llm"), &q, 0); err == nil {
		t.Error("the ticket of such a client cannot be parsed")
	}
}

func TestTicketsInShadow(t *testing.T) {
	g, _ := frozen(t, policy("mixed", perHour("", 10), perHour("s", 5).mode(Shadow)),
		Policy{Name: "shy", Mode: Shadow, Limits: []Limit{perHour("", 5)}}, Policy{Name: "off", Mode: Off, Limits: []Limit{perHour("", 5)}})
	reserveOf := func(policy string, cost int64) (Verdict, *Ticket) {
		t.Helper()
		v, ticket, err := g.Reserve(ctx, g.Rules().Rule(policy), &Query{Key: "k", Cost: cost}, 0)
		if err != nil || !v.Allowed || ticket == nil {
			t.Fatalf("%+v, %v, %v", v, ticket, err)
		}
		return v, ticket
	}
	v, first := reserveOf("mixed", 4)
	if v.Shadow != -1 || v.Limit != 0 {
		t.Errorf("%+v", v)
	}
	v, second := reserveOf("mixed", 4)
	if v.Shadow != 1 || v.Limit != 0 {
		t.Errorf("it would have been refused: %+v", v)
	}
	if got := left(t, g, "mixed", one("k")); !cmp.Equal(got, []int64{2, 1}) {
		t.Errorf("%v is left", got)
	}
	if got := settle(t, g, second, Used{None: true}); got.Refunded != 4 {
		t.Errorf("what was not held was given back: %+v", got)
	}
	settle(t, g, first, Used{None: true})
	if got := left(t, g, "mixed", one("k")); !cmp.Equal(got, []int64{10, 5}) {
		t.Errorf("%v is left", got)
	}
	if v, _ := reserveOf("shy", 4); v.Shadow != -1 || v.Limit != -1 || v.Remaining != 0 {
		t.Errorf("it stands as it would: %+v", v)
	}
	if v, _ := reserveOf("shy", 4); v.Shadow != 0 || v.Limit != -1 || v.Remaining != 0 || v.RetryAfter != 0 {
		t.Errorf("it would have been refused: %+v", v)
	}
	v, nothing := reserveOf("off", 4)
	if ok, err := g.Renew(ctx, nothing, time.Minute); v.Limit != -1 || !ok || err != nil || settle(t, g, nothing, Used{}) != (weir.Settled{}) {
		t.Errorf("%+v, %v, %v", v, ok, err)
	}
	if ok, err := g.Renew(ctx, nothing, time.Minute); ok || err != nil {
		t.Errorf("nothing was settled, and renewed: %v, %v", ok, err)
	}
}

func TestTicketsExpire(t *testing.T) {
	g, clock := frozen(t, llm(10))
	short, renewed, standard := reserve(t, g, "llm", ask(1, 100), 30*time.Second), reserve(t, g, "llm", ask(1, 100), 30*time.Second), reserve(t, g, "llm", ask(1, 100), 0)
	clock.pass(30*time.Second - 1)
	if ok, err := g.Renew(ctx, renewed, time.Hour); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	clock.pass(1)
	if got := settle(t, g, short, Used{None: true}); got != (weir.Settled{Late: true}) {
		t.Errorf("after its time: %+v", got)
	}
	if ok, err := g.Renew(ctx, short, time.Minute); ok || err != nil {
		t.Errorf("after its time: %v, %v", ok, err)
	}
	clock.pass(30*time.Second - 1)
	if got := settle(t, g, standard, Used{None: true}); got.Late || got.Refunded != 102 {
		t.Errorf("within a minute: %+v", got)
	}
	clock.pass(59 * time.Minute)
	if got := settle(t, g, renewed, Used{None: true}); got.Late || got.Refunded == 0 {
		t.Errorf("renewed: %+v", got)
	}
	_, err := g.Renew(ctx, reserve(t, g, "llm", ask(1, 1), 0), compiled.MaxTTL+1)
	if !errors.Is(err, weir.ErrInvalid) {
		t.Error(err)
	}
}

// A reservation can be renewed and settled whatever becomes of its policy.
func TestTicketsAcrossSet(t *testing.T) {
	tests := []struct {
		name  string
		after []Policy
		left  []int64 // nil: as before, when the policy is back
	}{
		{"other numbers", []Policy{llm(20)}, []int64{20, 20, 2000}},
		{"in shadow", []Policy{{Name: "llm", Mode: Shadow, Limits: llm(10).Limits}}, []int64{10, 10, 1000}},
		{"an override", []Policy{llm(10).with(override("alice", perHour("", 30)))}, []int64{30, 10, 1000}},
		{"one group is gone", []Policy{policy("llm", perHour("", 10), perHour("i", 10).by("ip"))}, []int64{10, 10}},
		{"only one is left", []Policy{policy("llm", perHour("t", 1000).in("tokens"), perHour("new", 5).by("ip").mode(Shadow))}, []int64{1000, 5}},
		{"all are gone", []Policy{policy("llm", perHour("new", 5).by("new"))}, nil},
		{"off", []Policy{{Name: "llm", Mode: Off, Limits: llm(10).Limits}}, nil},
		{"removed", nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g, _ := frozen(t, llm(10))
			ticket := reserve(t, g, "llm", ask(4, 400), 0)
			set(t, g, tt.after...)
			if renewed, err := g.Renew(ctx, ticket, time.Minute); err != nil || !renewed {
				t.Errorf("renew: %v, %v", renewed, err)
			}
			if got := settle(t, g, ticket, Used{None: true}); got.Refunded != 408 {
				t.Errorf("%+v", got)
			}
			if tt.left == nil {
				set(t, g, llm(10))
				tt.left = []int64{10, 10, 1000}
			}
			if got := left(t, g, "llm", ask(0, 0)); !cmp.Equal(got, tt.left) {
				t.Errorf("%v is left, want %v", got, tt.left)
			}
		})
	}
}

// A policy that this process never had is unknown.
func TestTicketsOfUnknownPolicies(t *testing.T) {
	before, _ := frozen(t, llm(10))
	ticket := reserve(t, before, "llm", ask(4, 400), 0)
	g, _ := frozen(t, policy("other", perHour("", 1)))
	if _, err := g.Settle(ctx, ticket, Used{None: true}); !errors.Is(err, ErrGone) {
		t.Errorf("settle: %v", err)
	}
	if _, err := g.Renew(ctx, ticket, time.Minute); !errors.Is(err, ErrGone) {
		t.Errorf("renew: %v", err)
	}
}

// Concurrent Settles of one ticket refund it once, and all return the same result.
func TestSettleOnce(t *testing.T) {
	g, _ := frozen(t, llm(10))
	for range 20 {
		ticket := reserve(t, g, "llm", ask(4, 500), 0)
		text := ticket.String()
		answers := make([]weir.Settled, 8)
		var wg sync.WaitGroup
		for i := range answers {
			wg.Go(func() {
				mine, err := ParseTicket(text, "shop")
				if err != nil {
					t.Error(err)
					return
				}
				used := Used{HaveCost: true, Cost: 1, Costs: []Cost{{"tokens", 100}}}
				if answers[i], err = g.Settle(ctx, mine, used); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, a := range answers {
			if a != (weir.Settled{Refunded: 406}) {
				t.Errorf("%+v", a)
			}
		}
		if got := left(t, g, "llm", ask(0, 0)); !cmp.Equal(got, []int64{9, 9, 900}) {
			t.Fatalf("%v is left", got)
		}
		q := ask(0, 0)
		if err := g.Reset(ctx, g.Rules().Rule("llm"), &q); err != nil {
			t.Fatal(err)
		}
	}
}

// A settling that failed may be tried again.
func TestSettleAgainAfterAnError(t *testing.T) {
	l := &scripted{Limiter: newTable(t, new(clock))}
	g := newEngine(t, l, llm(10))
	ticket := reserve(t, g, "llm", ask(4, 500), 0)
	l.do = func(context.Context, *weir.Batch) error { return errDown }
	if _, err := g.Settle(ctx, ticket, Used{None: true}); !errors.Is(err, errDown) {
		t.Error(err)
	}
	l.do = nil
	if got := settle(t, g, ticket, Used{None: true}); got.Refunded != 508 {
		t.Errorf("%+v", got)
	}
}

// While a ticket is settled, nobody else can settle it.
func TestSettleLocks(t *testing.T) {
	s := &settled{}
	_, _ = s.once([16]byte{1}, func() (weir.Settled, error) {
		locked := 0
		for i := range s.locks {
			if !s.locks[i].TryLock() {
				locked++
				continue
			}
			s.locks[i].Unlock()
		}
		if locked != 1 {
			t.Errorf("%d locks are held", locked)
		}
		return weir.Settled{}, nil
	})
}

// Room is for 32,768 tickets, of which the last thousands are remembered for certain, as far as chance
// is: eight of a set would have to come after them.
func TestSettledIsBounded(t *testing.T) {
	s := &settled{}
	source := rand.NewChaCha8([32]byte{})
	ids := make([][16]byte, 100_000)
	for i := range ids {
		_, _ = source.Read(ids[i][:])
		if _, err := s.once(ids[i], func() (weir.Settled, error) { return weir.Settled{Refunded: int64(i)}, nil }); err != nil {
			t.Fatal(err)
		}
	}
	known := 0
	for i, id := range ids {
		out, ok := s.find(id)
		if ok && out.Refunded != int64(i) {
			t.Fatalf("%d is remembered as %+v", i, out)
		}
		if !ok && i >= len(ids)-2000 {
			t.Errorf("%d, one of the last, is not remembered", i)
		}
		if ok {
			known++
		}
	}
	if known > 8*settledSets || known < 7*settledSets {
		t.Errorf("%d are remembered, want about %d", known, 8*settledSets)
	}
	if _, ok := s.find([16]byte{}); ok {
		t.Error("nobody's ticket is settled")
	}
}

func TestConcurrencyTickets(t *testing.T) {
	g, _ := frozen(t, policy("jobs", slots("", 2)), policy("mixed", perHour("", 5), slots("s", 1).by("ip").mode(Shadow), perHour("x", 1).mode(Shadow)))
	q := one("k", ip("1"))
	if _, err := g.Check(ctx, g.Rules().Rule("jobs"), &q); !errors.Is(err, weir.ErrReserveOnly) {
		t.Errorf("a check took a slot: %v", err)
	}
	if v, err := g.Peek(ctx, g.Rules().Rule("jobs"), &q); err != nil || !v.Allowed {
		t.Error(v, err)
	}
	a := reserve(t, g, "jobs", q, weir.NoExpiry)
	reserve(t, g, "jobs", q, 0)
	if v, ticket, err := g.Reserve(ctx, g.Rules().Rule("jobs"), &q, 0); err != nil || v.Allowed || ticket != nil {
		t.Error(v, err)
	}
	settle(t, g, a, Used{All: true})
	reserve(t, g, "jobs", q, 0)

	// Slots in shadow must not keep checks from being made, nor from being counted.
	for i, want := range []int{-1, 2} {
		if v := check(t, g, "mixed", q); !v.Allowed || v.Shadow != want {
			t.Errorf("%d: %+v", i, v)
		}
		each, err := g.CheckEach(ctx, []Item{{Rule: g.Rules().Rule("mixed"), Query: one("k"+fmt.Sprint(i), ip("1"))}}, nil)
		if err != nil || !each[0].Allowed {
			t.Error(each, err)
		}
	}
}

func TestTicketText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(-1, -1, weir.MaxKeyBytes)
		id := rapid.Custom(func(t *rapid.T) (id [16]byte) {
			copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
			return id
		})
		want := &Ticket{id: id.Draw(t, "id"), client: text.Draw(t, "client"), policy: text.Draw(t, "policy"), key: text.Draw(t, "key")}
		for range rapid.IntRange(0, 5).Draw(t, "charges") {
			want.charges = append(want.charges, ticketCharge{group: text.Draw(t, "group"), key: text.Draw(t, "key"), cost: rapid.Int64Range(0, weir.MaxCost).Draw(t, "cost"), id: id.Draw(t, "id")})
		}
		got, err := ParseTicket(want.String(), want.client)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(Ticket{}, ticketCharge{})); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
		if got.Policy() != want.policy {
			t.Fatal(got.Policy())
		}
		if _, err := ParseTicket(want.String(), want.client+"2"); !errors.Is(err, ErrTicket) {
			t.Fatalf("another client's: %v", err)
		}
	})
}

// The largest reservation that can be made has a ticket that can be parsed.
func TestLargestTicket(t *testing.T) {
	name := strings.Repeat("n", 24)
	p := policy(strings.Repeat("p", 64))
	q := Query{Key: strings.Repeat("k", 256), Client: strings.Repeat("c", 64), Implied: true, Cost: 1}
	for i := range maxGroups {
		attribute := fmt.Sprintf("%02d%s", i, name[2:])
		l := perHour(fmt.Sprint(i), weir.MaxCost).by(attribute).in(attribute).mode(Shadow)
		p.Limits = append(p.Limits, l)
		q.Keys = append(q.Keys, Attribute{attribute, strings.Repeat("v", 256)})
		q.Costs = append(q.Costs, Cost{attribute, weir.MaxCost})
	}
	g, _ := frozen(t, p)
	ticket := reserve(t, g, p.Name, q, 0)
	back, err := ParseTicket(ticket.String(), q.Client)
	if err != nil || len(back.charges) != maxGroups {
		t.Fatalf("%d characters: %v", len(ticket.String()), err)
	}
	if got := settle(t, g, back, Used{None: true}); got.Refunded != maxGroups*weir.MaxCost {
		t.Errorf("%+v", got)
	}
}

func TestBadTickets(t *testing.T) {
	g, _ := frozen(t, llm(10))
	good := reserve(t, g, "llm", ask(1, 1), 0).String()
	for name, text := range map[string]string{
		"nothing":       "",
		"no base64":     "§",
		"padding":       good + "=",
		"a line end":    good + "\n",
		"spaces":        " " + good,
		"cut":           good[:len(good)-4],
		"cut short":     good[:10],
		"more":          good + "AAAA",
		"other version": "Ag" + good[2:],
		"long":          strings.Repeat("A", MaxTicket+1),
	} {
		if ticket, err := ParseTicket(text, "shop"); !errors.Is(err, ErrTicket) || ticket != nil {
			t.Errorf("%s: %v, %v", name, ticket, err)
		}
	}
	raw := append([]byte{ticketVersion}, make([]byte, 16)...)
	base := base64.RawURLEncoding.EncodeToString
	charge := func(c ticketCharge) string { return (&Ticket{charges: []ticketCharge{c}}).String() }
	huge := &Ticket{}
	for len(huge.String()) <= MaxTicket {
		huge.charges = append(huge.charges, ticketCharge{key: strings.Repeat("k", 256)})
	}
	for name, text := range map[string]string{
		"stray bits":      base(append(raw, 0, 0, 0))[:26] + "B",
		"endless number":  base(append(raw, slices.Repeat([]byte{0xff}, 20)...)),
		"vast cost":       charge(ticketCharge{cost: weir.MaxCost + 1}),
		"negative cost":   charge(ticketCharge{cost: -1}),
		"long key":        charge(ticketCharge{key: strings.Repeat("k", 257)}),
		"too many":        huge.String(),
		"length too long": base(append(raw, 200, 1)),
	} {
		if ticket, err := ParseTicket(text, ""); !errors.Is(err, ErrTicket) || ticket != nil {
			t.Errorf("%s: %v, %v", name, ticket, err)
		}
	}
	if _, err := ParseTicket(base(append(raw, 0, 0, 0)), ""); err != nil {
		t.Errorf("the one that these are like: %v", err)
	}
	for _, client := range []string{"", "Shop", "shop2", "sho"} {
		if _, err := ParseTicket(good, client); !errors.Is(err, ErrTicket) || strings.Contains(err.Error(), "alice") {
			t.Errorf("%q: %v", client, err)
		}
	}
}

// Whatever text somebody makes up, it is no ticket or one that gives nothing back.
func FuzzParseTicket(f *testing.F) {
	g, _ := frozen(f, llm(10), policy("jobs", slots("", 3)))
	open := reserve(f, g, "llm", ask(4, 500), 0)
	reserve(f, g, "jobs", Query{Key: "alice", Client: "shop", Cost: 2}, 0)
	mine := map[[16]byte]bool{}
	for _, c := range open.charges {
		mine[c.id] = true
	}
	f.Add("")
	forged := *open
	forged.charges = append([]ticketCharge{}, open.charges...)
	for i := range forged.charges {
		forged.charges[i].id = [16]byte{1, 2, 3}
		forged.charges[i].cost = weir.MaxCost
	}
	f.Add(forged.String())
	forged.id, forged.policy = [16]byte{9}, "jobs"
	f.Add(forged.String())
	forged.charges[0].group, forged.charges[1].group = "jobs", "llm"
	f.Add(forged.String())
	f.Add((&Ticket{client: "shop"}).String())
	want := [][]int64{left(f, g, "llm", ask(0, 0)), left(f, g, "jobs", one("alice"))}
	f.Fuzz(func(t *testing.T, text string) {
		ticket, err := ParseTicket(text, "shop")
		if err != nil {
			if !errors.Is(err, ErrTicket) || ticket != nil {
				t.Fatal(ticket, err)
			}
			return
		}
		again, err := ParseTicket(ticket.String(), "shop")
		if err != nil || !cmp.Equal(ticket, again, cmp.AllowUnexported(Ticket{}, ticketCharge{})) {
			t.Fatalf("%+v and %+v, %v", ticket, again, err)
		}
		for _, c := range ticket.charges {
			if mine[c.id] {
				return // that was not made up
			}
		}
		for _, used := range []Used{{None: true}, {HaveCost: true, Cost: weir.MaxCost}} {
			out, err := g.Settle(ctx, ticket, used)
			if err == nil && (out.Refunded != 0 || out.Overrun != 0) {
				t.Fatalf("%+v was given back", out)
			}
			if err != nil && !errors.Is(err, ErrGone) {
				if !errors.Is(err, weir.ErrInvalid) {
					t.Fatal(err)
				}
			}
		}
		if ok, _ := g.Renew(ctx, ticket, time.Minute); ok && len(ticket.charges) > 0 {
			t.Fatal("it was renewed")
		}
		got := [][]int64{left(t, g, "llm", ask(0, 0)), left(t, g, "jobs", one("alice"))}
		if !cmp.Equal(got, want) {
			t.Fatalf("%v is left, want %v", got, want)
		}
	})
}

// A ticket that is assembled from parts of others settles each part at most once; to
// settle one again returns the first result.
func TestTicketsWrittenAnew(t *testing.T) {
	g, _ := frozen(t, llm(10), policy("other", perHour("", 10)))
	ticket := reserve(t, g, "llm", ask(4, 500), 0)
	twice := &Ticket{id: [16]byte{1}, client: "shop", policy: "llm", key: "alice", charges: append(ticket.charges[:3:3], ticket.charges...)}
	if got := settle(t, g, twice, Used{None: true}); got != (weir.Settled{Refunded: 2 * 508}) {
		t.Errorf("%+v", got)
	}
	if got := left(t, g, "llm", ask(0, 0)); !cmp.Equal(got, []int64{10, 10, 1000}) {
		t.Errorf("%v is left", got)
	}
	if got := settle(t, g, ticket, Used{None: true}); got != (weir.Settled{Refunded: 508}) {
		t.Errorf("settled by another text: %+v, want the first result", got)
	}
	if got := left(t, g, "llm", ask(0, 0)); !cmp.Equal(got, []int64{10, 10, 1000}) {
		t.Errorf("%v is left after it was settled again", got)
	}
	check(t, g, "llm", ask(5, 0))
	foreign := reserve(t, g, "llm", ask(1, 1), 0)
	foreign.charges[0].key = "bob" // somebody else's state
	foreign.charges[1].cost = 1000 // more than was reserved
	if got := settle(t, g, foreign, Used{None: true}); got.Refunded != 2 || !got.Late {
		t.Errorf("%+v", got)
	}
	if got := left(t, g, "llm", Query{Key: "bob", Keys: []Attribute{ip("1")}}); !cmp.Equal(got, []int64{10, 5, 1000}) {
		t.Errorf("%v is left", got)
	}
}

// Time may pass between reserving and settling: a bubble shows that nothing stays behind.
func TestTicketsInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newEngine(t, newTable(t, nil), policy("p", perHour("", 10)))
		ticket := reserve(t, g, "p", Query{Key: "k", Cost: 10}, time.Second)
		time.Sleep(time.Second)
		if got := settle(t, g, ticket, Used{None: true}); !got.Late {
			t.Errorf("%+v", got)
		}
	})
}

// TestWith charges a policy that no rule describes together with a rule.
func TestWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := frozen(t, llm(10))
		outside, err := weir.NewPolicy("upstream/eth/a", weir.Limit{Rate: 3, Per: weir.Every(time.Hour), Burst: 3})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Apply(ctx, outside); err != nil {
			t.Fatal(err)
		}
		q := ask(1, 10)
		q.With = []weir.Charge{{Policy: outside, Key: "a", Cost: 1}}
		leftOutside := func() int64 {
			d, err := weir.Peek(ctx, g.Limiter(), outside, "a", 0)
			if err != nil {
				t.Fatal(err)
			}
			return d.Remaining
		}
		ticket := reserve(t, g, "llm", q, 0)
		if got := leftOutside(); got != 2 {
			t.Errorf("%d are left, want 2", got)
		}
		if got := settle(t, g, ticket, Used{None: true}); got.Refunded != 13 || leftOutside() != 3 {
			t.Errorf("%+v, %d are left, want 13 returned and 3 left", got, leftOutside())
		}
		for range 3 {
			reserve(t, g, "llm", q, 0)
		}
		v, ticket, err := g.Reserve(ctx, g.Rules().Rule("llm"), &q, 0)
		if err != nil || v.Allowed || ticket != nil || v.LimitedBy() != "upstream/eth/a" || v.With != outside || v.Limit != -1 {
			t.Errorf("%+v by %q, %v: want a refusal by the policy outside", v, v.LimitedBy(), err)
		}
		if got := left(t, g, "llm", ask(0, 0)); !slices.Equal(got, []int64{7, 7, 970}) {
			t.Errorf("%v are left of the rule: the refused query was charged", got)
		}
		many := q
		many.Cost, many.Costs = 8, nil
		v, _, err = g.Reserve(ctx, g.Rules().Rule("llm"), &many, 0)
		if err != nil || v.Allowed || leftOutside() != 0 {
			t.Errorf("%+v, %v", v, err)
		}
		v, err = g.Check(ctx, g.Rules().Rule("llm"), &q)
		if err != nil || v.Allowed {
			t.Errorf("Check ignores With: %+v, %v", v, err)
		}
		q.With[0].Cost = -1
		if _, _, err := g.Reserve(ctx, g.Rules().Rule("llm"), &q, 0); !errors.Is(err, weir.ErrInvalid) {
			t.Errorf("a negative cost: %v", err)
		}
	})
}
