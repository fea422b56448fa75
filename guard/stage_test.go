package guard

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// TestPerIPComesFirst: the stage before authentication applies to disabled endpoints and to exempt
// subjects, and IPv6 addresses of a network are one: F4.5, F4.7.
func TestPerIPComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := User("notifications")
		g := newGuard(t, Config{
			BeforeAuth: BeforeAuth{PerIP: per(3, time.Minute)},
			Endpoints:  []Endpoint{{Pattern: "/status", Disabled: true}, {Pattern: "/sync", Limits: per(1, time.Minute)}},
			Exemptions: []Exemption{{Subject: svc.Key, Endpoints: []string{"/sync"}, Until: time.Now().Add(time.Hour)}},
		})
		for _, tt := range []struct {
			path string
			s    Subject
			addr string
		}{{"/status", Subject{}, "2001:db8::%d"}, {"/sync", svc, "2001:db8:0:1::%d"}} {
			var p Pass
			for i := range 4 {
				addr := netip.MustParseAddr(fmt.Sprintf(tt.addr, i+1))
				v := through(t, g, &p, Request{Path: tt.path, Address: addr}, tt.s)
				p.Done(t.Context(), false)
				if v.Allowed != (i < 3) {
					t.Errorf("%s, request %d: allowed %v", tt.path, i+1, v.Allowed)
				}
				if i == 3 && (v.Endpoint != perIPName || v.Cause != ByLimit) {
					t.Errorf("refused by %s, %v", v.Endpoint, v.Cause)
				}
			}
		}
	})
}

// TestExemptions are scoped and end: F4.8.
func TestExemptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := User("notifications")
		g := newGuard(t, Config{
			Default:    Endpoint{Limits: per(1, time.Hour)},
			Endpoints:  []Endpoint{{Pattern: "/sync", Limits: per(1, time.Hour)}},
			Exemptions: []Exemption{{Subject: svc.Key, Endpoints: []string{"/sync"}, Until: time.Now().Add(time.Minute)}},
		})
		if n := burst(t, g, 10, "/sync", svc); n != 10 {
			t.Errorf("%d admitted, want all", n)
		}
		if n := burst(t, g, 10, "/other", svc); n != 1 {
			t.Errorf("%d admitted elsewhere, want 1", n)
		}
		forged := svc
		forged.Verified = false
		if n := burst(t, g, 10, "/sync", forged); n != 1 {
			t.Errorf("%d admitted of an unverified subject with that name, want 1", n)
		}
		if n := g.Stats().Exempted; n != 10 {
			t.Errorf("%d exempted are counted, want 10", n)
		}
		time.Sleep(time.Minute)
		if n := burst(t, g, 10, "/sync", svc); n != 0 { // the unit was taken by the forged one
			t.Errorf("%d admitted after the end, want none", n)
		}
	})
}

// TestZeroAddress: neither the zero address nor none at all is exempt. Callers without an address
// share one count.
func TestZeroAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, Config{Default: Endpoint{Limits: per(2, time.Hour)}})
		for _, addr := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified(), {}} {
			admitted := 0
			for range 5 {
				var p Pass
				if through(t, g, &p, Request{Path: "/x", Address: addr}, Subject{}).Allowed {
					admitted++
				}
				p.Done(t.Context(), false)
			}
			if admitted != 2 {
				t.Errorf("%v: %d admitted, want 2", addr, admitted)
			}
		}
		if n := burst(t, g, 5, "/x", User("0x0000000000000000000000000000000000000000")); n != 2 {
			t.Errorf("the zero address of document 004: %d admitted, want 2", n)
		}
	})
}

