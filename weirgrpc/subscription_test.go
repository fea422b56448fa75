package weirgrpc

import (
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/guard"
)

func TestSubscriptionError(t *testing.T) {
	g := newGuard(t, guard.Config{Subscriptions: &guard.Subscriptions{PerSubject: 1, Create: weir.PerMinute(2)}})
	subscribe := func() (*guard.Subscription, guard.SubscriptionDecision) {
		sub, d, err := g.Subscribe(t.Context(), guard.User("alice"), 0)
		if err != nil {
			t.Fatal(err)
		}
		return sub, d
	}
	check := func(d guard.SubscriptionDecision, limit string, retries bool) {
		t.Helper()
		r := reply{err: SubscriptionError(d)}.explained(t)
		if r.code != codes.ResourceExhausted || r.quota == nil || r.quota.QuotaId != limit || (r.retry > 0) != retries {
			t.Errorf("%v, quota %v, retry after %v; want %s", r.err, r.quota, r.retry, limit)
		}
	}
	first, _ := subscribe()
	_, d := subscribe()
	check(d, "subscriptions", false)
	first.Close()
	second, _ := subscribe()
	second.Close()
	_, d = subscribe()
	check(d, "create", true)
}
