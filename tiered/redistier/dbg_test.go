package redistier

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/store/redisstore"
)

func TestDbg(t *testing.T) {
	redis := redistest.Start(t)
	limit := nodeLimit{Rate: 200, Burst: 100, Per: time.Second}
	p, _ := limit.policy()
	s, err := redisstore.New(t.Context(), redisstore.Config{Redis: server(redis.Addr()), Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	d, err := s.Take(ctx, p, "k", 100)
	t.Log(d, err)
	b := weir.Batch{Op: weir.DebitEach, Charges: []weir.Charge{{Policy: p, Key: "k", Cost: 122}}}
	t.Log(s.Do(ctx, &b), b.Decisions)
	d, err = weir.Peek(ctx, s, p, "k", 1)
	t.Logf("%+v %v", d, err)
}
