package redisstore

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/store/storetest"
)

func TestMain(m *testing.M) {
	if os.Getenv(nodeVariable) != "" {
		os.Exit(runNode())
	}
	if !long { // the long form looks for new cases
		if err := flag.Set("rapid.seed", "1"); err != nil {
			panic(err)
		}
	}
	// These end by themselves some seconds after a cluster has changed; see
	// redisconn.Conn.Close.
	goleak.VerifyTestMain(withServer{m},
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

// without is what the suite asks of a store and this one does not do.
var without = map[storetest.Demand]string{
	storetest.BoundedHolds:    "a key's reservations are bounded, not those of all keys: these may lie on different servers",
	storetest.BoundedKeys:     "Redis forgets keys when they are as if unused, and has maxmemory for a bound",
	storetest.TimeStandsStill: "each row keeps its own time; the server's clock is everybody's",
	storetest.CheckedSet:      "Set would have to look at every key of the server",
}

func server(addr string) Server { return Server{Addrs: []string{addr}} }

// open returns a store with a prefix of its own.
func open(t testing.TB, c Config) *Store {
	t.Helper()
	if c.Prefix == "" {
		c.Prefix = fmt.Sprintf("t%d:", prefixes.Add(1))
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second // tests are not about a slow machine
	}
	if c.Redis.Timeout == 0 {
		c.Redis.Timeout, c.Redis.DialTimeout = 5*time.Second, 5*time.Second
	}
	if c.OnReplaced == nil {
		c.OnReplaced = func(Replacement) {}
	}
	s, err := New(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

var prefixes atomic.Int64

func TestConformance(t *testing.T) {
	redis := redistest.Start(t)
	storetest.Run(t, storetest.Store{
		Open: func(t testing.TB, o storetest.Options) weir.Limiter {
			return open(t, Config{Redis: server(redis.Addr()), Now: o.Clock.Now})
		},
		Resolution: time.Microsecond,
		Without:    without,
	})
}

// The general script alone gives the same answers as the two together.
func TestConformanceOfTheGeneralScript(t *testing.T) {
	redis := redistest.Start(t)
	storetest.Run(t, storetest.Store{
		Open: func(t testing.TB, o storetest.Options) weir.Limiter {
			s := open(t, Config{Redis: server(redis.Addr()), Now: o.Clock.Now})
			s.general = true
			return s
		},
		Resolution: time.Microsecond,
		Without:    without,
	})
}
