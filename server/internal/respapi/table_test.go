package respapi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/apitest"
)

func throttle(t *testing.T, table *Table, key string, n Params, quantity int64) bool {
	t.Helper()
	d, err := throttleOne(table, context.Background(), "", []byte(key), n, quantity)
	if err != nil {
		t.Fatal(err)
	}
	return d.Allowed
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A million calls, each with a key and numbers of its own, cost a bounded amount of
// memory, and the last are not slower than the first.
func TestRandomNumbers(t *testing.T) {
	before := heap()
	table, err := NewTable(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	calls := lighter(1_000_000)
	var took [10]time.Duration
	for i := range calls {
		n := Params{1 + rng.Int64N(1000), 1 + rng.Int64N(100_000), 1 + rng.Int64N(100_000)}
		began := time.Now()
		throttle(t, table, strconv.Itoa(i), n, 1)
		took[i*len(took)/calls] += time.Since(began)
	}
	grown := heap() - before
	tenth := int64(calls / len(took))
	t.Logf("%d calls, ns each: first tenth %d, last %d; %d KiB for %+v", calls, took[0].Nanoseconds()/tenth, took[9].Nanoseconds()/tenth, grown>>10, table.Stats())
	if grown > 12<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	if s := table.Stats(); s.Keys > DefaultMaxKeys+shardRows {
		t.Errorf("%+v", s)
	}
	runtime.KeepAlive(table)
}

// In a full table whoever is refused stays refused, and whoever has nothing in use goes
// first.
func TestFullTable(t *testing.T) {
	c := apitest.NewClock()
	table, err := NewTable(shardRows, c.Now)
	if err != nil {
		t.Fatal(err)
	}
	hourly := Params{10, 10, 3600}
	for i := range shardRows / 2 { // whose slots are in the way of those who come later
		throttle(t, table, "brief"+strconv.Itoa(i), Params{10, 10, 1}, 2)
	}
	for i := range shardRows / 2 {
		throttle(t, table, "refused"+strconv.Itoa(i), hourly, 10)
	}
	c.Pass(time.Second)
	for i := range 1000 {
		if !throttle(t, table, "new"+strconv.Itoa(i), hourly, 1) {
			t.Fatalf("new key %d is refused", i)
		}
		if throttle(t, table, "refused"+strconv.Itoa(i%(shardRows/2)), hourly, 1) {
			t.Fatalf("after %d new keys one that was refused is free", i)
		}
	}
	s := table.Stats()
	if s.Keys != shardRows || s.Evicted == 0 || s.Overflowed != 0 {
		t.Errorf("%+v", s)
	}
	if want := s.Evicted - shardRows/2; s.Forgiven != want { // those that were brief had nothing in use, the others a unit each
		t.Errorf("%+v, want %d forgiven", s, want)
	}
}

// If nobody can go, new keys share a row, and who finds a place later begins with what is
// used there.
func TestOverflow(t *testing.T) {
	c := apitest.NewClock()
	table, err := NewTable(1, c.Now)
	if err != nil {
		t.Fatal(err)
	}
	daily, hourly := Params{1, 1, 86400}, Params{3, 3, 3600}
	for i := range shardSlots {
		throttle(t, table, strconv.Itoa(i), daily, 1)
	}
	for i, want := range []bool{true, true, true, false} {
		if got := throttle(t, table, "new"+strconv.Itoa(i), hourly, 1); got != want {
			t.Errorf("new key %d: %v", i, got)
		}
	}
	if s := table.Stats(); s.Overflowed != 3 || s.Keys != shardSlots {
		t.Errorf("%+v", s)
	}
	c.Pass(24 * time.Hour)
	if !throttle(t, table, "later", hourly, 3) {
		t.Error("a day later the shared row is still in use")
	}
}

// Asks that come together are answered as if they came one after the other, also by a table that
// is full.
func TestThrottleEach(t *testing.T) {
	c := apitest.NewClock()
	one, each := throttlers(t, c), throttlers(t, c)
	small := newTable(50, 2, c.Now)
	same := newTable(50, 2, c.Now)
	same.seed, same.spread = small.seed, small.spread
	one["small"], each["small"] = small, same
	rng := rand.New(rand.NewPCG(3, 4))
	for range lighter(2000) {
		var requests []ThrottleRequest
		for range rng.IntN(20) {
			n := Params{[]int64{1, 5, 5, 5, 100}[rng.IntN(5)], []int64{1, 10}[rng.IntN(2)], []int64{60, 60, 60, 3600, 0}[rng.IntN(5)]}
			requests = append(requests, ThrottleRequest{Key: []byte(strconv.Itoa(rng.IntN(200))), Params: n, Quantity: []int64{0, 1, 1, 1, 1, 2, 7}[rng.IntN(7)]})
		}
		for name := range one {
			got := slices.Clone(requests)
			each[name].ThrottleEach(context.Background(), "shop", got)
			for i, a := range requests {
				d, err := throttleOne(one[name], context.Background(), "shop", a.Key, a.Params, a.Quantity)
				if d != got[i].Decision || fmt.Sprint(err) != fmt.Sprint(got[i].Err) {
					t.Fatalf("%s: ask %d of %+v: %v, %v, want %v, %v", name, i, requests, got[i].Decision, got[i].Err, d, err)
				}
			}
		}
		c.Pass(time.Duration(rng.Int64N(int64(10 * time.Second))))
	}
	if s := same.Stats(); s != small.Stats() || s.Evicted == 0 {
		t.Errorf("%+v, want %+v", s, small.Stats())
	}
}

// Whoever asks at once gets no more together than the limit.
func TestThrottleTogether(t *testing.T) {
	table, err := NewTable(0, apitest.NewClock().Now)
	if err != nil {
		t.Fatal(err)
	}
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		granted = map[string]int{}
	)
	for w := range 8 {
		wg.Go(func() {
			for i := range 500 {
				client, key := strconv.Itoa(w%2), strconv.Itoa(i%3)
				if d, err := throttleOne(table, context.Background(), client, []byte(key), Params{100, 1, 3600}, 1); err == nil && d.Allowed {
					mu.Lock()
					granted[client+key]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for client, n := range granted {
		if n != 100 {
			t.Errorf("%s got %d of 100", client, n)
		}
	}
	if len(granted) != 6 {
		t.Errorf("clients share keys: %v", granted)
	}
}

func TestNewTable(t *testing.T) {
	if _, err := NewTable(-1, nil); err == nil {
		t.Error("a negative number of keys passes")
	}
}
