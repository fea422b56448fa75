package ruleset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// steady has one unit a second, and no more at once.
func steady(name string) Limit {
	return Limit{Limit: weir.Limit{Name: name, Rate: 1, Burst: 1, Per: weir.Every(time.Second)}}
}

// kinds are a policy of one charge and one of several.
var kinds = []Policy{policy("p", steady("")), policy("p", steady(""), steady("i").by("ip"))}

// A charging charges a query under the policy "p".
type charging func(ctx context.Context, g *Engine, q Query) (Verdict, error)

// chargings are all calls that wait. A reservation is used as a whole at once, so that both leave the same state.
var chargings = map[string]charging{
	"check": func(ctx context.Context, g *Engine, q Query) (Verdict, error) {
		return g.Check(ctx, g.Rules().Rule("p"), &q)
	},
	"reserve": func(ctx context.Context, g *Engine, q Query) (Verdict, error) {
		v, ticket, err := g.Reserve(ctx, g.Rules().Rule("p"), &q, time.Minute)
		if ticket != nil {
			_, err = g.Settle(context.WithoutCancel(ctx), ticket, Used{All: true})
		}
		return v, err
	},
}

// must is a call that has to be decided.
func (a charging) must(t *testing.T, g *Engine, q Query) Verdict {
	t.Helper()
	v, err := a(ctx, g, q)
	if err != nil {
		t.Error(err)
	}
	return v
}

func bubble(t *testing.T, kind func(t *testing.T, g *Engine, do charging)) {
	for name, do := range chargings {
		for _, p := range kinds {
			t.Run(fmt.Sprint(name, len(p.Limits)), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { kind(t, newEngine(t, newTable(t, nil), p), do) })
			})
		}
	}
}

func patient(key string, wait time.Duration) Query {
	q := one(key, ip(key))
	q.MaxWait = wait
	return q
}

func TestWait(t *testing.T) {
	bubble(t, func(t *testing.T, g *Engine, do charging) {
		if v := do.must(t, g, patient("a", time.Second)); !v.Allowed || v.Waited != 0 {
			t.Errorf("there is room: %+v", v)
		}
		if v := do.must(t, g, patient("a", 5*time.Second)); !v.Allowed || v.Waited != time.Second {
			t.Errorf("there is room in a second: %+v", v)
		}
		if v := do.must(t, g, patient("a", time.Second)); !v.Allowed || v.Waited != time.Second {
			t.Errorf("there is room in just a second: %+v", v)
		}
		began := time.Now()
		v := do.must(t, g, patient("a", time.Second-1))
		if v.Allowed || v.Reason != weir.TooLate || v.RetryAfter != time.Second || v.LimitedBy() == "" || time.Since(began) != 0 {
			t.Errorf("it is known at once that it is too late: %+v after %v", v, time.Since(began))
		}
		q := patient("a", 5*time.Second)
		q.Cost = 2
		if v := do.must(t, g, q); v.Allowed || v.Reason != weir.TooCostly || time.Since(began) != 0 {
			t.Errorf("waiting cannot help: %+v", v)
		}
		if g.Waiting() != 0 {
			t.Errorf("%d wait", g.Waiting())
		}
	})
}

func TestWaitIsBounded(t *testing.T) {
	g, _ := frozen(t, kinds[0])
	for _, wait := range []time.Duration{-1, MaxWait + 1} {
		q := patient("a", wait)
		_, err := g.Check(ctx, g.Rules().Rule("p"), &q)
		if bad, ok := errors.AsType[*InputError](err); !ok || bad.Field != "max_wait_ms" {
			t.Errorf("%v: %v", wait, err)
		}
	}
	if v := check(t, g, "p", patient("a", MaxWait)); !v.Allowed || v.Remaining != 0 {
		t.Errorf("%+v", v)
	}
}

