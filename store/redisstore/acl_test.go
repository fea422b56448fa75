package redisstore

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/secret"
)

// What docs/redis.md tells operators to allow is enough, and not more than that.
const leastRights = "~weir:* -@all +hello +ping +info +client +eval +evalsha +time +get +mget +set +psetex +lrange +lindex +rpush +ltrim +pexpire +pttl +zadd +zrem +zcount +zrangebyscore +zrevrangebyscore +zremrangebyscore +hget +hgetall +hset +hdel"

func TestLeastRights(t *testing.T) {
	if page, err := os.ReadFile("../../docs/redis.md"); err != nil || !strings.Contains(string(page), leastRights) {
		t.Errorf("docs/redis.md does not tell of %q, error %v", leastRights, err)
	}
	redis := redistest.Start(t)
	redis.MustDo(append([]string{"ACL", "SETUSER", "weir", "on", ">secret", "resetkeys"}, strings.Fields(leastRights)...)...)
	s := open(t, Config{
		Redis:  Server{Addrs: []string{redis.Addr()}, Username: "weir", Password: secret.New("secret")},
		Prefix: "weir:",
	})
	p, q := newPolicy(t, "p", weir.Limit{Rate: 10, Per: weir.Every(time.Hour)}), newPolicy(t, "p", weir.Limit{Rate: 20, Per: weir.Every(time.Hour)})
	ctx := context.Background()
	if d, err := s.Take(ctx, p, "k", 4); err != nil || d.Remaining != 6 {
		t.Fatalf("take: %v, error %v", d, err)
	}
	res, err := weir.Reserve(ctx, s, time.Minute, weir.Charge{Policy: p, Key: "k", Cost: 2})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := res.Cancel(ctx); err != nil || out[0].Refunded != 2 {
		t.Errorf("cancel: %+v, error %v", out, err)
	}
	useHolds(t, s)
	if err := s.Set(ctx, p, q); err != nil {
		t.Fatal(err)
	}
	if d, err := s.Take(ctx, p, "k", 0); err != nil || d.Remaining != 16 {
		t.Errorf("take after a set: %v, error %v", d, err)
	}
}

// useHolds does everything to reservations that Redis has a command for.
func useHolds(t *testing.T, s *Store) {
	t.Helper()
	fixed := newPolicy(t, "fixed", weir.Limit{Rate: 10, Per: weir.Every(time.Hour), Algorithm: weir.FixedWindow})
	charges := []weir.Charge{{Policy: fixed, Key: "k", Cost: 1}, {Policy: fixed, Key: "k", Cost: 1}}
	short := do(t, s, &weir.Batch{Op: weir.ReserveAll, Charges: charges, TTL: time.Microsecond})
	held := do(t, s, &weir.Batch{Op: weir.ReserveAll, Charges: charges, TTL: time.Minute})
	do(t, s, &weir.Batch{Op: weir.Renew, Charges: charges, Receipts: held.Receipts, TTL: time.Hour})
	do(t, s, &weir.Batch{Op: weir.ResetEach, Charges: charges})
	for range 2 {
		do(t, s, &weir.Batch{Op: weir.Settle, Charges: charges[:1], Receipts: held.Receipts[:1]})
	}
	b := do(t, s, &weir.Batch{Op: weir.Settle, Charges: charges, Receipts: short.Receipts})
	if !b.Settled[0].Late {
		t.Errorf("settled after the expiry: %+v", b.Settled[0])
	}
}
