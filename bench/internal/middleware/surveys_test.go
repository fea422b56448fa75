package middleware

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/weirlimit/weir/bench/internal/harness"
)

var tiny = Sizes{Addresses: 50, Rounds: 2, PerRun: 5 * time.Millisecond}

// TestSurveys runs every survey briefly and checks that the answers are plausible.
func TestSurveys(t *testing.T) {
	for _, s := range Surveys(tiny) {
		t.Run(s.Name, func(t *testing.T) {
			a, err := harness.Ask(s, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, sub := range s.Subjects {
				values := a.Values[i]
				if sub.Kind == harness.Floor {
					if values[0] != 0 || values[1] != 0 {
						t.Errorf("%s adds %v", sub.Name, values)
					}
					continue
				}
				if values[0] <= 0 || values[2] <= 0 || values[3] <= values[0] {
					t.Errorf("%s: %v", sub.Name, values)
				}
			}
		})
	}
}

// Each sets its fields, and has the handler called.
func TestEntrantsLimit(t *testing.T) {
	for _, e := range entrants()[1:] {
		served := 0
		h, stop, err := e.wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		w := httptest.NewRecorder()
		addresses, keys := origins(3)
		for i := range addresses {
			r := httptest.NewRequest("GET", "/", nil)
			r.RemoteAddr = addresses[i]
			r.Header.Set("X-Api-Key", keys[i])
			h.ServeHTTP(w, r)
		}
		if w.Header().Get("RateLimit")+w.Header().Get("X-RateLimit-Remaining") == "" || served != 3 {
			t.Errorf("%s: %d served, %v", e.name, served, w.Header())
		}
	}
}
