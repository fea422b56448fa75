package redisstore

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/internal/secret"
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
	if out, err := res.Cancel(ctx); err != nil || out.Refunded != 2 {
		t.Errorf("cancel: %+v, error %v", out, err)
	}
	if err := s.Set(ctx, p, q); err != nil {
		t.Fatal(err)
	}
	if d, err := s.Take(ctx, p, "k", 0); err != nil || d.Remaining != 16 {
		t.Errorf("take after a set: %v, error %v", d, err)
	}
}
