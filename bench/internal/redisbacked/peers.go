package redisbacked

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	throttledstore "github.com/throttled/throttled/v2/store/goredisstore.v9"
	ululelimit "github.com/ulule/limiter/v3"
	ululestore "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/weirlimit/weir/bench/internal/harness"
)

// redisRateName is the subject that ratios are against.
const redisRateName = "redis_rate"

// peers returns the other libraries, each with its own default call. All of them use
// go-redis.
func peers() []library {
	return []library{redisRate(), ulule(), throttledGCRA("throttled", 0)}
}

// hotPeers is peers for few keys that everybody wants. By default throttled reports an
// error after ten attempts to swap a value, and here it would do little else; so there
// is one more, that may try as often as need be.
func hotPeers() []library {
	return append(peers(), throttledGCRA("throttled, patient", 1<<30))
}

// goRedis connects with one connection for each goroutine, which are made before they
// are needed, and otherwise with the defaults.
func goRedis(addr string) (*redis.Client, *commandCount) {
	client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: Goroutines, MinIdleConns: Goroutines})
	count := new(commandCount)
	client.AddHook(count)
	return client, count
}

func redisRate() library {
	return library{name: redisRateName, kind: harness.Peer, module: "github.com/go-redis/redis_rate/v10", open: openRedisRate}
}

func openRedisRate(addr string, settings []setting) (limiter, error) {
	client, count := goRedis(addr)
	l := redis_rate.NewLimiter(client)
	var limits []redis_rate.Limit
	for _, s := range settings {
		limits = append(limits, redis_rate.Limit{Rate: 1, Period: s.every, Burst: int(s.burst)})
	}
	return limiter{
		take: func(ctx context.Context, which int, key string) (bool, error) {
			r, err := l.Allow(ctx, key, limits[which])
			return err == nil && r.Allowed > 0, err
		},
		commands: count.sent,
		close:    func() { _ = client.Close() },
	}, nil
}

// window is how long ulule's fixed windows are, in which the whole burst may be had:
// longer than any survey.
const window = 24 * time.Hour

func ulule() library {
	return library{name: "ulule", kind: harness.Peer, module: "github.com/ulule/limiter/v3", open: openUlule}
}

func openUlule(addr string, settings []setting) (limiter, error) {
	client, count := goRedis(addr)
	store, err := ululestore.NewStore(client)
	if err != nil {
		_ = client.Close()
		return limiter{}, err
	}
	var limiters []*ululelimit.Limiter
	for _, s := range settings {
		limiters = append(limiters, ululelimit.New(store, ululelimit.Rate{Period: window, Limit: s.burst}))
	}
	return limiter{
		take: func(ctx context.Context, which int, key string) (bool, error) {
			c, err := limiters[which].Get(ctx, key)
			return err == nil && !c.Reached, err
		},
		commands: count.sent,
		close:    func() { _ = client.Close() },
	}, nil
}

// throttledGCRA returns an error after so many attempts to swap a value, or after the default
// number if that is 0.
func throttledGCRA(name string, attempts int) library {
	return library{
		name: name, kind: harness.Peer, module: "github.com/throttled/throttled/v2",
		open: func(addr string, settings []setting) (limiter, error) { return openThrottled(addr, settings, attempts) },
	}
}

func openThrottled(addr string, settings []setting, attempts int) (limiter, error) {
	client, count := goRedis(addr)
	store, err := throttledstore.NewCtx(client, "throttled:")
	if err != nil {
		_ = client.Close()
		return limiter{}, err
	}
	var limiters []*throttled.GCRARateLimiterCtx
	for _, s := range settings {
		quota := throttled.RateQuota{MaxRate: throttled.PerDuration(1, s.every), MaxBurst: int(s.burst) - 1}
		l, err := throttled.NewGCRARateLimiterCtx(store, quota)
		if err != nil {
			_ = client.Close()
			return limiter{}, err
		}
		if attempts > 0 {
			l.SetMaxCASAttemptsLimit(attempts)
		}
		limiters = append(limiters, l)
	}
	return limiter{
		take: func(ctx context.Context, which int, key string) (bool, error) {
			limited, _, err := limiters[which].RateLimitCtx(ctx, key, 1)
			return err == nil && !limited, err
		},
		commands: count.sent,
		close:    func() { _ = client.Close() },
	}, nil
}

// A commandCount is a hook of go-redis that counts the commands sent.
type commandCount struct{ n atomic.Int64 }

func (c *commandCount) sent() int64 { return c.n.Load() }

// DialHook leaves connecting as it is.
func (c *commandCount) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook counts a command.
func (c *commandCount) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook counts the commands of a pipeline.
func (c *commandCount) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}
