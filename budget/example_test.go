package budget_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
)

var ctx = context.Background()

// An account that is limited to 500 units per second, 300 of them guaranteed for real-time work.
func ExampleNew() {
	table := weir.Must(memstore.New(memstore.Config{})) // or a redisstore.Store, for several processes
	account, err := budget.New(table, budget.Config{
		Name:    "provider",
		Limits:  []ruleset.Limit{{Limit: weir.Limit{Rate: 500, Per: weir.Every(time.Hour)}}},
		Classes: []budget.Class{{Name: "realtime", Share: 60}, {Name: "backfill", Share: 40}},
	})
	if err != nil {
		panic(err)
	}
	backfill, err := account.Controller("backfill")
	if err != nil {
		panic(err)
	}
	d, err := backfill.Try(ctx, budget.Units(200))
	fmt.Println(d.Allowed, err)
	d, err = backfill.Try(ctx, budget.Units(1))
	fmt.Println(d.Allowed, d.Reason, err) // RetryAfter says when

	realtime, err := account.Controller("realtime")
	if err != nil {
		panic(err)
	}
	d, err = realtime.Try(ctx, budget.Units(300))
	fmt.Println(d.Allowed, err)
	// Output:
	// true <nil>
	// false exhausted <nil>
	// true <nil>
}

// Every request of a client is charged by its method, before it is sent.
func ExampleTransport() {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":"0x1312d00"}`)
	}))
	defer provider.Close()

	account, err := budget.New(weir.Must(memstore.New(memstore.Config{})), budget.Config{Name: "alchemy-main", Preset: "alchemy-free"})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: &budget.Transport{Account: account, Class: "realtime"}}
	resp, err := client.Post(provider.URL, "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"}`))
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)

	usage, err := account.Usage(ctx)
	fmt.Println(usage.Ledgers["cu"].Used, usage.Methods, err)
	// Output: 10 map[eth_blockNumber:1] <nil>
}

// A cost that is known only afterwards, such as the tokens of a language model.
func ExampleController_Reserve() {
	account, err := budget.New(weir.Must(memstore.New(memstore.Config{})), budget.Config{
		Name:    "model",
		Limits:  []ruleset.Limit{{Unit: "tokens", Limit: weir.Limit{Rate: 1000, Per: weir.Every(time.Hour)}}},
		Classes: []budget.Class{}, // none
	})
	if err != nil {
		panic(err)
	}
	c, err := account.Controller("")
	if err != nil {
		panic(err)
	}
	r, err := c.Reserve(ctx, time.Minute, budget.Units(1000))
	if err != nil {
		panic(err)
	}
	defer r.Cancel(ctx) // nothing is charged if the call fails before Settle

	settled, err := r.Settle(ctx, budget.Units(137))
	fmt.Println(settled.Refunded, err)

	_, err = c.Reserve(ctx, time.Minute, budget.Units(1001))
	fmt.Println(errors.Is(err, budget.ErrTooCostly))
	// Output:
	// 863 <nil>
	// true
}

// When would a cost be admitted, and by which account?
func ExampleQuoteBest() {
	table := weir.Must(memstore.New(memstore.Config{}))
	var controllers []*budget.Controller
	for _, name := range []string{"a", "b"} {
		account, err := budget.New(table, budget.Config{Name: name, Limits: []ruleset.Limit{{Limit: weir.PerMinute(60)}}, Classes: []budget.Class{}})
		if err != nil {
			panic(err)
		}
		c, err := account.Controller("")
		if err != nil {
			panic(err)
		}
		controllers = append(controllers, c)
	}
	_, _ = controllers[0].Try(ctx, budget.Units(60))
	best, quote, err := budget.QuoteBest(ctx, budget.Units(10), controllers...)
	fmt.Println(best.Account().Name(), quote.Allowed, quote.Wait, err)
	// Output: b true 0s <nil>
}

func ExampleFromEnv() {
	config, err := budget.FromEnv([]string{"ALCHEMY_CU_PER_SECOND=1000", "ALCHEMY_RESERVED_CU=600", "ALCHEMY_PAUSE_THRESHOLD=85"})
	fmt.Println(config.Limits[0].Rate, config.Classes[0].Name, config.Classes[0].Guaranteed, err)

	_, err = budget.FromEnv([]string{"ALCHEMY_CU_PER_SECOND=lots"})
	fmt.Println(err)
	// Output:
	// 970 realtime 582 <nil>
	// budget: ALCHEMY_CU_PER_SECOND "lots": must be a whole number from 1 to 214748364
}