func TestWaitEndsWithItsCaller(t *testing.T) {
	bubble(t, func(t *testing.T, g *Engine, do charging) {
		do.must(t, g, patient("a", 0))
		q := patient("a", 5*time.Second)

		hurried, cancel := context.WithTimeout(ctx, time.Second/2)
		began := time.Now()
		v, err := do(hurried, g, q)
		cancel()
		if err != nil || v.Allowed || v.Reason != weir.TooLate || time.Since(began) != 0 {
			t.Errorf("the caller's deadline comes first: %+v, %v", v, err)
		}

		leaving, leave := context.WithCancel(ctx)
		time.AfterFunc(time.Second/2, leave)
		v, err = do(leaving, g, q)
		if !errors.Is(err, context.Canceled) || v.Allowed || time.Since(began) != time.Second/2 {
			t.Errorf("%+v, %v after %v", v, err, time.Since(began))
		}
		if _, err := do(leaving, g, q); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if g.Waiting() != 0 {
			t.Errorf("%d wait", g.Waiting())
		}
		if v := do.must(t, g, q); !v.Allowed || v.Waited != time.Second/2 {
			t.Errorf("who left has left a hole: %+v", v)
		}
	})
}

// First come, first served.
func TestWaitInLine(t *testing.T) {
	bubble(t, func(t *testing.T, g *Engine, do charging) {
		do.must(t, g, patient("a", 0))
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				v := do.must(t, g, patient("a", MaxWait))
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
				if want := time.Duration(i+1) * time.Second; v.Waited != want {
					t.Errorf("%d waited %v, want %v", i, v.Waited, want)
				}
			})
			synctest.Wait()
		}
		if g.Waiting() != 5 {
			t.Errorf("%d wait", g.Waiting())
		}
		if v := do.must(t, g, patient("a", 0)); v.Allowed || v.RetryAfter != 6*time.Second {
			t.Errorf("behind five others: %+v", v.Decision)
		}
		wg.Wait()
		if !slices.IsSorted(order) {
			t.Errorf("the order is %v", order)
		}
	})
}

// maxPerKey is how many may wait for one key.
const maxPerKey = 64

// However many wait, nobody gets a unit too many, and there are only so many of one key.
func TestManyWait(t *testing.T) {
	bubble(t, func(t *testing.T, g *Engine, do charging) {
		do.must(t, g, patient("a", 0))
		count := map[weir.Reason]int{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range maxPerKey + 10 {
			wg.Go(func() {
				v := do.must(t, g, patient("a", MaxWait))
				mu.Lock()
				defer mu.Unlock()
				count[v.Reason]++
			})
		}
		synctest.Wait()
		if n := g.Waiting(); n > maxPerKey || n < 10 {
			t.Errorf("%d wait", n)
		}
		others := do.must(t, g, patient("b", MaxWait))
		if !others.Allowed {
			t.Errorf("another key is refused: %+v", others)
		}
		wg.Wait()
		if count[weir.Admitted] != 10 || g.Waiting() != 0 {
			t.Errorf("in ten seconds there are ten units: %v; %d wait", count, g.Waiting())
		}
	})
}

// The limiter takes its time, and the time to wait ends meanwhile.
func TestWaitForASlowLimiter(t *testing.T) {
	tests := []struct {
		peek, want weir.Decision
	}{
		{weir.Decision{Reason: weir.Exhausted, RetryAfter: time.Minute}, weir.Decision{Reason: weir.TooLate, RetryAfter: time.Minute}},
		{weir.Decision{Allowed: true, Reason: weir.Admitted}, weir.Decision{Reason: weir.TooLate, RetryAfter: 1}}, // just missed
		{weir.Decision{Reason: weir.TooCostly, RetryAfter: weir.Never}, weir.Decision{Reason: weir.TooCostly, RetryAfter: weir.Never}},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			g := newEngine(t, &scripted{
				take: func(ctx context.Context) (weir.Decision, error) {
					if asked++; asked == 1 {
						return weir.Decision{Reason: weir.Exhausted, RetryAfter: time.Second}, nil
					}
					<-ctx.Done()
					return weir.Decision{}, ctx.Err()
				},
				do: func(_ context.Context, b *weir.Batch) error {
					if b.Op != weir.PeekEach {
						t.Errorf("operation %d", b.Op)
					}
					b.Decisions[0] = tt.peek
					return nil
				},
			}, kinds[0])
			v := check(t, g, "p", patient("a", 3*time.Second))
			if v.Decision != tt.want || v.Waited != 3*time.Second {
				t.Errorf("%+v, want %+v", v, tt.want)
			}
		})
	}
}

// Who leaves while the limiter takes its time gets the context's error, not an answer.
func TestWaitForASlowLimiterEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		g := newEngine(t, &scripted{
			take: func(ctx context.Context) (weir.Decision, error) {
				if asked++; asked == 1 {
					return weir.Decision{Reason: weir.Exhausted, RetryAfter: time.Second}, nil
				}
				<-ctx.Done()
				return weir.Decision{}, ctx.Err()
			},
			do: func(context.Context, *weir.Batch) error { return nil },
		}, kinds[0])
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		q := patient("a", 3*time.Second)
		if v, err := g.Check(short, g.Rules().Rule("p"), &q); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%+v, %v", v, err)
		}
	})
}