// TestInFlight: in all, of an address, and of a subject; counts are exact after any end.
func TestInFlight(t *testing.T) {
	g := newGuard(t, Config{
		BeforeAuth: BeforeAuth{InFlight: 20, InFlightPerIP: 10}, InFlight: 3,
		Endpoints: []Endpoint{{Pattern: "/status", Disabled: true}},
	})
	var open []*Pass
	count := func(n int, addr string, s Subject) (admitted int, last Verdict) {
		for range n {
			p := new(Pass)
			last = through(t, g, p, Request{Path: "/status", Address: netip.MustParseAddr(addr)}, s)
			if last.Allowed {
				admitted++
				open = append(open, p)
			} else {
				p.Done(t.Context(), false)
			}
		}
		return admitted, last
	}
	if n, v := count(5, "192.0.2.1", User("a")); n != 3 || v.Cause != ByInFlight {
		t.Errorf("of a subject: %d, %v", n, v.Cause)
	}
	for i := range 10 {
		count(1, "192.0.2.1", User(fmt.Sprint(i)))
	}
	if n, v := count(1, "192.0.2.1", User("z")); n != 0 || v.Cause != ByInFlight || len(open) != 10 {
		t.Errorf("of an address: %d open, %v", len(open), v.Cause)
	}
	for i := range 12 {
		count(1, fmt.Sprintf("198.51.100.%d", i), Subject{})
	}
	if n, v := count(1, "203.0.113.1", Subject{}); n != 0 || v.Cause != ByOverload || len(open) != 20 {
		t.Errorf("in all: %d open, %v", len(open), v.Cause)
	}
	if n := g.Stats().InFlight; n != 20 {
		t.Errorf("%d in flight, want 20", n)
	}
	for _, p := range open {
		p.Done(t.Context(), false)
		p.Done(t.Context(), false)
	}
	checkIdle(t, g)
}

func checkIdle(t *testing.T, g *Guard) {
	t.Helper()
	if n := g.Stats().InFlight; n != 0 {
		t.Errorf("%d in flight at the end", n)
	}
	for which := range g.inFlight.keyed {
		for i := range g.inFlight.keyed[which] {
			if n := len(g.inFlight.keyed[which][i].count); n != 0 {
				t.Errorf("%d keys in flight at the end", n)
			}
		}
	}
}

// TestInFlightUnderLoad: many goroutines, never more than the caps, nothing left.
func TestInFlightUnderLoad(t *testing.T) {
	g := newGuard(t, Config{BeforeAuth: BeforeAuth{InFlight: 8}, InFlight: 2, Default: Endpoint{Limits: per(1_000_000, time.Minute)}})
	var now, most atomic.Int64
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			var p Pass
			s := User(fmt.Sprint(i % 4))
			for range 500 {
				if through(t, g, &p, Request{Path: "/x", Address: localAddr}, s).Allowed {
					n := now.Add(1)
					for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
					}
					now.Add(-1)
				}
				p.Done(context.Background(), false)
			}
		})
	}
	wg.Wait()
	if most.Load() > 8 {
		t.Errorf("%d at once, want at most 8", most.Load())
	}
	checkIdle(t, g)
}

// TestBlocked: the hook is asked for the address and for the subject.
func TestBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := time.Now().Add(time.Hour)
		g := newGuard(t, Config{Hooks: Hooks{Blocked: func(s Subject) (time.Time, bool) {
			return until, s.Key == "user:mallory" || s.Key == "ip:203.0.113.9"
		}}})
		if v := call(t, g, "/x", User("mallory")); v.Allowed || v.Cause != ByBlock || v.Reason != weir.Blocked || v.RetryAfter != time.Hour {
			t.Errorf("%+v", v)
		}
		if v := call(t, g, "/x", User("alice")); !v.Allowed {
			t.Errorf("%+v", v)
		}
		var p Pass
		v, err := g.Enter(t.Context(), &p, Request{Path: "/x", Address: netip.MustParseAddr("203.0.113.9")})
		if err != nil || v.Cause != ByBlock {
			t.Errorf("%+v, %v", v, err)
		}
		checkIdle(t, g)
	})
}

// TestPlansAndGrace: plans, overrides and grace periods change the limits and keep the counts.
func TestPlansAndGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, Config{
			Plans: []Plan{{Name: "pro", Multiplier: 10}},
			Endpoints: []Endpoint{
				{Pattern: "/a", Limits: per(2, time.Hour)},
				{Pattern: "/b", Limits: per(2, time.Hour), Plans: []ruleset.Plan{{Name: "pro", Limits: per(5, time.Hour)}}},
				{Pattern: "/c", Limits: per(2, time.Hour), Overrides: []ruleset.Override{
					{Key: "user:partner", Limits: per(7, time.Hour)},
					{Key: "*", Limits: per(4, time.Hour), Until: time.Now().Add(time.Minute)}, // grace
				}},
			},
		})
		pro := User("p")
		pro.Plan = "pro"
		for _, tt := range []struct {
			path string
			s    Subject
			want int64
		}{
			{"/a", User("a"), 2}, {"/a", pro, 20}, {"/b", pro, 5}, {"/c", User("partner"), 7}, {"/c", User("a"), 4},
		} {
			if n := burst(t, g, 40, tt.path, tt.s); n != tt.want {
				t.Errorf("%s, %s: %d admitted, want %d", tt.path, tt.s.Key, n, tt.want)
			}
		}
		if n := burst(t, g, 3, "/c", User("b")); n != 3 {
			t.Errorf("%d admitted in the grace period, want 3", n)
		}
		time.Sleep(time.Minute)
		if n := burst(t, g, 40, "/c", User("b")); n != 0 {
			t.Errorf("%d admitted after the grace period, want none: the units in use are kept", n)
		}
	})
}

