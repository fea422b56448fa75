package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
)

// hundred are as many endpoints as there may be, each with one request per second; the later ones of lower priority.
func hundred() (list []Endpoint) {
	for i := range maxEndpoints {
		list = append(list, endpointAt(fmt.Sprintf("e%02d", i), limited(Rate{PerSecond: 1}), priority(10+i/10)))
	}
	return list
}

// TestHundredEndpoints uses all endpoints before it refuses anything, although selection returns four (S0.3, S0.8, S0.22).
func TestHundredEndpoints(t *testing.T) {
	for _, strategy := range []Strategy{Balanced, Sticky} {
		synctest.Test(t, func(t *testing.T) {
			pool, p := newPool(t, Config{Strategy: strategy, MaxWait: -1, Endpoints: hundred()})
			if list, err := pool.Candidates(t.Context(), call()); len(list) != maxCandidates || err != nil {
				t.Errorf("%v, %v: want four candidates", list, err)
			}
			for i := range maxEndpoints {
				if _, _, err := send(pool, call()); err != nil {
					t.Fatalf("%v, request %d: %v", strategy, i, err)
				}
			}
			_, _, err := send(pool, call())
			if e := (*LimitedError)(nil); !errors.As(err, &e) || e.RetryAfter != time.Second {
				t.Errorf("%v, the 101st request: %v", strategy, err)
			}
			for i := range maxEndpoints {
				if n := len(p.times(fmt.Sprintf("e%02d", i))); n != 1 {
					t.Errorf("%v: e%02d got %d requests", strategy, i, n)
				}
			}
		})
	}
}

// TestLineOfHundred lets requests wait for many endpoints: in their order, and none for longer than it must.
func TestLineOfHundred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Endpoints: hundred()})
		var wg sync.WaitGroup
		for i := range 150 {
			wg.Go(func() { sendNumber(t, pool, i) })
			synctest.Wait()
		}
		wg.Wait()
		for i, r := range p.inOrder() {
			if at := time.Duration(i/100) * time.Second; r.at != at || !strings.Contains(r.body, fmt.Sprintf(`"id":%d,`, i)) {
				t.Errorf("request %d of 150 is %+v, want it at %v", i, r, at)
			}
		}
	})
}

// sendNumber sends a request with a number, which must be answered.
func sendNumber(t *testing.T, pool *Pool, n int) {
	reply, err := pool.Send(request(context.Background(), n), call())
	if err != nil {
		t.Errorf("request %d: %v", n, err)
		return
	}
	reply.Body.Close()
}

// TestReloadWhileWaiting changes the configuration while three requests wait in line, and a fourth comes afterwards.
func TestReloadWhileWaiting(t *testing.T) {
	one := limited(Rate{PerSecond: 1})
	for _, tt := range []struct {
		name string
		next []Endpoint
		want []string // when which request was sent to whom
	}{
		{"a higher limit", []Endpoint{endpointAt("a", limited(Rate{PerSecond: 100}))}, []string{"0s 0 a", "500ms 1 a", "500ms 2 a", "500ms 3 a", "500ms 4 a"}},
		{"another endpoint", []Endpoint{endpointAt("b", one)}, []string{"0s 0 a", "500ms 1 b", "1.5s 2 b", "2.5s 3 b", "3.5s 4 b"}},
		{"one more in front", []Endpoint{endpointAt("b", one, priority(1)), endpointAt("a", one)}, []string{"0s 0 a", "500ms 1 b", "1s 2 a", "1.5s 3 b", "2s 4 a"}},
		{"the same", []Endpoint{endpointAt("a", one)}, []string{"0s 0 a", "1s 1 a", "2s 2 a", "3s 3 a", "4s 4 a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pool, p := newPool(t, Config{MaxWait: 10 * time.Second, Endpoints: []Endpoint{endpointAt("a", one)}})
				var wg sync.WaitGroup
				for i := range 4 {
					wg.Go(func() { sendNumber(t, pool, i) })
					synctest.Wait()
				}
				time.Sleep(500 * time.Millisecond)
				next := pool.set.Load().config
				next.Endpoints = tt.next
				if err := pool.Replace(t.Context(), next); err != nil {
					t.Fatal(err)
				}
				wg.Go(func() { sendNumber(t, pool, 4) }) // at this very instant
				wg.Wait()
				var got []string
				for _, r := range p.inOrder() {
					var number int
					_, _ = fmt.Sscanf(r.body, `{"id":%d,`, &number)
					got = append(got, fmt.Sprintf("%v %d %s", r.at, number, strings.TrimSuffix(r.host, ".example")))
				}
				want(t, "requests", got, tt.want)
				if n := pool.lines.waiting(); n != 0 || len(pool.lines.byKey) != 0 {
					t.Errorf("%d still wait", n)
				}
			})
		})
	}
}

