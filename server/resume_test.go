package server

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/gateway"
)

// An operator ends a cooldown of 32 days, of an account or an endpoint: from then on both routes of the account send calls.
func TestResume(t *testing.T) {
	for path, answer := range map[string]string{
		"budgets/main/resume":         `{"budget":"main","cooldown_ms":`,
		"upstreams/ethereum/a/resume": `{"route":"ethereum","upstream":"a","health":"down","reason":"rate (status 429)","cooldown_ms":`,
	} {
		t.Run(path, func(t *testing.T) {
			p := newProvider(t)
			srv := run(t, Config{Limiter: frozenTable(t), Live: Live{
				Budgets: []budget.Config{oneBudget("main", 1000)},
				Routes:  []gateway.Config{routeOf("ethereum", p.endpoint("a", withAccount("main"))), routeOf("base", p.endpoint("b", withAccount("main")))},
			}})
			refuse := func(status int) {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.status, p.retryAfter = status, "31536000"
			}
			statuses := func(want int, sent int) {
				t.Helper()
				before := len(p.requests())
				for _, route := range []string{"ethereum", "base"} {
					if status, _, text := srv.rpc(t, route); status != want {
						t.Errorf("%s: %d %s, want %d", route, status, text, want)
					}
				}
				if n := len(p.requests()) - before; n != sent {
					t.Errorf("%d were sent, want %d", n, sent)
				}
			}
			refuse(429)
			statuses(429, 1)
			refuse(0)
			statuses(429, 0)
			if status, _, text := send(t, http.MethodPost, srv.url+"/admin/v1/"+path, ""); status != 200 || !regexp.MustCompile("^"+regexp.QuoteMeta(answer)+"(2764800000|27647[0-9]{5})[,}]").MatchString(text) {
				t.Errorf("%d %s, want %s and about 32 days", status, text, answer)
			}
			statuses(200, 2)
		})
	}
}
