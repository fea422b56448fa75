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

// kinds are a policy of one charge, whose callers stand in line, and one of several, whose
// callers try again.
var kinds = []Policy{policy("p", steady("")), policy("p", steady(""), steady("i").by("ip"))}

func bubble(t *testing.T, kind func(t *testing.T, g *Engine)) {
	for _, p := range kinds {
		t.Run(fmt.Sprint(len(p.Limits)), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { kind(t, newEngine(t, newTable(t, nil), p)) })
		})
	}
}

func patient(key string, wait time.Duration) Query {
	q := one(key, ip(key))
	q.MaxWait = wait
	return q
}

func TestWait(t *testing.T) {
	bubble(t, func(t *testing.T, g *Engine) {
		if v := check(t, g, "p", patient("a", time.Second)); !v.Allowed || v.Waited != 0 {
			t.Errorf("there is room: %+v", v)
		}
		if v := check(t, g, "p", patient("a", 5*time.Second)); !v.Allowed || v.Waited != time.Second {
			t.Errorf("there is room in a second: %+v", v)
		}
		if v := check(t, g, "p", patient("a", time.Second)); !v.Allowed || v.Waited != time.Second {
			t.Errorf("there is room in just a second: %+v", v)
		}
		began := time.Now()
		v := check(t, g, "p", patient("a", time.Second-1))
		if v.Allowed || v.Reason != weir.TooLate || v.RetryAfter != time.Second || v.LimitedBy() == "" || time.Since(began) != 0 {
			t.Errorf("it is known at once that it is too late: %+v after %v", v, time.Since(began))
		}
		q := patient("a", 5*time.Second)
		q.Cost = 2
		if v := check(t, g, "p", q); v.Allowed || v.Reason != weir.TooCostly || time.Since(began) != 0 {
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
	bubble(t, func(t *testing.T, g *Engine) {
		check(t, g, "p", patient("a", 0))
		r, q := g.Rules().Rule("p"), patient("a", 5*time.Second)

		hurried, cancel := context.WithTimeout(ctx, time.Second/2)
		began := time.Now()
		v, err := g.Check(hurried, r, &q)
		cancel()
		if err != nil || v.Allowed || v.Reason != weir.TooLate || time.Since(began) != 0 {
			t.Errorf("the caller's deadline comes first: %+v, %v", v, err)
		}

		leaving, leave := context.WithCancel(ctx)
		time.AfterFunc(time.Second/2, leave)
		v, err = g.Check(leaving, r, &q)
		if !errors.Is(err, context.Canceled) || v.Allowed || time.Since(began) != time.Second/2 {
			t.Errorf("%+v, %v after %v", v, err, time.Since(began))
		}
		if _, err := g.Check(leaving, r, &q); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if g.Waiting() != 0 {
			t.Errorf("%d wait", g.Waiting())
		}
		if v := check(t, g, "p", q); !v.Allowed || v.Waited != time.Second/2 {
			t.Errorf("who left has left a hole: %+v", v)
		}
	})
}

// One charge: first come, first served.
func TestWaitInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newEngine(t, newTable(t, nil), kinds[0])
		check(t, g, "p", patient("a", 0))
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				v := check(t, g, "p", patient("a", MaxWait))
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
		if v := check(t, g, "p", patient("a", 0)); v.Allowed || v.RetryAfter != 6*time.Second {
			t.Errorf("behind five others: %+v", v.Decision)
		}
		wg.Wait()
		if !slices.IsSorted(order) {
			t.Errorf("the order is %v", order)
		}
	})
}

// However many wait, nobody gets a unit too many, and there are only so many of one key.
func TestManyWait(t *testing.T) {
	bubble(t, func(t *testing.T, g *Engine) {
		check(t, g, "p", patient("a", 0))
		count := map[weir.Reason]int{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range maxRetriesPerKey + 10 {
			wg.Go(func() {
				v := check(t, g, "p", patient("a", MaxWait))
				mu.Lock()
				defer mu.Unlock()
				count[v.Reason]++
			})
		}
		synctest.Wait()
		if n := g.Waiting(); n > maxRetriesPerKey || n < 10 {
			t.Errorf("%d wait", n)
		}
		others := check(t, g, "p", patient("b", MaxWait))
		if !others.Allowed {
			t.Errorf("another key is refused: %+v", others)
		}
		wg.Wait()
		if count[weir.Admitted] != 10 || g.Waiting() != 0 {
			t.Errorf("in ten seconds there are ten units: %v; %d wait", count, g.Waiting())
		}
	})
}

func TestRetriesAreBounded(t *testing.T) {
	r := shares[retrier]{most: maxWaiting, each: maxRetriesPerKey}
	for range maxRetriesPerKey {
		r.add(retrier{"p", "a"}, false)
	}
	if r.add(retrier{"p", "a"}, false) || !r.add(retrier{"p", "b"}, false) || !r.add(retrier{"q", "a"}, false) {
		t.Error("a key's bound is not its own")
	}
	for range maxRetriesPerKey {
		r.remove(retrier{"p", "a"})
	}
	if len(r.byKey) != 2 {
		t.Errorf("%d keys are left, want 2", len(r.byKey))
	}
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

// Several charges are tried again only where that can help, and count once meanwhile.
func TestRetry(t *testing.T) {
	later := weir.Decision{Reason: weir.Exhausted, RetryAfter: time.Second}
	tests := []struct {
		answers []weir.Decision // of the limiter, one after the other
		waited  time.Duration
	}{
		{[]weir.Decision{{Allowed: true}}, 0},
		{[]weir.Decision{later, later, later, {Allowed: true}}, 3 * time.Second},
		{[]weir.Decision{later, {Reason: weir.Exhausted, RetryAfter: weir.Never}}, time.Second},
		{[]weir.Decision{later, {Reason: weir.StoreDown, RetryAfter: time.Second}}, time.Second},
		{[]weir.Decision{{Reason: weir.QueueFull, RetryAfter: time.Second}}, 0},
	}
	for i, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			l, asked := &scripted{}, 0
			g := newEngine(t, l, kinds[1])
			l.do = func(_ context.Context, b *weir.Batch) error {
				if asked == len(tt.answers) {
					t.Errorf("%d: asked once more", i)
					return errDown
				}
				if n := g.Waiting(); n != 1 {
					t.Errorf("%d: %d wait", i, n)
				}
				b.Decisions[0], b.Decisions[1] = tt.answers[asked], tt.answers[asked]
				asked++
				return nil
			}
			v := check(t, g, "p", patient("a", 5*time.Second))
			if v.Decision != tt.answers[len(tt.answers)-1] || v.Waited != tt.waited || g.Waiting() != 0 {
				t.Errorf("%d: %+v after %v", i, v.Decision, v.Waited)
			}
		})
	}
}

// A wait sees the numbers that are set meanwhile.
func TestSetReachesThoseWhoWait(t *testing.T) {
	bubble(t, func(t *testing.T, g *Engine) {
		check(t, g, "p", patient("a", 0))
		p := *g.Rules().Rule("p").Policy()
		p.Limits = slices.Clone(p.Limits)
		for i := range p.Limits {
			p.Limits[i].Rate, p.Limits[i].Burst = 100, 100
		}
		time.AfterFunc(time.Second/2, func() { set(t, g, p) })
		v := check(t, g, "p", patient("a", 5*time.Second))
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