// TestCandidatesWithoutRoom says when an endpoint that is at its limit, or whose account is, has room again.
func TestCandidatesWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		none := account("main", 1)
		none.Classes = []budget.Class{}
		none.Limits[0].Limit = weir.PerMinute(1)
		pool, _ := newPool(t, Config{Strategy: Sticky, MaxWait: -1, Endpoints: []Endpoint{
			endpointAt("a", limited(Rate{PerMinute: 2})), endpointAt("b", withBudget("main")), endpointAt("c"),
		}}, none)
		for _, alias := range []string{"a", "a", "b"} {
			if _, _, err := send(pool, &Call{Methods: []string{"eth_call"}, Pinned: alias}); err != nil {
				t.Fatal(err)
			}
		}
		now := time.Now()
		for range 2 { // the second time it is the same: looking charges nothing
			list, err := pool.Candidates(t.Context(), call())
			if err != nil {
				t.Fatal(err)
			}
			want(t, "candidates", list, []Candidate{{"a", now.Add(time.Minute)}, {"b", now.Add(time.Minute)}, {"c", now}})
			list, err = pool.Candidates(t.Context(), &Call{Methods: []string{"eth_call", "eth_call", "eth_call"}, Pinned: "a"})
			if err != nil {
				t.Fatal(err)
			}
			want(t, "candidates for what never fits", list, []Candidate{{"a", time.Time{}}})
		}
	})
}

// TestRearrangeKeepsOrder merges and splits lines at random: each stays in the order of arrival, and has a head.
func TestRearrangeKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, _ := newPool(t, Config{Endpoints: []Endpoint{endpointAt("a"), endpointAt("b")}})
		l := pool.lines
		memory := pool.set.Load().endpoints[0].memory
		var all []*waiter
		for i := range 20 {
			c := &Call{Methods: []string{"eth_call"}, Pinned: []string{"", "a", "b"}[i%3], Class: []string{"", "x"}[i%2]}
			all = append(all, l.join(&sending{pool: pool, call: c}, memory, 100))
		}
		if l.join(&sending{pool: pool, call: call()}, memory, 20) != nil {
			t.Error("the line has no bound")
		}
		for _, endpoints := range [][]Endpoint{{endpointAt("b")}, {endpointAt("b"), endpointAt("c"), endpointAt("a")}, {endpointAt("a")}} {
			next := pool.set.Load().config
			next.Endpoints = endpoints
			if err := pool.Replace(t.Context(), next); err != nil {
				t.Fatal(err)
			}
			n := 0
			for key, line := range l.byKey {
				n += len(line)
				if !slices.IsSortedFunc(line, func(a, b *waiter) int { return int(a.number - b.number) }) || !line[0].leads || line[0].key != key {
					t.Errorf("%+v", line)
				}
			}
			if n != len(all) {
				t.Errorf("%d of %d are in lines", n, len(all))
			}
			l.leave(all[0], true)
			all = all[1:]
		}
		for _, w := range all {
			l.leave(w, true)
		}
		if len(l.byKey) != 0 || l.waiting() != 0 {
			t.Error("lines are left")
		}
	})
}
