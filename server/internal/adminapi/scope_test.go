package adminapi

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/identity"
	"github.com/weirlimit/weir/secret"
)

const overrideBody = `{"policy":"api","key":"alice","limits":[{"rate":7,"per":"1s"}],"ttl_s":60}`

// calls is every call there is, with the scope that it needs.
var calls = []struct {
	what string
	need identity.Scope
}{
	{"GET /admin/v1/config", identity.Read},
	{"HEAD /admin/v1/config", identity.Read},
	{"GET /admin/v1/policies", identity.Read},
	{"GET /admin/v1/keys?policy=api&key=alice", identity.Read},
	{"GET /admin/v1/overrides", identity.Read},
	{"GET /admin/v1/stats", identity.Read},
	{"GET /admin/v1/events", identity.Read},
	{`POST /admin/v1/keys/reset {"policy":"slots","key":"alice"}`, identity.Write},
	{"PUT /admin/v1/keys/override " + overrideBody, identity.Write},
	{"DELETE /admin/v1/keys/override?policy=api&key=alice", identity.Write},
	{"GET /admin/v1/budgets", identity.Read},
	{"GET /admin/v1/budgets/alchemy-main", identity.Read},
	{"GET /admin/v1/upstreams", identity.Read},
	{"GET /admin/v1/upstreams/ethereum", identity.Read},
	{"POST /admin/v1/budgets/alchemy-main/resume", identity.Write},
	{"POST /admin/v1/upstreams/ethereum/alchemy-1/resume", identity.Write},
	{"GET /admin/v1/guard", identity.Read},
	{"GET /admin/v1/guard/subject?subject=user:alice", identity.Read},
	{`POST /admin/v1/guard/pardon {"subject":"user:alice"}`, identity.Write},
}

func TestScopes(t *testing.T) {
	callers := []struct {
		name, token string
		scope       identity.Scope
	}{
		{"nobody", "", 0},
		{"unknown", strings.Repeat("x", 40), 0},
		{"viewer", readToken, identity.Read},
		{"editor", writeToken, identity.Write},
	}
	for _, caller := range callers {
		t.Run(caller.name, func(t *testing.T) {
			d := newDaemon(t).guarded()
			close(d.records) // so that streams end
			for _, call := range calls {
				want := 200
				switch {
				case caller.scope == 0:
					want = 401
				case caller.scope != call.need:
					want = 403
				}
				w := d.send(call.what, bearer(caller.token)...)
				if w.Code != want {
					t.Errorf("%s: %d, want %d: %s", call.what, w.Code, want, w.Body)
				}
				if shows := w.Header().Get("WWW-Authenticate") != ""; shows != (want == 401) {
					t.Errorf("%s: WWW-Authenticate there: %v", call.what, shows)
				}
				if got := w.Header().Get("Cache-Control"); got != "no-store" {
					t.Errorf("%s: Cache-Control = %q", call.what, got)
				}
			}
			if len(d.set) > 0 {
				t.Errorf("overrides = %v", d.set)
			}
		})
	}
}

// The table above has every route, and none of them serves nobody in particular.
func TestEveryRouteNeedsAScope(t *testing.T) {
	routes := 0
	for path, list := range New(newDaemon(t).config()).(*api).routes {
		for _, rt := range list {
			routes++
			if (rt.method == "GET") != (rt.action == "") {
				t.Errorf("%s %s is called %q: what changes something has an action, and so needs the scope write", rt.method, path, rt.action)
			}
		}
	}
	if want := len(calls) - 1; routes != want { // HEAD is no route of its own
		t.Errorf("there are %d routes, and the table has %d", routes, want)
	}
}

// Where no tokens are configured everybody may call, with any token or none.
func TestNoOperators(t *testing.T) {
	d := newDaemon(t)
	close(d.records)
	for _, call := range calls {
		for _, token := range []string{"", "x", readToken} {
			if strings.HasPrefix(call.what, "DELETE") {
				d.send("PUT /admin/v1/keys/override " + overrideBody)
			}
			if w := d.send(call.what, bearer(token)...); w.Code != 200 {
				t.Errorf("%s: %d %s", call.what, w.Code, w.Body)
			}
		}
	}
}

// A caller that guesses tokens has to wait. An operator at the same address need not.
func TestGuessing(t *testing.T) {
	frozen(t, func(t *testing.T) {
		d := newDaemon(t).guarded()
		for range 20 {
			d.send("GET /admin/v1/config", bearer(strings.Repeat("g", 40))...)
		}
		if w := d.send("GET /admin/v1/config", bearer(strings.Repeat("g", 40))...); w.Code != 429 || w.Header().Get("Retry-After") == "" {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
		if w := d.send("GET /admin/v1/config", bearer(readToken)...); w.Code != 200 {
			t.Errorf("the operator: %d %s", w.Code, w.Body)
		}
	})
}

// A token that is withdrawn ends the streams that it opened.
func TestWithdrawnTokenEndsStreams(t *testing.T) {
	frozen(t, func(t *testing.T) {
		d := newDaemon(t).guarded()
		w := httptest.NewRecorder()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, "GET", "/admin/v1/events", nil)
		r.Header.Set("Authorization", "Bearer "+readToken)
		ended := make(chan time.Time, 1)
		go func() {
			d.http.ServeHTTP(w, r)
			ended <- time.Now()
		}()
		time.Sleep(40 * time.Second)
		state := *d.state.Load()
		auth := *state.Authenticator
		var err error
		auth.Operators, err = identity.NewOperators([]identity.Operator{{Name: "x", Tokens: []secret.Secret{secret.New(writeToken)}, Scopes: identity.Read}})
		d.must(err)
		state.Authenticator = &auth
		d.state.Store(&state)
		if at := (<-ended).Sub(noon); at != 45*time.Second {
			t.Errorf("the stream ended after %v", at)
		}
	})
}
