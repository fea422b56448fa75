package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/ruleset"
)

// onePolicy is a policy of so many at once, of which little comes back.
func onePolicy(name string, burst int64) ruleset.Policy {
	return ruleset.Policy{Name: name, Limits: []ruleset.Limit{{Limit: weir.Limit{Rate: 1, Per: weir.Every(time.Hour), Burst: burst}}}}
}

// answer is what a check says.
type answer struct {
	Allowed   bool   `json:"allowed"`
	Limit     int64  `json:"limit"`
	Remaining int64  `json:"remaining"`
	LimitedBy string `json:"limited_by"`
	Reason    string `json:"reason"`
}

// check asks over the network.
func check(t *testing.T, client *http.Client, url, body string) (a answer, status int) {
	t.Helper()
	resp, err := client.Post(url+"/v1/check", "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return a, 0
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		t.Error(err)
	}
	return a, resp.StatusCode
}

func getText(t *testing.T, client *http.Client, url string, headers ...string) (string, int) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), resp.StatusCode
}

func newClient(t *testing.T) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// What was used stays used when the numbers change, and policies come and go.
func TestReloadKeepsWhatWasUsed(t *testing.T) {
	srv := run(t, Config{Limiter: frozenTable(t), Live: Live{Policies: []ruleset.Policy{onePolicy("api", 10), onePolicy("old", 5)}}})
	client := newClient(t)
	const alice = `{"policy":"api","key":"alice","cost":4}`
	if a, _ := check(t, client, srv.url, alice); !a.Allowed || a.Remaining != 6 {
		t.Fatalf("%+v", a)
	}
	if err := srv.Reload(context.Background(), Live{Policies: []ruleset.Policy{onePolicy("api", 20), onePolicy("new", 5)}}); err != nil {
		t.Fatal(err)
	}
	if a, _ := check(t, client, srv.url, alice); !a.Allowed || a.Limit != 20 || a.Remaining != 12 {
		t.Errorf("raised: %+v", a)
	}
	if _, status := check(t, client, srv.url, `{"policy":"old","key":"alice"}`); status != http.StatusNotFound {
		t.Errorf("a policy that is gone: %d", status)
	}
	if a, _ := check(t, client, srv.url, `{"policy":"new","key":"alice"}`); !a.Allowed {
		t.Errorf("a new policy: %+v", a)
	}
	if err := srv.Reload(context.Background(), Live{Policies: []ruleset.Policy{onePolicy("api", 8)}}); err != nil {
		t.Fatal(err)
	}
	if a, _ := check(t, client, srv.url, `{"policy":"api","key":"alice"}`); a.Allowed || a.Remaining != 0 {
		t.Errorf("lowered to what was used: %+v", a)
	}
}

// A bad configuration changes nothing, and /readyz and /metrics tell of it until a good one
// comes.
func TestBadReload(t *testing.T) {
	srv := run(t, Config{Limiter: frozenTable(t), Live: Live{Policies: []ruleset.Policy{onePolicy("api", 10)}}})
	client := newClient(t)
	bad := Live{Policies: []ruleset.Policy{onePolicy("api", 10), {Name: "broken", Limits: []ruleset.Limit{{}}}}}
	wantError(t, srv.Reload(context.Background(), bad), `policy "broken"`, "rate")
	if a, _ := check(t, client, srv.url, `{"policy":"api","key":"alice"}`); !a.Allowed || a.Limit != 10 {
		t.Errorf("%+v", a)
	}
	for _, want := range []struct{ path, text string }{
		{"/readyz", "ready\nthe last reload failed; operators see why at /admin/v1/config\n"},
		{"/metrics", "weir_config_last_reload_successful 0"},
		{"/admin/v1/config", "broken"},
	} {
		if text, status := getText(t, client, srv.url+want.path); status != http.StatusOK || !strings.Contains(text, want.text) {
			t.Errorf("%s: %d, lacks %q:\n%.400s", want.path, status, want.text, text)
		}
	}
	srv.ReloadFailed(errors.New("weir.yaml:3:1: what is this"))
	if text, _ := getText(t, client, srv.url+"/admin/v1/config"); !strings.Contains(text, "weir.yaml:3:1") {
		t.Errorf("%s", text)
	}
	if err := srv.Reload(context.Background(), Live{Policies: []ruleset.Policy{onePolicy("api", 10)}}); err != nil {
		t.Fatal(err)
	}
	if text, _ := getText(t, client, srv.url+"/readyz"); text != "ready\n" {
		t.Errorf("%s", text)
	}
	if text, _ := getText(t, client, srv.url+"/metrics"); !strings.Contains(text, "weir_config_last_reload_successful 1") {
		t.Error("metrics do not tell that all is well again")
	}
}

