package weirconnect

import (
	"testing"

	"connectrpc.com/connect"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
)

func TestSubscriptionError(t *testing.T) {
	g := newGuard(t, guard.Config{Subscriptions: &guard.Subscriptions{PerSubject: 2, ItemsEach: 3, ItemsTotal: 4, Create: weir.PerMinute(3)}})
	open := func(user string, items int64) (*guard.Subscription, guard.SubscriptionDecision) {
		sub, d, err := g.Subscribe(t.Context(), guard.User(user), items)
		if err != nil {
			t.Fatal(err)
		}
		return sub, d
	}
	check := func(d guard.SubscriptionDecision, limit string, value int64, retries bool) {
		t.Helper()
		r := refusalOf(t, SubscriptionError(d))
		if r.code != connect.CodeResourceExhausted || r.quota == nil || r.quota.QuotaId != limit || r.quota.QuotaValue != value || (r.retry > 0) != retries {
			t.Errorf("%v %q, quota %v, retry after %v; want %s %d", r.code, r.message, r.quota, r.retry, limit, value)
		}
	}
	for range 2 {
		open("alice", 0)
	}
	_, d := open("alice", 0)
	check(d, "subscriptions", 2, false)

	sub, _ := open("bob", 3)
	d, err := sub.Add(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	check(d, "items_each", 3, false)
	_, d = open("bob", 2)
	check(d, "items_total", 4, false)

	for range 3 {
		sub, _ := open("carol", 0)
		sub.Close()
	}
	_, d = open("carol", 0)
	check(d, "create", 3, true)

	r := refusalOf(t, SubscriptionError(guard.SubscriptionDecision{Decision: weir.Decision{Reason: weir.StoreDown}}))
	if r.code != connect.CodeUnavailable || r.quota != nil {
		t.Errorf("store down: %v, %v", r.code, r.quota)
	}
}
