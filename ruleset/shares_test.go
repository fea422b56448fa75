package ruleset

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// A client that reserves all that it can leaves room for the others, and gets its share back when
// it settles, or when its reservations expire.
func TestShareOfReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newEngine(t, newTable(t, nil), policy("p", perHour("", 10_000_000)))
		reserve := func(client string) (*Ticket, weir.Reason) {
			t.Helper()
			v, ticket, err := g.Reserve(ctx, g.Rules().Rule("p"), &Query{Key: client, Cost: 1, Client: client}, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			return ticket, v.Reason
		}
		g.reserved.most, g.reserved.each = 40, 10
		var last *Ticket
		for n := range 10 {
			ticket, reason := reserve("greedy")
			if reason != weir.Admitted {
				t.Fatalf("reservation %d: %v", n, reason)
			}
			last = ticket
		}
		if ticket, reason := reserve("greedy"); ticket != nil || reason != weir.QueueFull {
			t.Errorf("one more than the share: %v", reason)
		}
		if _, reason := reserve("other"); reason != weir.Admitted {
			t.Errorf("another client: %v", reason)
		}
		for range 2 { // the second time changes nothing
			if _, err := g.Settle(ctx, last, Used{All: true}); err != nil {
				t.Fatal(err)
			}
		}
		if _, reason := reserve("greedy"); reason != weir.Admitted {
			t.Errorf("after one was settled: %v", reason)
		}
		if _, reason := reserve("greedy"); reason != weir.QueueFull {
			t.Errorf("settling twice freed two: %v", reason)
		}
		time.Sleep(time.Minute)
		if _, reason := reserve("greedy"); reason != weir.Admitted {
			t.Errorf("after all have expired: %v", reason)
		}
		if n := g.reserved.len(); n != 1 {
			t.Errorf("%d are counted, want 1", n)
		}
	})
}

// Whoever is alone has all, and is not counted.
func TestAloneWithoutShares(t *testing.T) {
	g, _ := frozen(t, policy("p", perHour("", 1000)))
	g.reserved.most, g.reserved.each = 4, 1
	for range 10 {
		v, _, err := g.Reserve(ctx, g.Rules().Rule("p"), &Query{Key: "a", Cost: 1, Alone: true}, time.Minute)
		if err != nil || !v.Allowed {
			t.Fatal(v, err)
		}
	}
}

// A client whose requests wait leaves room for those of others.
func TestShareOfWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newEngine(t, newTable(t, nil), policy("p", every("", 1, time.Hour)))
		g.waiting.most, g.waiting.each = 40, 10
		hold := make(chan struct{})
		go func() {
			defer close(hold)
			for range 10 {
				g.waiting.add("greedy", false)
			}
		}()
		<-hold
		check(t, g, "p", Query{Key: "a", Cost: 1})
		v := check(t, g, "p", Query{Key: "a", Cost: 1, Client: "greedy", MaxWait: time.Second})
		if v.Reason != weir.QueueFull {
			t.Errorf("one more than the share: %v", v.Reason)
		}
		v = check(t, g, "p", Query{Key: "a", Cost: 1, Client: "other", MaxWait: time.Second})
		if v.Reason != weir.TooLate {
			t.Errorf("another client: %v", v.Reason)
		}
		v = check(t, g, "p", Query{Key: "new", Cost: 1, Client: "greedy", MaxWait: time.Second})
		if !v.Allowed {
			t.Errorf("a request that need not wait: %v", v.Reason)
		}
	})
}

// A reservation can be settled and renewed after its policy was removed, and its units are free
// when the policy returns.
func TestRemovedPolicies(t *testing.T) {
	p := policy("p", perHour("", 5).in("tokens"))
	g, _ := frozen(t, p, policy("q", perHour("", 1)))
	_, ticket, err := g.Reserve(ctx, g.Rules().Rule("p"), &Query{Key: "a", Cost: 4, Alone: true}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	set(t, g, policy("q", perHour("", 1)))
	if renewed, err := g.Renew(ctx, ticket, time.Hour); err != nil || !renewed {
		t.Error(renewed, err)
	}
	settled, err := g.Settle(ctx, ticket, Used{HaveCost: true, Cost: 1})
	if err != nil || settled.Refunded != 3 {
		t.Errorf("%+v, %v", settled, err)
	}
	set(t, g, p)
	wantAdmitted(t, g, "p", Query{Key: "a"}, 4)
}

// Nothing of a policy in shadow reaches a caller that does not ask for it.
func TestShadowIsHidden(t *testing.T) {
	inShadow := policy("p", perHour("a", 2), perHour("b", 1).by("ip"))
	inShadow.Mode = Shadow
	rolled := policy("r", perHour("", 1))
	rolled.Rollout = 1
	g, _ := frozen(t, inShadow, rolled)
	for n := range 4 {
		for _, name := range []string{"p", "r"} {
			v := check(t, g, name, Query{Key: "a", Keys: []Attribute{ip("1")}, Cost: 1})
			if !v.Allowed || v.Limit != -1 || v.Decision.Limit != 0 || v.Remaining != 0 || v.ResetAfter != 0 || v.ShadowRefusals != nil {
				t.Errorf("%s, %d: %+v", name, n, v)
			}
			if refused := n > 0; (v.Shadow >= 0) != refused {
				t.Errorf("%s, %d: shadow %d", name, n, v.Shadow)
			}
		}
	}
	v := check(t, g, "p", Query{Key: "a", Keys: []Attribute{ip("1")}, Cost: 1, Shadow: true})
	if len(v.ShadowRefusals) != 1 || v.Variant.LimitName(v.ShadowRefusals[0].Limit) != "p.b" || v.ShadowRefusals[0].RetryAfter <= 0 {
		t.Errorf("%+v", v.ShadowRefusals)
	}
}

// A client whose requests wait for a key that others use, too, leaves places in the line for them.
func TestShareOfLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newEngine(t, newTable(t, nil), policy("p", every("", 1, 100*time.Millisecond)))
		check(t, g, "p", Query{Key: "a", Cost: 1})
		wait := func(client, key string) weir.Reason {
			return check(t, g, "p", Query{Key: key, Cost: 1, Client: client, MaxWait: 10 * time.Second}).Reason
		}
		var wg sync.WaitGroup
		for range 48 { // of 64
			wg.Go(func() { wait("greedy", "a") })
		}
		synctest.Wait()
		if reason := wait("greedy", "a"); reason != weir.QueueFull {
			t.Errorf("one more than the share of the line: %v", reason)
		}
		if reason := wait("greedy", "b"); reason != weir.Admitted {
			t.Errorf("another key: %v", reason)
		}
		if n := g.Waiting(); n != 48 {
			t.Errorf("%d wait, want 48", n)
		}
		if reason := wait("other", "a"); reason != weir.Admitted {
			t.Errorf("another client: %v", reason)
		}
		wg.Wait()
		if n := g.inLine.len(); n != 0 {
			t.Errorf("%d are still counted", n)
		}
	})
}