// Names, keys and lines of the file are for operators: no answer that needs no token has them, neither
// before nor after a reload that failed.
func TestStrangersSeeNoNames(t *testing.T) {
	const canary = "canary"
	policy := onePolicy(canary+"-policy", 10)
	policy.Overrides = []ruleset.Override{{Key: canary + "-key", Limits: policy.Limits}}
	live := Live{
		Policies:  []ruleset.Policy{policy},
		Clients:   []Client{{Name: canary + "-client", Tokens: token("a-client-of-the-daemon")}},
		Operators: []Operator{{Name: canary + "-operator", Tokens: token("an-operator-of-the-daemon"), Scopes: ScopeRead}},
		Effective: []Setting{{Path: "policies." + canary + ".limits[0].rate", Value: canary, Source: canary + ".yaml:3"}},
	}
	srv := run(t, Config{Limiter: frozenTable(t), Live: live, Admin: Listener{Address: "127.0.0.1:0"}})
	client, admin := newClient(t), "http://"+srv.bound.Admin.String()
	look := func() {
		t.Helper()
		for _, path := range []string{
			"/", "/assets/weir.js", "/metrics", "/readyz", "/healthz", "/openapi.yaml", "/nope", "/v1/check", "/v1/check/batch", "/v1/reserve", "/v1/auth/x",
			"/admin/v1/config", "/admin/v1/policies", "/admin/v1/stats", "/admin/v1/overrides", "/admin/v1/keys?policy=x&key=y", "/admin/v1/keys/override",
		} {
			for _, url := range []string{srv.url + path, admin + path} {
				text, _ := getText(t, client, url)
				text += postText(t, client, url, `{"policy":"x","key":"y"}`)
				if i := strings.Index(text, canary); i >= 0 {
					t.Errorf("%s shows %.200q", url, text[max(0, i-60):])
				}
			}
		}
	}
	look()
	bad := live
	bad.Policies = append(bad.Policies, ruleset.Policy{Name: canary + "-broken", Limits: []ruleset.Limit{{}}})
	wantError(t, srv.Reload(context.Background(), bad), canary)
	look()
	srv.ReloadFailed(errors.New(canary + ".yaml:3:1: clients." + canary + "-client: what is this"))
	look()
	if text, status := getText(t, client, admin+"/admin/v1/config", "Authorization", "Bearer "+token("an-operator-of-the-daemon")[0].Reveal()); status != 200 || !strings.Contains(text, canary+".yaml:3:1") {
		t.Errorf("an operator sees %d %s", status, text)
	}
}