// Several charges wait only where that can help, and count once meanwhile. As the queue does for one, it
// calls the limiter before and after it stands in line.
func TestWaitForSeveral(t *testing.T) {
	later := weir.Decision{Reason: weir.Exhausted, RetryAfter: time.Second}
	tests := []struct {
		answers []weir.Decision // of the limiter, one after the other
		waited  time.Duration
	}{
		{[]weir.Decision{{Allowed: true}}, 0},
		{[]weir.Decision{later, {Allowed: true}}, 0},
		{[]weir.Decision{later, later, later, later, {Allowed: true}}, 3 * time.Second},
		{[]weir.Decision{later, later, {Reason: weir.Exhausted, RetryAfter: weir.Never}}, time.Second},
		{[]weir.Decision{later, later, {Reason: weir.StoreDown, RetryAfter: time.Second}}, time.Second},
		{[]weir.Decision{{Reason: weir.QueueFull, RetryAfter: time.Second}}, 0},
	}
	for i, tt := range tests {
		for name, do := range chargings {
			synctest.Test(t, func(t *testing.T) {
				l, asked := &scripted{}, 0
				g := newEngine(t, l, kinds[1])
				l.do = func(_ context.Context, b *weir.Batch) error {
					if b.Op == weir.Settle {
						return nil
					}
					if asked == len(tt.answers) {
						t.Errorf("%s %d: asked once more", name, i)
						return errDown
					}
					if n := g.Waiting(); n != 1 {
						t.Errorf("%s %d: %d wait", name, i, n)
					}
					b.Decisions[0], b.Decisions[1] = tt.answers[asked], tt.answers[asked]
					asked++
					return nil
				}
				v := do.must(t, g, patient("a", 5*time.Second))
				// Who was refused after the time that it was told waits for up to 50 ms longer the next time.
				if late := v.Waited - tt.waited; v.Decision != tt.answers[len(tt.answers)-1] || late < 0 || late > 2*50*time.Millisecond || g.Waiting() != 0 {
					t.Errorf("%s %d: %+v after %v", name, i, v.Decision, v.Waited)
				}
			})
		}
	}
}

// A wait sees the numbers that are set meanwhile.
func TestSetReachesThoseWhoWait(t *testing.T) {
	bubble(t, func(t *testing.T, g *Engine, do charging) {
		do.must(t, g, patient("a", 0))
		p := *g.Rules().Rule("p").Policy()
		p.Limits = slices.Clone(p.Limits)
		for i := range p.Limits {
			p.Limits[i].Rate, p.Limits[i].Burst = 100, 100
		}
		time.AfterFunc(time.Second/2, func() { set(t, g, p) })
		v := do.must(t, g, patient("a", 5*time.Second))
		if want := time.Second; !v.Allowed || v.Waited > want || v.Decision.Limit != 100 {
			t.Errorf("%+v", v)
		}
	})
}

// Limits in shadow are charged when the wait is over, and cannot make it longer.
func TestWaitIgnoresShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newEngine(t, newTable(t, nil), policy("p", steady(""), perHour("s", 1).mode(Shadow)))
		if v := check(t, g, "p", patient("a", 5*time.Second)); v.Shadow != -1 {
			t.Errorf("%+v", v)
		}
		if v := check(t, g, "p", patient("a", 5*time.Second)); !v.Allowed || v.Waited != time.Second || v.Shadow != 1 {
			t.Errorf("%+v", v)
		}
	})
}

