package adminapi

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/golden"
	"github.com/weirlimit/weir/ruleset"
)

// Every answer there is, as callers see it.
func TestAnswers(t *testing.T) {
	frozen(t, func(t *testing.T) {
		d := newDaemon(t)
		state := *d.state.Load()
		state.Reload = "weir.yaml:12: rate must be at least 1"
		d.state.Store(&state)
		d.check("api", ruleset.Query{Key: "alice", Cost: 15, Keys: []ruleset.Attribute{{Name: "ip", Value: "192.0.2.1"}}})
		d.check("llm", ruleset.Query{Key: "bob", Costs: []ruleset.Cost{{Unit: "tokens", Amount: 500}}})
		time.Sleep(90 * time.Second)
		golden.Check(t, "testdata/answers.golden", d.converse(
			"GET /admin/v1/config",
			"GET /admin/v1/policies",
			"GET /admin/v1/keys?policy=api&key=alice&keys.ip=192.0.2.1",
			"GET /admin/v1/keys?policy=api&key=alice",
			"GET /admin/v1/keys?policy=api&keys.ip=192.0.2.1",
			"GET /admin/v1/keys?policy=api&key=partner-1",
			"GET /admin/v1/keys?policy=llm&key=bob",
			"GET /admin/v1/keys?policy=llm&key=bob2",
			"GET /admin/v1/keys?policy=slots&key=",
			`PUT /admin/v1/keys/override {"policy":"api","key":"alice","limits":[{"rate":200,"per":"1s","burst":40},{"name":"daily","rate":5000,"per":"day"}],"ttl_s":3600}`,
			`PUT /admin/v1/keys/override {"policy":"api","key":"partner-*","limits":[{"rate":900,"per":"1s","algorithm":"token_bucket","initial":"25%","max_debt":9,"on_error":"closed"}],"until":"2026-06-01T02:00:00+02:00"}`,
			`PUT /admin/v1/keys/override {"policy":"slots","key":"ci","limits":[{"name":"main","rate":8}],"until":"never"}`,
			"GET /admin/v1/keys?policy=api&key=alice",
			"GET /admin/v1/keys?policy=api&key=partner-1",
			"GET /admin/v1/policies",
			"GET /admin/v1/overrides",
			`POST /admin/v1/keys/reset {"policy":"api","key":"alice","keys":{"ip":"192.0.2.1"}}`,
			"GET /admin/v1/keys?policy=api&key=alice&keys.ip=192.0.2.1",
			"DELETE /admin/v1/keys/override?policy=api&key=alice",
			"DELETE /admin/v1/keys/override?policy=api&key=partner-*",
			"GET /admin/v1/overrides",
			"GET /admin/v1/stats",
			"GET /admin/v1/stats?top=1",
			"GET /admin/v1/stats?top=0",
		))
	})
}