func postText(t *testing.T, client *http.Client, url, body string) string {
	t.Helper()
	resp, err := client.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A listener that became reachable for everybody by a reload would be worse than the old
// configuration.
func TestReloadCannotOpenTheDoor(t *testing.T) {
	srv := run(t, Config{HTTP: Listener{Address: "0.0.0.0:0"}, Limiter: frozenTable(t), Live: Live{Clients: []Client{{Name: "a", Tokens: token("a")}}}})
	wantError(t, srv.Reload(context.Background(), Live{}), "add clients")
}

// Reloads, good ones and bad ones, while callers call: nobody's request fails, and nothing
// is admitted twice.
func TestReloadsUnderLoad(t *testing.T) {
	const burst, keys = 50, 4
	limits := []int64{burst, burst - 10, burst - 20}
	srv := run(t, Config{Limiter: frozenTable(t), Live: Live{Policies: []ruleset.Policy{onePolicy("api", burst)}}})
	var admitted [keys]atomic.Int64
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for key := range keys {
		wg.Go(func() {
			client := newClient(t)
			body := fmt.Sprintf(`{"policy":"api","key":"k%d"}`, key)
			for {
				select {
				case <-stop:
					return
				default:
				}
				a, status := check(t, client, srv.url, body)
				if status != http.StatusOK {
					t.Errorf("status %d", status)
					return
				}
				if a.Allowed {
					admitted[key].Add(1)
				}
			}
		})
	}
	for i := range 100 {
		if err := srv.Reload(context.Background(), Live{Policies: []ruleset.Policy{onePolicy("api", limits[i%len(limits)])}}); err != nil {
			t.Error(err)
		}
		if err := srv.Reload(context.Background(), Live{Policies: []ruleset.Policy{onePolicy("api", 0)}, Clients: []Client{{}}}); err == nil {
			t.Error("a bad configuration was taken")
		}
	}
	if err := srv.Reload(context.Background(), Live{Policies: []ruleset.Policy{onePolicy("api", burst)}}); err != nil {
		t.Error(err)
	}
	client := newClient(t)
	for key := range keys { // what is left
		for {
			a, _ := check(t, client, srv.url, fmt.Sprintf(`{"policy":"api","key":"k%d"}`, key))
			if !a.Allowed {
				break
			}
			admitted[key].Add(1)
		}
	}
	close(stop)
	wg.Wait()
	for key := range keys {
		if n := admitted[key].Load(); n != burst {
			t.Errorf("key %d: %d admitted, want %d", key, n, burst)
		}
	}
}

// A start changes no limits that were replaced since, unless nobody else decides by them. A
// reload does.
func TestStartIsNoChange(t *testing.T) {
	table, client := frozenTable(t), newClient(t)
	live := func(n int64) Live { return Live{Policies: []ruleset.Policy{onePolicy("api", n)}} }
	limit := func(srv *running) int64 {
		a, _ := check(t, client, srv.url, `{"policy":"api","key":"alice","cost":0}`)
		return a.Limit
	}
	reload := func(srv *running, n int64) {
		if err := srv.Reload(context.Background(), live(n)); err != nil {
			t.Fatal(err)
		}
	}
	first := run(t, Config{Limiter: table, Live: live(10)})
	reload(first, 20)
	second := run(t, Config{Limiter: table, Live: live(10)})
	if a, b := limit(first), limit(second); a != 20 || b != 20 {
		t.Errorf("limits %d and %d after a start with the old ones, want 20", a, b)
	}
	reload(second, 10)
	if a, b := limit(first), limit(second); a != 10 || b != 10 {
		t.Errorf("limits %d and %d after a reload of the old ones, want 10", a, b)
	}
	reload(first, 20)
	third := run(t, Config{Limiter: table, Live: live(10), Exclusive: true})
	if a, b := limit(first), limit(third); a != 10 || b != 10 {
		t.Errorf("limits %d and %d after a start that is a change, want 10", a, b)
	}
}

// If the limiter cannot Set new limits, the old ones stay in force.
func TestReloadWithoutTheStore(t *testing.T) {
	srv := run(t, Config{Limiter: stubborn{frozenTable(t)}, Live: Live{Policies: []ruleset.Policy{onePolicy("api", 10)}}})
	wantError(t, srv.Reload(context.Background(), Live{Policies: []ruleset.Policy{onePolicy("api", 20)}}), "no connection")
	if a, _ := check(t, newClient(t), srv.url, `{"policy":"api","key":"alice"}`); a.Limit != 10 {
		t.Errorf("%+v", a)
	}
}

// stubborn cannot be changed.
type stubborn struct{ weir.Limiter }

func (stubborn) Set(context.Context, *weir.Policy, *weir.Policy) error {
	return errors.New("no connection")
}
