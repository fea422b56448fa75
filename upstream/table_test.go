package upstream

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/internal/mockrpc"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/secret"
)

// The load of TestStrategies: eth_getBalance, which costs 20 units, offers what three accounts have.
const (
	loadRate    = 1500 // units per second
	loadCost    = 20
	loadSeconds = 60
	loadCalls   = loadRate * loadSeconds / loadCost
)

// A tally counts what became of the load.
type tally struct {
	delivered, refused, limited int // refused: answers 429 that callers got
	provider                    mockrpc.Stats
}

func (r tally) share() float64 { return 100 * float64(r.delivered) / loadCalls }

func (r tally) rate() int64 { return r.provider.Total.Refused["rate"] }

// TestStrategies offers 1,500 units a second for a minute to a provider with three accounts of 500 each, over ten
// seconds: with budgets, and as document 001 has it, without budgets, sticky and with a pause of a minute.
//
// The network of the test is exact, so budgets need no room for jitter: they are the provider's two readings. The
// preset keeps 3 % for it: it delivers 97 % in the long run, and in the first minute more, as it begins with a burst.
func TestStrategies(t *testing.T) {
	names := []string{"one", "two", "three"}
	endpoints := func(budgets bool) (list []Endpoint) {
		for _, name := range names {
			e := Endpoint{Alias: name, RPC: secret.New("https://alchemy.example" + mockrpc.Path("key-of-"+name))}
			if budgets {
				e.Budget = name
			}
			list = append(list, e)
		}
		return list
	}
	accounts := func(set func(*budget.Config)) (list []budget.Config) {
		for _, name := range names {
			c := budget.Config{Name: name, Preset: "alchemy-free", Classes: []budget.Class{}} // one class has it all
			set(&c)
			list = append(list, c)
		}
		return list
	}
	exact := accounts(func(c *budget.Config) {
		c.Limits = []ruleset.Limit{
			{Unit: "throughput", Limit: weir.Limit{Rate: 500, Per: weir.Every(time.Second), Burst: 500}},
			{Unit: "throughput", Limit: weir.Limit{Name: "window", Rate: 5000, Per: weir.Every(10 * time.Second), Algorithm: weir.SlidingLog}},
		}
	})
	preset := accounts(func(*budget.Config) {})

	var table strings.Builder
	for _, tt := range []struct {
		name     string
		config   Config
		accounts []budget.Config
		least    float64 // % delivered
		most     float64
		refusals bool // the provider refuses calls
	}{
		{"balanced", Config{Endpoints: endpoints(true)}, exact, 98, 100, false},
		{"balanced, preset", Config{Endpoints: endpoints(true)}, preset, 98, 100, false},
		{"sticky", Config{Endpoints: endpoints(true), Strategy: Sticky}, exact, 98, 100, false},
		{"sticky, preset, 60 s", Config{Endpoints: endpoints(true), Strategy: Sticky, Cooldown: time.Minute}, preset, 98, 100, false}, // the strategy and the pause of an import
		{"sticky, no budgets", Config{Endpoints: endpoints(false), Strategy: Sticky}, nil, 0, 97, true},
		{"sticky, no budgets, 60 s", Config{Endpoints: endpoints(false), Strategy: Sticky, Cooldown: time.Minute, MaxWait: -1}, nil, 10, 30, true},
	} {
		r := offer(t, tt.config, tt.accounts)
		fmt.Fprintf(&table, "%-26s %5d offered  %5d delivered (%5.1f %%)  %4d refused by the provider  %4d not sent in time\n",
			tt.name, loadCalls, r.delivered, r.share(), r.rate(), r.limited)
		if got := r.share(); got < tt.least || got > tt.most || r.rate() > 0 != tt.refusals {
			t.Errorf("%s: %.1f %% delivered, and the provider refused %d calls: want %v to %v %%, refusals: %v", tt.name, got, r.rate(), tt.least, tt.most, tt.refusals)
		}
		if int64(r.delivered) != r.provider.Total.Served || r.delivered+r.refused+r.limited != loadCalls {
			t.Errorf("%s: %+v: of %d calls each has one outcome", tt.name, r, loadCalls)
		}
		for _, a := range r.provider.Accounts {
			if a.MaxUnits10s > 5000 {
				t.Errorf("%s: the provider has admitted %d units in ten seconds", tt.name, a.MaxUnits10s)
			}
		}
	}
	t.Log("\n" + table.String())
}

// offer offers the load to a pool, in virtual time.
func offer(t *testing.T, c Config, accounts []budget.Config) (r tally) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mock := mockrpc.Config{Rate: 500, Latency: 20 * time.Millisecond}
		for _, e := range c.Endpoints {
			mock.Accounts = append(mock.Accounts, mockrpc.Account{Name: e.Alias, Keys: []string{"key-of-" + e.Alias}})
		}
		provider := weir.Must(mockrpc.New(mock))
		pool, p := newPool(t, c, slices.Clone(accounts)...)
		p.answer = func(r *http.Request, body string) (*http.Response, error) {
			again := r.Clone(r.Context())
			again.Body = readCloser(body)
			return provider.RoundTrip(again)
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		for i := range loadCalls {
			wg.Go(func() {
				reply, err := pool.Send(callRequest(t, i, "eth_getBalance"), &Call{Methods: []string{"eth_getBalance"}, Repeatable: true})
				mu.Lock()
				defer mu.Unlock()
				limited := (*LimitedError)(nil)
				switch {
				case errors.As(err, &limited):
					r.limited++
				case err != nil:
					t.Error(err)
				case reply.StatusCode == http.StatusOK:
					r.delivered++
				default:
					r.refused++
				}
			})
			time.Sleep(time.Second * loadCost / loadRate)
		}
		wg.Wait()
		r.provider = provider.Stats()
	})
	return r
}