// Every problem there is. TestBodies has those of bodies.
func TestProblems(t *testing.T) {
	frozen(t, func(t *testing.T) {
		d := newDaemon(t)
		d.records = nil
		list := []string{
			"GET /admin/v1", "GET /admin/v1/", "GET /admin/v1/nope", "GET /admin/v1/config/", "GET /admin/v1//config",
			"GET /admin/v1/%0d%0aSet-Cookie:x", "GET /admin/v1/" + strings.Repeat("x", 70),
			"POST /admin/v1/config", "POST /admin/v1/policies", "DELETE /admin/v1/keys", "GET /admin/v1/keys/reset",
			"GET /admin/v1/keys/override", "POST /admin/v1/overrides", "PUT /admin/v1/stats", "POST /admin/v1/events", "HEAD /admin/v1/events",
			"GET /admin/v1/config?a=1", "GET /admin/v1/policies?policy=api", "GET /admin/v1/overrides?x", "GET /admin/v1/config?%zz", "GET /admin/v1/config?a;b",
			"GET /admin/v1/keys", "GET /admin/v1/keys?policy=api", "GET /admin/v1/keys?key=alice", "GET /admin/v1/keys?policy=nope&key=alice",
			"GET /admin/v1/keys?policy=api&key=a&key=b", "GET /admin/v1/keys?policy=api&key=a&ip=b", "GET /admin/v1/keys?policy=api&key=a&keys.ip=1&keys.ip=2",
			"GET /admin/v1/keys?policy=api&key=" + strings.Repeat("k", 257), "GET /admin/v1/keys?policy=api&keys.ip=" + strings.Repeat("k", 257),
			"GET /admin/v1/keys?policy=api&keys." + strings.Join(strings.Split("abcdefghijklmnopq", ""), "=1&keys.") + "=1",
			"GET /admin/v1/stats?top=101", "GET /admin/v1/stats?top=-1", "GET /admin/v1/stats?top=", "GET /admin/v1/stats?top=1&n=2",
			"GET /admin/v1/events", "GET /admin/v1/events?policy=nope", "GET /admin/v1/events?policy=", "GET /admin/v1/events?denied=yes", "GET /admin/v1/events?token=x",
			`POST /admin/v1/keys/reset?policy=api {"policy":"api","key":"a"}`,
			`POST /admin/v1/keys/reset {"policy":"nope","key":"a"}`,
			`POST /admin/v1/keys/reset {"policy":"api","key":"a"}`,
			`POST /admin/v1/keys/reset {"policy":"slots"}`,
			`PUT /admin/v1/keys/override {"policy":"nope","key":"a","limits":[{"rate":1,"per":"1s"}],"ttl_s":1}`,
			"DELETE /admin/v1/keys/override", "DELETE /admin/v1/keys/override?policy=api", "DELETE /admin/v1/keys/override?key=a",
			"DELETE /admin/v1/keys/override?policy=api&key=nobody", "DELETE /admin/v1/keys/override?policy=api&key=partner-*",
			"DELETE /admin/v1/keys/override?policy=api&key=" + strings.Repeat("k", 257),
			"POST /admin/v1/guard", "GET /admin/v1/guard/", "GET /admin/v1/guard/subjects", "POST /admin/v1/guard/subject", "GET /admin/v1/guard/pardon",
			"GET /admin/v1/guard?top=101", "GET /admin/v1/guard?n=1", "GET /admin/v1/guard/subject", "GET /admin/v1/guard/subject?subject=",
			"GET /admin/v1/guard/subject?subject=user:alice&key=x", "GET /admin/v1/guard/subject?subject=" + strings.Repeat("k", 257),
			`POST /admin/v1/guard/pardon?subject=user:alice {"subject":"user:alice"}`, "POST /admin/v1/guard/pardon", "POST /admin/v1/guard/pardon {}",
			`POST /admin/v1/guard/pardon {"subject":""}`, `POST /admin/v1/guard/pardon {"subject":1}`, `POST /admin/v1/guard/pardon {"user":"alice"}`,
			`POST /admin/v1/guard/pardon {"subject":"a"} x`, `POST /admin/v1/guard/pardon {"subject":"` + strings.Repeat("k", 257) + `"}`,
		}
		golden.Check(t, "testdata/problems.golden", d.converse(list...))
	})
}

// When the store does not answer, what needs it is a 503, and the rest is answered.
func TestBrokenStore(t *testing.T) {
	frozen(t, func(t *testing.T) {
		d := newDaemon(t)
		d.broken = errors.New("dial: refused")
		const body = `{"policy":"api","key":"a","limits":[{"rate":1,"per":"1s"}],"ttl_s":1}`
		got := d.converse(
			"GET /admin/v1/overrides", "PUT /admin/v1/keys/override "+body, "DELETE /admin/v1/keys/override?policy=api&key=a",
			"GET /admin/v1/keys?policy=api&key=partner-1",
		)
		d.broken = ErrTooMany
		got = append(got, d.converse("PUT /admin/v1/keys/override "+body)...)
		golden.Check(t, "testdata/broken.golden", append(got, d.log.String()...))
	})
}

