package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// When one call has found its connection broken, others that broke at the same moment
// are tried before anything is sent over them: only one caller has an unknown outcome.
func TestBrokenConnectionsAreTriedFirst(t *testing.T) {
	redis := redistest.Start(t)
	relay := redistest.NewRelay(t, redis.Addr())
	s := open(t, Config{Redis: server(relay.Addr()), Timeout: 10 * time.Second})
	p := twoWays(t)[0]
	callers := func() (failed, unknown int64) {
		var f, u atomic.Int64
		var all sync.WaitGroup
		for i := range 400 { // so many that both senders go
			all.Go(func() {
				_, err := s.Take(context.Background(), p, fmt.Sprint(i), 1)
				if err != nil {
					f.Add(1)
				}
				if errors.Is(err, weir.ErrUnknown) {
					u.Add(1)
				}
			})
		}
		all.Wait()
		return f.Load(), u.Load()
	}
	for range 3 {
		if failed, _ := callers(); failed != 0 {
			t.Fatalf("%d of 400 failed before anything was cut", failed)
		}
	}
	found := 0
	for cuts := 0; found < 5; cuts++ {
		if cuts == 100 {
			t.Fatalf("of %d cuts %d were found by a call", cuts, found)
		}
		relay.Cut()
		_, err := s.Take(context.Background(), p, "first", 1)
		failed, unknown := callers()
		if err == nil { // its connection had noticed in time, so nobody knew of the others
			continue
		}
		if found++; unknown != 0 || failed != 0 {
			t.Errorf("after the first: %d of 400 failed, %d of them unknown", failed, unknown)
		}
	}
}

// After Changed, a Store loads the policy's record before the next decision.
func TestChanged(t *testing.T) {
	redis := redistest.Start(t)
	s := open(t, Config{Redis: server(redis.Addr())})
	p := twoWays(t)[0]
	s.Changed(p.Name()) // of which it knows nothing yet
	ask := func() int64 {
		if _, err := s.Take(context.Background(), p, "k", 1); err != nil {
			t.Fatal(err)
		}
		return s.historyOf(p.Name()).tries.Load()
	}
	before := ask()
	if after := ask(); after != before {
		t.Fatalf("without a word the record was loaded %d times", after-before)
	}
	s.Changed(p.Name())
	if after := ask(); after != before+1 {
		t.Errorf("after a word the record was loaded %d times, want once", after-before)
	}
}
