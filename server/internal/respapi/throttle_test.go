package respapi

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/store/redisstore"
	"github.com/weirlimit/weir/tiered"
)

func openRedis(t *testing.T, addr string) *redisstore.Store {
	t.Helper()
	store, err := redisstore.New(context.Background(), redisstore.Config{
		Redis:   redisstore.Server{Addrs: []string{addr}, Timeout: 5 * time.Second, DialTimeout: 5 * time.Second},
		Timeout: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// Two daemons with one Redis share the keys of CL.THROTTLE, client by client.
func TestSharedOverRedis(t *testing.T) {
	addr := redistest.Start(t).Addr()
	nodes := []*throttler{newThrottler(openRedis(t, addr)), newThrottler(openRedis(t, addr))}
	n := params{3, 3, 3600}
	for i, want := range []bool{true, true, true, false, false} {
		for _, client := range []string{"", "alice", "bob"} {
			d, err := throttleOne(nodes[i%2], client, "k", n, 1)
			if err != nil || d.Allowed != want || d.Limit != 3 {
				t.Errorf("call %d of %q: %+v, %v", i, client, d, err)
			}
		}
	}
	for _, quantity := range []int64{0, 4} {
		d, err := throttleOne(nodes[0], "", "k", n, quantity)
		if err != nil || d.Allowed != (quantity == 0) || d.Remaining != 0 {
			t.Errorf("%d: %+v, %v", quantity, d, err)
		}
	}
}

// Numbers that are made up leave nothing behind, here or there, but the keys.
func TestSharedRandomNumbers(t *testing.T) {
	server := redistest.Start(t)
	shared := newThrottler(openRedis(t, server.Addr()))
	rng := rand.New(rand.NewPCG(9, 10))
	var before int64
	calls := lighter(8_000)
	for i := range calls {
		n := params{1 + rng.Int64N(1000), 1 + rng.Int64N(100_000), 1 + rng.Int64N(100_000)}
		if _, err := throttleOne(shared, "alice", strconv.Itoa(i%10), n, 1); err != nil {
			t.Fatal(err)
		}
		if i == calls/2 {
			before = heap()
		}
	}
	if grown := heap() - before; grown > 2<<20 {
		t.Errorf("the second half of %d calls has left %d bytes", calls, grown)
	}
	if keys, _ := strconv.Atoi(server.MustDo("DBSIZE").Text); keys > 20 {
		t.Errorf("10 keys have become %d", keys)
	}
}

// Quantities beyond what fits a charge are answered alike, in memory and over Redis.
func TestThrottleGreatQuantities(t *testing.T) {
	memory := newFixture(t)
	redis := newFixture(t)
	redis.decideBy(t, openRedis(t, redistest.Start(t).Addr()))
	for name, f := range map[string]*fixture{"memory": memory, "redis": redis} {
		t.Run(name, func(t *testing.T) {
			f.want(
				t,
				"CL.THROTTLE k 4999999999 5000000000 60 5000000001", "*5\r\n:1\r\n:5000000000\r\n:5000000000\r\n:-1\r\n:0",
				"CL.THROTTLE k 0 1 60 9223372036854775807", "*5\r\n:1\r\n:1\r\n:1\r\n:-1\r\n:0",
				"CL.THROTTLE k 4999999999 5000000000 60 3000000000", "-ERR quantity 3000000000: one call takes at most 2147483647",
				"CL.THROTTLE k 2147483647 5000000000 60 2147483648", "-ERR quantity 2147483648: one call takes at most 2147483647",
				"CL.THROTTLE k 4999999999 5000000000 60 2147483647", "*5\r\n:0\r\n:5000000000\r\n:2852516353\r\n:-1\r\n:26",
			)
		})
	}
}

// The reported limit is the caller's, also while Redis is unavailable: then a node has its share of
// it, or none.
func TestThrottleLimitInAnOutage(t *testing.T) {
	for _, tt := range []struct {
		onError weir.OnError
		want    string // limited and limit
	}{
		{weir.FailLocal, "*5\r\n:0\r\n:10\r\n"},
		{weir.FailOpen, "*5\r\n:0\r\n:10\r\n"},
		{weir.FailClosed, "*5\r\n:1\r\n:10\r\n"},
	} {
		t.Run(tt.onError.String(), func(t *testing.T) {
			down := &calls{Limiter: apitest.Table(t, nil), fail: errors.New("unavailable")}
			tier, err := tiered.New(tiered.Config{Store: down, Local: apitest.Table(t, nil), OnError: tt.onError, Nodes: 4})
			if err != nil {
				t.Fatal(err)
			}
			defer tier.Close()
			f := newFixture(t)
			f.decideBy(t, tier)
			const ask = "CL.THROTTLE k 9 10 60\r\n"
			for _, reply := range f.play(ask, ask+"CL.THROTTLE other 9 10 60\r\n") {
				if !strings.HasPrefix(reply, tt.want) {
					t.Errorf("%q, want %q", reply, tt.want)
				}
			}
			if got := f.play("CL.THROTTLE k 9 10 60 11\r\n")[0]; !strings.HasPrefix(got, "*5\r\n:1\r\n:10\r\n") || !strings.Contains(got, ":-1\r\n") {
				t.Errorf("more than ever fits: %q", got)
			}
		})
	}
}

// A configuration cannot have a policy that meets CL.THROTTLE's.
func TestSharedName(t *testing.T) {
	p, err := newThrottler(nil).policy("alice", params{1, 1, 1})
	if err != nil || !strings.HasPrefix(p.Name(), ":") {
		t.Errorf("%q, %v", p.Name(), err)
	}
}
