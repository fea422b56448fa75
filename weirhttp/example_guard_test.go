package weirhttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/weirhttp"
)

// Limits for each endpoint: wrong passwords count, right ones do not.
func ExampleGuard() {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("password") != "right" {
			http.Error(w, "wrong password", http.StatusUnauthorized)
		}
	})
	table := weir.Must(memstore.New(memstore.Config{Now: stopped}))
	g := weir.Must(guard.New(table, guard.Config{
		BeforeAuth: guard.BeforeAuth{PerIP: []ruleset.Limit{{Limit: weir.PerMinute(300)}}},
		Endpoints: []guard.Endpoint{
			{Pattern: "POST /login", Name: "login", Count: guard.CountFailures, Limits: []ruleset.Limit{{Limit: weir.PerMinute(1)}}},
		},
	}))
	handler := weirhttp.Guard(g)(mux)

	for _, password := range []string{"right", "1234", "2345"} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("POST", "/login?password="+password, nil))
		fmt.Printf("%s: %d, Retry-After %q\n", password, w.Code, w.Header().Get("Retry-After"))
	}
	// Output:
	// right: 200, Retry-After ""
	// 1234: 401, Retry-After ""
	// 2345: 429, Retry-After "60"
}

// Authentication between the stages: addresses are limited before it, users after it.
func ExampleStages() {
	authenticate := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user, password, _ := r.BasicAuth()
			if password != "secret" {
				http.Error(w, "unknown user", http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r.WithContext(guard.WithSubject(r.Context(), guard.User(user))))
		})
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	table := weir.Must(memstore.New(memstore.Config{Now: stopped}))
	g := weir.Must(guard.New(table, guard.Config{
		BeforeAuth: guard.BeforeAuth{PerIP: []ruleset.Limit{{Limit: weir.PerMinute(2)}}},
		Default:    guard.Endpoint{Name: "api", Limits: []ruleset.Limit{{Limit: weir.PerMinute(50)}}},
	}))

	before, after := weirhttp.Stages(g)
	handler := before(authenticate(after(hello)))

	alice, guess := httptest.NewRequest("GET", "/", nil), httptest.NewRequest("GET", "/", nil)
	alice.SetBasicAuth("alice", "secret")
	guess.SetBasicAuth("alice", "1234")
	show(handler, alice, guess, guess)
	// Output:
	// 200
	// RateLimit-Policy: "api";q=50;w=60
	// RateLimit: "api";r=49
	// Content-Type: text/plain; charset=utf-8
	// hello
	// 401
	// Content-Type: text/plain; charset=utf-8
	// unknown user
	// 429
	// Retry-After: 30
	// Content-Type: application/problem+json
	// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"detail":"there were too many requests of this caller; retry after 30s"}
}
