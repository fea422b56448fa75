package upstream

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/budget"
)

// freeAccounts returns n accounts of Alchemy's free plan, and an endpoint for each.
func freeAccounts(n int) (endpoints []Endpoint, accounts []budget.Config) {
	for i := range n {
		name := fmt.Sprintf("free-%d", i+1)
		endpoints = append(endpoints, endpointAt(name, withBudget(name)))
		accounts = append(accounts, budget.Config{Name: name, Preset: "alchemy-free", Classes: []budget.Class{}})
	}
	return endpoints, accounts
}

// TestCapacity shows what several free accounts have together, by horizon: per second, in a minute, and per month. Document 001's table multiplies the units
// per second by the seconds of a month, which no free account has: its month ends at 30 million.
func TestCapacity(t *testing.T) {
	const seconds, cost = 60, 20
	var table strings.Builder
	for _, n := range []int{1, 2, 3, 5} {
		synctest.Test(t, func(t *testing.T) {
			endpoints, accounts := freeAccounts(n)
			pool, _ := newPool(t, Config{MaxWait: -1, Endpoints: endpoints}, accounts...)
			call := &Call{Methods: []string{"eth_getBalance"}}
			used := func() (units int64) {
				for _, a := range accounts {
					u, err := pool.accounts(a.Name).Usage(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					units += u.Ledgers["throughput"].Granted
				}
				return units
			}
			saturate := func(d time.Duration) {
				for range d / (20 * time.Millisecond) {
					for {
						if _, _, err := send(pool, call); err != nil {
							break
						}
					}
					time.Sleep(20 * time.Millisecond)
				}
			}
			saturate(30 * time.Second) // what they have at once in the beginning is no rate
			before := used()
			saturate(seconds * time.Second)
			perSecond := float64(used()-before) / seconds
			var perMonth int64
			for _, a := range accounts {
				u, _ := pool.accounts(a.Name).Usage(t.Context())
				for _, h := range u.Horizons {
					if h.Limit == "month" {
						perMonth += h.Capacity
					}
				}
			}
			fmt.Fprintf(&table, "%d free accounts: %4.0f units/s of the provider's %d, %3d M billed units a month\n", n, perSecond, 500*n, perMonth/1_000_000)
			if want := float64(500 * n); perSecond < 0.96*want || perSecond > want {
				t.Errorf("%d accounts: %v units per second, want 96 to 100 %% of %v", n, perSecond, want)
			}
			if want := int64(30_000_000 * n); perMonth != want {
				t.Errorf("%d accounts: %d units per month, want %d", n, perMonth, want)
			}
		})
	}
	t.Log("\n" + table.String())
}

// TestThreeChains polls Ethereum, Base and BNB for a day as document 001 does in its batched mode, with three free
// accounts: every poll is sent at once, and a month of it is less than what they have.
func TestThreeChains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		endpoints, accounts := freeAccounts(3)
		pool, p := newPool(t, Config{MaxWait: -1, Endpoints: endpoints}, accounts...)
		const every, chains = 17 * time.Second, 3 // about 13 million units a month for each chain, as in the document
		polls := int(24 * time.Hour / every)
		for range polls {
			for range chains {
				if _, _, err := send(pool, &Call{Methods: []string{"eth_blockNumber", "eth_getLogs"}, Repeatable: true}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(every)
		}
		if got := len(p.times("")); got != chains*polls {
			t.Errorf("%d polls were sent, want %d", got, chains*polls)
		}
		for _, a := range accounts {
			u, err := pool.accounts(a.Name).Usage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if month := 30 * u.Ledgers["cu"].Granted; month == 0 || month > 30_000_000 {
				t.Errorf("%s would use %d units in a month of 30 million", a.Name, month)
			}
		}
	})
}
