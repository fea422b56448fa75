package guard

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
)

// per returns a limit of n per period.
func per(n int64, d time.Duration) []ruleset.Limit {
	return []ruleset.Limit{{Limit: weir.Limit{Rate: n, Per: weir.Every(d)}}}
}

// river is the sample of document 004: 17 endpoints, three of them disabled.
func river() Config {
	c := Config{
		BeforeAuth:    BeforeAuth{PerIP: per(300, time.Minute), InFlight: 2000},
		Default:       Endpoint{Limits: per(50, time.Minute)},
		Penalties:     &Penalties{},
		Abuse:         &Abuse{},
		Subscriptions: &Subscriptions{},
	}
	for _, e := range riverLimits {
		c.Endpoints = append(c.Endpoints, Endpoint{Pattern: "/river." + e.name, Limits: per(e.rate, e.per)})
	}
	for _, name := range []string{"GetAppMetadata", "GetStatus", "ValidateBotName"} {
		c.Endpoints = append(c.Endpoints, Endpoint{Pattern: "/river.AppRegistryService/" + name, Disabled: true})
	}
	return c
}

var riverLimits = []struct {
	name string
	rate int64
	per  time.Duration
}{
	{"StreamService/CreateStream", 10, time.Minute},
	{"StreamService/CreateMediaStream", 5, time.Minute},
	{"StreamService/AddEvent", 100, time.Minute},
	{"StreamService/AddMediaEvent", 20, time.Minute},
	{"StreamService/GetStream", 1000, time.Minute},
	{"StreamService/GetStreamEx", 500, time.Minute},
	{"StreamService/GetMiniblocks", 200, time.Minute},
	{"StreamService/GetLastMiniblockHash", 2000, time.Minute},
	{"AppRegistryService/Register", 1, time.Hour},
	{"AppRegistryService/SetAppMetadata", 10, time.Minute},
	{"StreamService/SyncStreams", 5, time.Minute},
	{"StreamService/AddStreamToSync", 50, time.Minute},
	{"StreamService/RemoveStreamFromSync", 100, time.Minute},
	{"StreamService/ModifySync", 30, time.Minute},
}

// newGuard returns a guard on a table of its own.
func newGuard(t testing.TB, c Config) *Guard {
	t.Helper()
	return guardOn(t, newTable(t), c)
}

func newTable(t testing.TB) *memstore.Table {
	t.Helper()
	table, err := memstore.New(memstore.Config{MaxKeys: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func guardOn(t testing.TB, l weir.Limiter, c Config) *Guard {
	t.Helper()
	g, err := New(l, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

var localAddr = netip.MustParseAddr("192.0.2.1")

// call sends a request of a subject from one address through both stages and ends it at once.
func call(t testing.TB, g *Guard, path string, s Subject) Verdict {
	t.Helper()
	var p Pass
	v := through(t, g, &p, Request{Path: path, Address: localAddr}, s)
	p.Done(context.Background(), false)
	return v
}

// through sends a request through both stages. The verdict is that of the first that refused, else of
// the last.
func through(t testing.TB, g *Guard, p *Pass, r Request, s Subject) Verdict {
	t.Helper()
	v, err := g.Enter(context.Background(), p, r)
	if err != nil {
		t.Fatal(err)
	}
	if !v.Allowed {
		return v
	}
	if v, err = g.Identify(context.Background(), p, s); err != nil {
		t.Fatal(err)
	}
	return v
}

// burst sends n requests and returns how many were admitted.
func burst(t testing.TB, g *Guard, n int, path string, s Subject) (admitted int64) {
	t.Helper()
	for range n {
		if call(t, g, path, s).Allowed {
			admitted++
		}
	}
	return admitted
}

// TestSampleOfDocument004 shows each line of the sample: S4.18, S4.25.
func TestSampleOfDocument004(t *testing.T) {
	c := river()
	c.BeforeAuth = BeforeAuth{}
	c.Penalties, c.Abuse = nil, nil
	g := newGuard(t, c)
	alice := User("0xa11ce")
	for _, e := range riverLimits {
		if n := burst(t, g, int(e.rate)+3, "/river."+e.name, alice); n < e.rate || n > e.rate+1 { // one more may be due after 30 ms
			t.Errorf("%s: %d admitted, want %d", e.name, n, e.rate)
		}
	}
	for _, name := range []string{"GetAppMetadata", "GetStatus", "ValidateBotName"} {
		path := "/river.AppRegistryService/" + name
		if n := burst(t, g, 5000, path, alice); n != 5000 || !g.IsExempt("", path) {
			t.Errorf("%s: %d admitted, exempt %v; want all", name, n, g.IsExempt("", path))
		}
	}
	if g.IsExempt("", "/river.StreamService/GetStream") || g.IsExempt("", "/river.Other/Thing") {
		t.Error("endpoints that are not disabled are exempt")
	}
	// Those that are not configured share 50 per minute.
	if n := burst(t, g, 40, "/river.Other/A", alice) + burst(t, g, 40, "/river.Other/B", alice); n != 50 {
		t.Errorf("others: %d admitted, want 50", n)
	}
}

func TestNames(t *testing.T) {
	for pattern, want := range map[string]string{
		"/river.StreamService/CreateStream": "river.StreamService.CreateStream",
		"GET /v1/users/{id}":                "GET.v1.users.id",
		"/v1/*":                             "v1.all",
		"eth_*":                             "eth_all",
		"eth_getLogs":                       "eth_getLogs",
		"*":                                 "all",
		"POST /login":                       "POST.login",
	} {
		if got := patternName(pattern); got != want {
			t.Errorf("%q: %q, want %q", pattern, got, want)
		}
	}
}

func ExampleGuard() {
	table, _ := memstore.New(memstore.Config{})
	g, err := New(table, Config{
		Default:   Endpoint{Limits: []ruleset.Limit{{Limit: weir.PerMinute(50)}}},
		Endpoints: []Endpoint{{Pattern: "POST /streams", Limits: []ruleset.Limit{{Limit: weir.PerMinute(2)}}}},
	})
	if err != nil {
		panic(err)
	}
	defer g.Close()
	ctx := context.Background()
	for range 3 {
		var p Pass
		v, _ := g.Enter(ctx, &p, Request{Method: "POST", Path: "/streams", Address: localAddr})
		if v.Allowed {
			v, _ = g.Identify(ctx, &p, User("alice"))
		}
		p.Done(ctx, false)
		fmt.Println(v.Allowed, v.LimitedBy(), v.Remaining)
	}
	// Output:
	// true  1
	// true  0
	// false POST.streams 0
}