// TestAttributes: limits by stream type (S4.35). Requests without the attribute share one count.
func TestAttributes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := append(per(100, time.Hour), ruleset.Limit{By: "stream_type", Limit: weir.Limit{Name: "type", Rate: 2, Per: weir.Every(time.Hour)}})
		g := newGuard(t, Config{Endpoints: []Endpoint{{Pattern: "/create", Limits: limits}}})
		for _, kind := range []string{"space", "dm", ""} {
			admitted := 0
			for i := range 5 {
				var p Pass
				r := Request{Path: "/create", Address: localAddr}
				if kind != "" {
					r.Attributes = []ruleset.Attribute{{Name: "stream_type", Value: kind}}
				}
				if through(t, g, &p, r, User(fmt.Sprint(i))).Allowed {
					admitted++
				}
				p.Done(t.Context(), false)
			}
			if admitted != 2 {
				t.Errorf("type %q: %d admitted, want 2", kind, admitted)
			}
		}
	})
}

// TestQuotas: asking changes nothing: F4.4.
func TestQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, river())
		alice := User("alice")
		burst(t, g, 3, "/river.StreamService/AddEvent", alice)
		for range 1000 {
			list, err := g.Quotas(t.Context(), alice, "", "/river.StreamService/AddEvent")
			if err != nil || len(list) != 1 || list[0].Remaining != 97 || list[0].Capacity != 100 || list[0].Limit != "river.StreamService.AddEvent" {
				t.Fatalf("%+v, %v", list, err)
			}
		}
		all, err := g.Quotas(t.Context(), alice, "", "")
		if err != nil || len(all) != len(riverLimits)+1 {
			t.Errorf("%d quotas, %v; want one for each endpoint with limits and the default", len(all), err)
		}
		if list, err := g.Quotas(t.Context(), alice, "", "/river.AppRegistryService/GetStatus"); err != nil || len(list) != 0 {
			t.Errorf("a disabled endpoint has quotas: %v, %v", list, err)
		}
	})
}

// TestKillSwitch: Off admits everything and counts nothing, and the counts are kept.
func TestKillSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Config{Default: Endpoint{Limits: per(2, time.Hour)}, BeforeAuth: BeforeAuth{PerIP: per(100, time.Hour)}}
		g := newGuard(t, c)
		burst(t, g, 2, "/x", User("a"))
		off := c
		off.Mode = ruleset.Off
		if err := g.Set(t.Context(), off); err != nil {
			t.Fatal(err)
		}
		if n := burst(t, g, 1000, "/x", User("a")); n != 1000 {
			t.Errorf("%d admitted while off, want all", n)
		}
		if err := g.Set(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if n := burst(t, g, 10, "/x", User("a")); n != 0 {
			t.Errorf("%d admitted afterwards, want none", n)
		}
	})
}

// TestSetKeepsCounts: a change keeps what was used, and a bad one changes nothing.
func TestSetKeepsCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Config{Endpoints: []Endpoint{{Pattern: "/x", Limits: per(10, time.Hour)}}}
		g := newGuard(t, c)
		burst(t, g, 10, "/x", User("a"))
		next := Config{Endpoints: []Endpoint{{Pattern: "/x", Limits: per(12, time.Hour)}}}
		if err := g.Set(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		if n := burst(t, g, 10, "/x", User("a")); n != 2 {
			t.Errorf("%d admitted after 10 became 12, want 2", n)
		}
		bad := Config{Endpoints: []Endpoint{{Pattern: "/x", Limits: per(0, time.Hour)}, {Pattern: "/x*y", Limits: per(1, time.Hour)}}}
		if err := g.Set(t.Context(), bad); err == nil {
			t.Fatal("no error")
		}
		if n := burst(t, g, 20, "/x", User("b")); n != 12 {
			t.Errorf("%d admitted after a bad change, want 12", n)
		}
	})
}