// A reservation that is settled lets the next one go at once, and one's ticket is valid from the end of its wait.
func TestReserveWaitsForASettledOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newEngine(t, newTable(t, nil), policy("p", slots("", 1), perHour("h", 1000).by("ip")))
		r := g.Rules().Rule("p")
		q := Query{Key: "a", Cost: 1, Keys: []Attribute{ip("192.0.2.1")}, Client: "c", MaxWait: MaxWait}
		_, first, err := g.Reserve(ctx, r, &q, time.Minute)
		if err != nil || first == nil {
			t.Fatal(err)
		}
		time.AfterFunc(3*time.Second, func() {
			if _, err := g.Settle(ctx, first, Used{All: true}); err != nil {
				t.Error(err)
			}
		})
		v, second, err := g.Reserve(ctx, r, &q, time.Second)
		synctest.Wait() // for the end of Settle, which counts after it has let the next one go
		if err != nil || second == nil || v.Waited != 3*time.Second || g.reserved.len() != 1 {
			t.Fatalf("%+v, %v; %d are counted", v, err, g.reserved.len())
		}
		if until := g.reserved.byID[second.id].until; !until.Equal(time.Now().Add(time.Second)) {
			t.Errorf("it is counted for %v", time.Until(until))
		}

		began := time.Now()
		v, third, err := g.Reserve(ctx, r, &q, time.Second) // when the second one has expired
		if err != nil || third == nil || v.Waited != time.Second || time.Since(began) != time.Second {
			t.Errorf("%+v, %v", v, err)
		}
		if renewed, err := g.Renew(ctx, third, time.Hour); err != nil || !renewed {
			t.Fatal(renewed, err)
		}
		v, none, err := g.Reserve(ctx, r, &q, time.Second)
		if err != nil || none != nil || v.Reason != weir.TooLate || v.Waited != MaxWait || v.LimitedBy() != "p" {
			t.Errorf("nobody has settled: %+v, %v", v, err)
		}
		if n := g.reserved.len(); n != 2 || g.Waiting() != 0 { // the second is counted until somebody needs its share
			t.Errorf("%d are counted, %d wait", n, g.Waiting())
		}
	})
}

// A client that makes all the requests that may wait leaves room for reservations of others.
func TestShareOfWaitingReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newEngine(t, newTable(t, nil), policy("p", perHour("", 1)))
		g.waiting.most, g.waiting.each = 40, 0
		reserve := func() Verdict {
			v, _, err := g.Reserve(ctx, g.Rules().Rule("p"), &Query{Key: "a", Cost: 1, Client: "greedy", MaxWait: time.Second}, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		if v := reserve(); !v.Allowed {
			t.Errorf("there is room: %+v", v)
		}
		if v := reserve(); v.Allowed || v.Reason != weir.QueueFull || v.RetryAfter != time.Hour+time.Minute { // held for a minute, and then replenished
			t.Errorf("the share is used up: %+v", v)
		}
	})
}

// Who leaves during the wait has reserved nothing.
func TestReserveLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newEngine(t, newTable(t, nil), kinds[1])
		check(t, g, "p", patient("a", 0))
		leaving, leave := context.WithCancel(ctx)
		time.AfterFunc(time.Second/2, leave)
		q := patient("a", MaxWait)
		q.Client = "c"
		v, ticket, err := g.Reserve(leaving, g.Rules().Rule("p"), &q, time.Minute)
		if !errors.Is(err, context.Canceled) || ticket != nil || v.Allowed || g.reserved.len() != 0 {
			t.Errorf("%+v, %v", v, err)
		}
		time.Sleep(time.Second / 2)
		if v := check(t, g, "p", patient("a", 0)); !v.Allowed {
			t.Errorf("who left has reserved: %+v", v)
		}
	})
}

// A reservation that is waited for counts as one of its client's, however short it is to be.
func TestWaitingReservationsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newEngine(t, newTable(t, nil), policy("p", slots("", 1)))
		g.reserved.most, g.reserved.each = 4, 1
		reserve := func(key, client string) Verdict {
			v, _, err := g.Reserve(ctx, g.Rules().Rule("p"), &Query{Key: key, Cost: 1, Client: client, MaxWait: 5 * time.Second}, time.Second)
			if err != nil {
				t.Error(err)
			}
			return v
		}
		if _, _, err := g.Reserve(ctx, g.Rules().Rule("p"), &Query{Key: "a", Cost: 1, Client: "first"}, time.Minute); err != nil {
			t.Fatal(err)
		}
		done := make(chan Verdict)
		go func() { done <- reserve("a", "second") }()
		time.Sleep(3 * time.Second)
		if v := reserve("free", "second"); v.Reason != weir.QueueFull {
			t.Errorf("one more than the share: %+v", v)
		}
		if v := <-done; v.Reason != weir.TooLate {
			t.Errorf("%+v", v)
		}
		if v := reserve("free", "second"); !v.Allowed {
			t.Errorf("after the wait: %+v", v)
		}
	})
}