func TestAllow(t *testing.T) {
	tests := []struct{ method, path, want string }{
		{"POST", "/admin/v1/config", "GET, HEAD"},
		{"HEAD", "/admin/v1/events", "GET"},
		{"GET", "/admin/v1/keys/reset", "POST"},
		{"OPTIONS", "/admin/v1/keys/override", "PUT, DELETE"},
		{"TRACE", "/admin/v1/stats", "GET, HEAD"},
	}
	d := newDaemon(t)
	for _, tt := range tests {
		if w := d.send(tt.method + " " + tt.path); w.Code != 405 || w.Header().Get("Allow") != tt.want {
			t.Errorf("%s %s: %d, Allow = %q, want %q", tt.method, tt.path, w.Code, w.Header().Get("Allow"), tt.want)
		}
	}
	if w := d.send("HEAD /admin/v1/config"); w.Code != 200 {
		t.Errorf("HEAD /admin/v1/config = %d", w.Code)
	}
}

// An override of a policy that has gone stays in the store. It can be seen, and removed.
func TestOrphanedOverride(t *testing.T) {
	d := newDaemon(t)
	d.set = []Override{{Policy: "gone", Override: ruleset.Override{Key: "alice"}}}
	if got := d.send("GET /admin/v1/overrides").Body.String(); !strings.Contains(got, `"policy":"gone","key":"alice","limits":[],"until":"never","in_force":false`) {
		t.Error(got)
	}
	if w := d.send("DELETE /admin/v1/keys/override?policy=gone&key=alice"); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// An override that is over applies no more, also before anybody has removed it.
func TestOverrideEnds(t *testing.T) {
	frozen(t, func(t *testing.T) {
		d := newDaemon(t)
		d.send(`PUT /admin/v1/keys/override {"policy":"api","key":"alice","limits":[{"rate":7,"per":"1s"}],"ttl_s":60}`)
		for _, tt := range []struct {
			after time.Duration
			want  bool
		}{{0, true}, {59 * time.Second, true}, {time.Second, false}} {
			time.Sleep(tt.after)
			key := d.send("GET /admin/v1/keys?policy=api&key=alice").Body.String()
			all := d.send("GET /admin/v1/policies").Body.String()
			if strings.Contains(key, `"until"`) != tt.want || strings.Contains(all, `"alice"`) != tt.want {
				t.Errorf("after %v more: in force is not %v:\n%s%s", tt.after, tt.want, key, all)
			}
		}
	})
}

// What the rollout has not reached, and what is in shadow, is not enforced.
func TestEnforces(t *testing.T) {
	share := func(enforced func(key string) bool) (n int) {
		for i := range 1000 {
			if enforced(strings.Repeat("k", i%50) + string(rune('a'+i/50))) {
				n++
			}
		}
		return n
	}
	d := newDaemon(t)
	rules := d.state.Load().Rules
	for _, tt := range []struct {
		policy      string
		least, most int
	}{{"api", 1000, 1000}, {"slots", 1000, 1000}, {"llm", 200, 300}} {
		rule := rules.Rule(tt.policy)
		n := share(rule.Base().Enforces)
		if n < tt.least || n > tt.most {
			t.Errorf("%s is enforced for %d of 1000 keys, want %d to %d", tt.policy, n, tt.least, tt.most)
		}
	}
}

// What GET /admin/v1/keys says is what happens.
func TestEnforcedIsWhatHappens(t *testing.T) {
	d := newDaemon(t)
	for _, key := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
		r := d.check("llm", ruleset.Query{Key: key, Costs: []ruleset.Cost{{Unit: "tokens", Amount: 90_001}}})
		if yes := r.Variant.Enforces(key); yes == r.Allowed {
			t.Errorf("key %s: allowed = %v, enforced = %v", key, r.Allowed, yes)
		}
	}
}

func TestLookingChangesNothing(t *testing.T) {
	d := newDaemon(t)
	ip := []ruleset.Attribute{{Name: "ip", Value: "192.0.2.1"}}
	d.check("api", ruleset.Query{Key: "alice", Cost: 15, Keys: ip})
	const look = "GET /admin/v1/keys?policy=api&key=alice&keys.ip=192.0.2.1"
	first := d.send(look).Body.String()
	for range 100 {
		if again := d.send(look).Body.String(); again != first {
			t.Fatalf("%s became %s", first, again)
		}
	}
	if r := d.check("api", ruleset.Query{Key: "alice", Cost: 5, Keys: ip}); !r.Allowed || r.Remaining != 0 {
		t.Errorf("the last 5 units: %v", r.Decision)
	}
}
