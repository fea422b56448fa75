package upstream

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/budget"
)

// threeAccounts has two accounts with one provider, and one with another.
func threeAccounts() []Endpoint {
	return []Endpoint{endpointAt("a1", from("a")), endpointAt("a2", from("a")), endpointAt("b", from("b"), priority(20))}
}

// TestOverloadedProvider does not ask a provider that is overloaded through its other accounts.
func TestOverloadedProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Strategy: Sticky, MaxWait: -1, Endpoints: threeAccounts()})
		overloaded := func() (*http.Response, error) { return reply(529, `{"error":"overloaded"}`, "Retry-After", "5"), nil }
		p.answer = onHost("a1", overloaded)
		for i := range 10 {
			if alias, status, err := send(pool, call()); alias != "b" || status != 200 {
				t.Fatalf("call %d was answered %d by %q, %v", i, status, alias, err)
			}
		}
		if a1, a2 := len(p.times("a1")), len(p.times("a2")); a1 != 1 || a2 != 0 {
			t.Errorf("the provider was asked %d times with the account that it has refused, and %d times with another", a1, a2)
		}
		down := (*DownError)(nil)
		if _, _, err := send(pool, &Call{Methods: []string{"eth_call"}, Pinned: "a2"}); !errors.As(err, &down) {
			t.Errorf("a call that only the other account can answer: %v", err)
		}
		p.answer = nil
		time.Sleep(5 * time.Second)
		if alias, _, err := send(pool, call()); alias != "a1" {
			t.Errorf("%q has answered afterwards, %v", alias, err)
		}
	})
}

// TestBackAtMidnight uses an account again when its daily quota is full, and not one that has to be paid.
func TestBackAtMidnight(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		back       bool
	}{
		{"daily quota", `{"jsonrpc":"2.0","id":1,"error":{"code":402,"event":-33000,"message":"daily credits"}}`, true},
		{"unpaid", `{"jsonrpc":"2.0","id":1,"error":{"code":402,"message":"Payment Required"}}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // which begins at midnight
				time.Sleep(22 * time.Hour)
				pool, p := newPool(t, Config{Strategy: Sticky, MaxWait: -1, Endpoints: []Endpoint{endpointAt("a"), endpointAt("b")}})
				p.answer = onHost("a", func() (*http.Response, error) { return reply(402, tt.body), nil })
				_, _, _ = send(pool, &Call{Methods: []string{"eth_x"}})
				p.answer = nil
				for range 4 * 60 { // each minute, until two hours after midnight
					if _, _, err := send(pool, call()); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Minute)
				}
				got := p.times("a")
				if !tt.back {
					if len(got) != 1 {
						t.Errorf("an account that has to be paid was used %d times more", len(got)-1)
					}
					return
				}
				if len(got) != 121 || got[1] != 2*time.Hour {
					t.Errorf("%d calls with the account, the second at %v: want 121, and the second at midnight", len(got), got[1])
				}
			})
		})
	}
}

// TestDenialIsOfItsKey leaves the other keys of an account in use if one is refused.
func TestDenialIsOfItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, p := newPool(t, Config{Strategy: Sticky, Endpoints: threeAccounts()})
		p.answer = onHost("a1", func() (*http.Response, error) { return reply(401, "{}"), nil })
		for i := range 5 {
			if alias, _, err := send(pool, call()); alias != "a2" {
				t.Errorf("call %d was answered by %q, %v", i, alias, err)
			}
		}
		if n := len(p.times("a1")); n != 1 {
			t.Errorf("the refused key was used %d times", n)
		}
	})
}

// TestKeysShareTheirAccount has two keys of one account: they have its budget together, and each other account its own.
func TestKeysShareTheirAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, other := account("a", 10), account("b", 10)
		one.Classes, other.Classes = []budget.Class{}, []budget.Class{}
		pool, p := newPool(t, Config{MaxWait: -1, Endpoints: []Endpoint{
			endpointAt("a1", withBudget("a")), endpointAt("a2", withBudget("a")), endpointAt("b", withBudget("b")),
		}}, one, other)
		for range 50 {
			_, _, _ = send(pool, call())
		}
		a, b := len(p.times("a1"))+len(p.times("a2")), len(p.times("b"))
		if a != 10 || b != 10 {
			t.Errorf("%d calls with the keys of one account, %d with the other: want 10 each", a, b)
		}
	})
}