// TestOffenders is bounded and finds the worst.
func TestOffenders(t *testing.T) {
	g := newGuard(t, Config{Default: Endpoint{Limits: per(1, time.Hour)}})
	for i := range 5000 {
		burst(t, g, 2, "/x", User(fmt.Sprint(i)))
	}
	burst(t, g, 3000, "/x", User("mallory"))
	list := g.Offenders(10)
	if len(list) != 10 || list[0].Subject != "user:mallory" || list[0].Refusals < 2999 {
		t.Errorf("%+v", list)
	}
	if all := g.Offenders(100_000); len(all) > offendersKept {
		t.Errorf("%d offenders, want at most %d", len(all), offendersKept)
	}
}

// TestAddressAndSubjectInFlight: a caller who is known by address only has both caps, and counts once
// for each.
func TestAddressAndSubjectInFlight(t *testing.T) {
	g := newGuard(t, Config{BeforeAuth: BeforeAuth{InFlightPerIP: 2}, InFlight: 2})
	var passes [3]Pass
	for i, want := range []bool{true, true, false} {
		v := through(t, g, &passes[i], Request{Path: "/", Address: localAddr}, Subject{})
		if v.Allowed != want {
			t.Errorf("request %d: %v, want %v", i, v.Allowed, want)
		}
	}
}

// TestCharge: a message is charged at the endpoint only, by the rules of the moment, and is not in
// flight. Where failures count, it counts in full.
func TestCharge(t *testing.T) {
	c := Config{
		BeforeAuth: BeforeAuth{PerIP: per(1, time.Hour), InFlight: 1}, InFlight: 1,
		Endpoints: []Endpoint{{Pattern: "/sync", Count: CountFailures, Limits: per(3, time.Hour)}, {Pattern: "/free", Disabled: true}},
	}
	g := newGuard(t, c)
	stream := Request{Path: "/sync", Address: localAddr}
	var p, message Pass
	if v := through(t, g, &p, stream, User("alice")); !v.Allowed {
		t.Fatal(v)
	}
	charge := func(r Request, s Subject) Verdict {
		t.Helper()
		v, err := g.Charge(t.Context(), &message, r, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for i, want := range []bool{true, true, false} { // one is held by the stream
		if v := charge(stream, User("alice")); v.Allowed != want || v.Subject.Key != "user:alice" || message.CountsFailures() {
			t.Errorf("message %d: %+v", i, v)
		}
	}
	if v := charge(stream, Subject{}); !v.Allowed || v.Subject.Key != "ip:"+localAddr.String() {
		t.Errorf("of the address: %+v", v)
	}
	for range 5 {
		if v := charge(Request{Path: "/free", Address: localAddr}, User("alice")); !v.Allowed {
			t.Errorf("of a disabled endpoint: %+v", v)
		}
	}
	if n := g.Stats().InFlight; n != 1 {
		t.Errorf("%d requests are in flight, want the stream", n)
	}
	c.Mode = ruleset.Off
	if err := g.Set(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if v := charge(stream, User("alice")); !v.Allowed {
		t.Error("the kill switch does not reach open streams")
	}
	p.Done(t.Context(), false)
	if n := g.Stats().InFlight; n != 0 {
		t.Errorf("%d requests are in flight", n)
	}
}

// TestChargeBlocked: a caller who was blocked meanwhile.
func TestChargeBlocked(t *testing.T) {
	g := newGuard(t, Config{Hooks: Hooks{Blocked: func(s Subject) (time.Time, bool) { return time.Time{}, s.Key == "user:mallory" }}})
	for who, want := range map[string]Cause{"alice": Admitted, "mallory": ByBlock} {
		var p Pass
		if v, err := g.Charge(t.Context(), &p, Request{Path: "/", Address: localAddr}, User(who)); err != nil || v.Cause != want {
			t.Errorf("%s: %v, %v", who, v.Cause, err)
		}
	}
}

func TestStatsAreSorted(t *testing.T) {
	list := newGuard(t, river()).Stats().Endpoints
	if len(list) != len(riverLimits)+2 { // the default, and the stage before authentication
		t.Errorf("%d endpoints", len(list))
	}
	if !slices.IsSortedFunc(list, func(a, b EndpointStats) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("%+v", list)
	}
}
