package upstream

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/ruleset"
)

// A vendor gives each account 500 units a second, over ten seconds: a bucket of 5,000, and at most 5,000 in any ten
// seconds. It refuses what is beyond either.
type vendor struct {
	perAccount map[string]*vendorAccount
	refused    int
	served     int
}

type vendorAccount struct {
	level float64 // of the bucket
	at    time.Time
	log   []spent
}

type spent struct {
	at    time.Time
	units int
}

const (
	vendorRate   = 500
	vendorWindow = 10 * time.Second
)

func (v *vendor) take(host string, now time.Time, units int) bool {
	a := v.perAccount[host]
	if a == nil {
		a = &vendorAccount{level: vendorRate * 10, at: now}
		v.perAccount[host] = a
	}
	a.level = min(vendorRate*10, a.level+vendorRate*now.Sub(a.at).Seconds())
	a.at = now
	used := 0
	for len(a.log) > 0 && now.Sub(a.log[0].at) >= vendorWindow {
		a.log = a.log[1:]
	}
	for _, s := range a.log {
		used += s.units
	}
	if a.level < float64(units) || used+units > vendorRate*10 {
		v.refused++
		return false
	}
	a.level -= float64(units)
	a.log = append(a.log, spent{now, units})
	v.served++
	return true
}

// TestStrategies offers 1,500 units a second for a minute to three accounts of 500 each: calls of 20 units, with
// budgets and balanced, and as document 001 has it, without budgets, sticky and with a pause of a minute.
func TestStrategies(t *testing.T) {
	const units, perSecond, seconds = 20, 75, 60
	run := func(t *testing.T, c Config, accounts ...budget.Config) (delivered, refused, failed int) {
		synctest.Test(t, func(t *testing.T) {
			pool, p := newPool(t, c, accounts...)
			v := &vendor{perAccount: map[string]*vendorAccount{}}
			p.answer = func(r *http.Request, _ string) (*http.Response, error) {
				time.Sleep(20 * time.Millisecond)
				p.mu.Lock()
				defer p.mu.Unlock()
				if !v.take(r.URL.Host, time.Now(), units) {
					return reply(429, tooMany), nil
				}
				return reply(200, `{"jsonrpc":"2.0","id":1,"result":"0x1"}`), nil
			}
			var wg sync.WaitGroup
			for i := range perSecond * seconds {
				wg.Go(func() {
					reply, err := pool.Send(request(t.Context(), i), call())
					limited := (*LimitedError)(nil)
					switch {
					case errors.As(err, &limited) && limited.Reason == weir.TooLate:
					case err != nil:
						t.Error(err)
					case reply.StatusCode != 200:
						reply.Body.Close()
					default:
						reply.Body.Close()
						return
					}
					p.mu.Lock()
					failed++
					p.mu.Unlock()
				})
				time.Sleep(time.Second / perSecond)
			}
			wg.Wait()
			delivered, refused = v.served, v.refused
		})
		return delivered, refused, failed
	}
	var budgets []budget.Config
	var balanced, sticky []Endpoint
	for i := range 3 {
		name := fmt.Sprintf("account-%d", i+1)
		budgets = append(budgets, budget.Config{Name: name, Classes: []budget.Class{}, Limits: []ruleset.Limit{
			{Limit: weir.Limit{Rate: 500, Per: weir.Every(time.Second), Burst: 500}},
			{Limit: weir.Limit{Name: "window", Rate: 5000, Per: weir.Every(vendorWindow), Algorithm: weir.SlidingLog}},
		}, Costs: flat(t, units)})
		balanced = append(balanced, endpointAt(name, withBudget(name)))
		sticky = append(sticky, endpointAt(name))
	}
	var table strings.Builder
	offered := perSecond * seconds
	line := func(name string, delivered, refused, failed int) {
		fmt.Fprintf(&table, "%-28s %5d offered  %5d delivered (%.1f %%)  %4d refused by the provider  %4d not delivered\n",
			name, offered, delivered, 100*float64(delivered)/float64(offered), refused, failed)
	}
	delivered, refused, failed := run(t, Config{Endpoints: balanced}, budgets...)
	line("balanced", delivered, refused, failed)
	if delivered < offered*98/100 || refused != 0 || delivered+failed != offered {
		t.Errorf("balanced: %d of %d delivered, %d refused, %d failed", delivered, offered, refused, failed)
	}
	d, r, f := run(t, Config{Endpoints: balanced, Strategy: Sticky}, budgets...)
	line("sticky, with budgets", d, r, f)
	if d < offered*98/100 || r != 0 {
		t.Errorf("sticky with budgets: %d of %d delivered, %d refused", d, offered, r)
	}
	d, r, f = run(t, Config{Endpoints: sticky, Strategy: Sticky, Cooldown: time.Minute})
	line("sticky, as in the document", d, r, f)
	if d >= delivered || r == 0 {
		t.Errorf("the document's strategy: %d delivered and %d refused: it is expected to be worse", d, r)
	}
	t.Log("\n" + table.String())
}

// flat is a table in which every call costs the same.
func flat(t *testing.T, units int) *budget.Table {
	t.Helper()
	table, err := budget.ParseTable(fmt.Appendf(nil,
		`{"name": "flat", "version": 1, "date": "2026-11-01", "source": "a test", "units": {"requests": "units"}, "batch": "sum", "failed_requests": "counted", "methods": {"*": {"requests": %d}}}`, units))
	if err != nil {
		t.Fatal(err)
	}
	return table
}
