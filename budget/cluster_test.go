package budget_test

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/redisstore"
)

// slowPreset is the preset with limits of which nothing comes back during a test.
func slowPreset(throughput, cu int64) budget.Config {
	limit := func(name, unit string, rate int64, years time.Duration) ruleset.Limit {
		return ruleset.Limit{Unit: unit, Limit: weir.Limit{Name: name, Rate: rate, Per: weir.Every(years * 8766 * time.Hour)}}
	}
	return budget.Config{
		Name: "main", Preset: "alchemy-free", Logger: slog.New(slog.DiscardHandler),
		Limits: []ruleset.Limit{
			limit("", "throughput", throughput, 1),
			{Unit: "throughput", Limit: weir.Limit{Name: "window", Rate: 2 * throughput, Per: weir.Every(8766 * time.Hour), Algorithm: weir.SlidingLog}},
			limit("month", "cu", cu, 2),
		},
	}
}

// TestAccountOnACluster: the units of an account are on different masters of a Redis Cluster, so that a call reserves
// one after the other. Of both not one is granted too much, and not one is lost, by workers that use reservations, cancel
// or overlook them, whichever unit is used up (F1.13).
func TestAccountOnACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	for scarce, capacity := range map[string]budget.Amounts{
		"throughput": {"throughput": 20_000, "cu": 100_000},
		"cu":         {"throughput": 100_000, "cu": 8000},
	} {
		t.Run(scarce, func(t *testing.T) {
			workers := make([]*budget.Account, 4)
			for i := range workers {
				workers[i] = weir.Must(budget.New(openCluster(t, cluster, scarce+":"), slowPreset(capacity["throughput"], capacity["cu"])))
			}
			work(t, workers)
			testNothingLost(t, workers, capacity)
			testMasters(t, cluster, scarce+":")
		})
	}
}

// openCluster returns a connection to a cluster of its own, as each process has one.
func openCluster(t *testing.T, cluster *redistest.Cluster, prefix string) *redisstore.Store {
	t.Helper()
	server := redisstore.Server{Addrs: cluster.Addrs(), Timeout: 5 * time.Second, DialTimeout: 5 * time.Second}
	s, err := redisstore.New(t.Context(), redisstore.Config{Redis: server, Prefix: prefix, Timeout: 30 * time.Second}) // tests are not about a slow machine
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// work has callers reserve what methods cost, and settle, cancel or overlook it.
func work(t *testing.T, workers []*budget.Account) {
	methods := []string{"eth_getLogs", "eth_sendRawTransaction", "eth_call", "eth_getBlockReceipts"}
	var all sync.WaitGroup
	for i := range 80 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 13)) //nolint:gosec // the same every time
			c := weir.Must(workers[i%len(workers)].Controller([]string{"realtime", "backfill"}[i/len(workers)%2]))
			for range 10 {
				r, _, err := c.TryReserve(t.Context(), time.Hour, budget.Method(methods[random.IntN(len(methods))]))
				switch kind := random.IntN(4); {
				case err != nil || r == nil || kind == 0: // an error, a refusal, or its caller crashes
				case kind == 1:
					_, err = r.Cancel(t.Context())
				case kind == 2:
					_, err = r.Settle(t.Context(), budget.In(budget.Amounts{"throughput": random.Int64N(20), "cu": random.Int64N(20)}))
				default:
					_, err = r.Commit(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// testNothingLost uses what is left of each unit: by the workers' ledgers that is all there is, to the unit. What
// refused calls had reserved of the other unit is given back in the background, so it may be there a little later.
func testNothingLost(t *testing.T, workers []*budget.Account, capacity budget.Amounts) {
	t.Helper()
	for unit, most := range capacity {
		var sum budget.Ledger
		for patience := time.Now().Add(time.Minute); sum.Used+sum.Open < most && time.Now().Before(patience); {
			drain(t, workers, unit)
			sum = counted(t, workers, unit)
		}
		t.Logf("%s: %+v", unit, sum)
		if sum.Used+sum.Open != most || sum.Open == 0 || sum.Returned == 0 || sum.Overrun != 0 {
			t.Errorf("%s: %+v are %d units, want %d", unit, sum, sum.Used+sum.Open, most)
		}
	}
	for _, h := range weir.Must(workers[0].Usage(t.Context())).Horizons {
		if h.Used != capacity[h.Unit] {
			t.Errorf("%d units are used of %q, want %d", h.Used, h.Limit, capacity[h.Unit])
		}
	}
}

// counted returns the sum of the workers' ledgers.
func counted(t *testing.T, workers []*budget.Account, unit string) (sum budget.Ledger) {
	t.Helper()
	for _, a := range workers {
		l := weir.Must(a.Usage(t.Context())).Ledgers[unit]
		sum.Used, sum.Open, sum.Returned, sum.Overrun = sum.Used+l.Used, sum.Open+l.Open, sum.Returned+l.Returned, sum.Overrun+l.Overrun
	}
	return sum
}

// drain uses what is left of a unit.
func drain(t *testing.T, workers []*budget.Account, unit string) {
	t.Helper()
	for _, a := range workers {
		for _, class := range a.Classes() {
			c := weir.Must(a.Controller(class))
			for n := int64(1024); n > 0; n /= 2 {
				for weir.Must(c.Try(t.Context(), budget.In(budget.Amounts{unit: n}))).Allowed {
				}
			}
		}
	}
}

// testMasters wants rows of an account on two masters.
func testMasters(t *testing.T, cluster *redistest.Cluster, prefix string) {
	t.Helper()
	masters := 0
	for _, m := range cluster.Masters() {
		if slices.ContainsFunc(keysOf(t, m), func(key string) bool { return strings.HasPrefix(key, prefix+"{main") }) {
			masters++
		}
	}
	if masters != 2 {
		t.Errorf("%d masters have rows of the account", masters)
	}
}
