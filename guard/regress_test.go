package guard

import (
	"sync"
	"testing"
	"time"
)

// TestInFlightOfAnAddressThatIsTheSubject: a request without authentication was counted twice under
// the same key, so that with InFlight 1 none was ever admitted, and those of authenticated users of
// the address counted as its own.
func TestInFlightOfAnAddressThatIsTheSubject(t *testing.T) {
	g := newGuard(t, Config{InFlight: 1, BeforeAuth: BeforeAuth{InFlightPerIP: 3}})
	request := Request{Path: "/x", Address: localAddr}
	var passes [4]Pass
	for i, s := range []Subject{User("alice"), User("bob"), {}} {
		if v := through(t, g, &passes[i], request, s); !v.Allowed {
			t.Errorf("request %d, the first of its subject, was refused: %v", i, v.Cause)
		}
	}
	if v := through(t, g, &passes[3], request, User("carol")); v.Cause != ByInFlight || v.Subject.Verified {
		t.Errorf("the fourth request of the address: %v of %+v", v.Cause, v.Subject)
	}
	for i := range passes {
		passes[i].Done(t.Context(), false)
	}
	checkIdle(t, g)
}

// TestSettleAtTheEnd: a goroutine of a handler may call Settle while the request ends. It is told
// whether its cost counts.
func TestSettleAtTheEnd(t *testing.T) {
	table := newTable(t)
	g := guardOn(t, table, Config{Default: Endpoint{Limits: per(1000, 24*time.Hour), Settle: true, Cost: 10}})
	want := int64(1000)
	for range 50 {
		var p Pass
		through(t, g, &p, Request{Path: "/x", Address: localAddr}, User("alice"))
		var counts bool
		var wg sync.WaitGroup
		wg.Go(func() { counts = Settle(WithPass(t.Context(), &p), 3) })
		p.Done(t.Context(), false)
		wg.Wait()
		if want -= 10; counts {
			want += 7
		}
		if Settle(WithPass(t.Context(), &p), 3) {
			t.Fatal("settled after the end")
		}
	}
	quotas, err := g.Quotas(t.Context(), User("alice"), "", "/x")
	if err != nil || quotas[0].Remaining != want {
		t.Errorf("%+v, %v: want %d remaining", quotas, err, want)
	}
}
