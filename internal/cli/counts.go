package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/config"
	"github.com/weirlimit/weir/internal/overrides"
	"github.com/weirlimit/weir/internal/redisconn"
	"github.com/weirlimit/weir/internal/socket"
	"github.com/weirlimit/weir/ruleset"
	"github.com/weirlimit/weir/server"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/store/redisstore"
	"github.com/weirlimit/weir/tiered"
	"github.com/weirlimit/weir/tiered/redistier"
	"github.com/weirlimit/weir/weirprom"
)

// counts is the store of the daemon, and what belongs to it.
type counts struct {
	limiter    weir.Limiter
	exclusive  bool             // no other process decides by them
	overrides  server.Overrides // nil for those of the server itself
	collectors []prometheus.Collector
	stats      func() map[string]any

	// run calls serve, and does before and after it what the counts need. serve reports
	// whether the server has listened.
	run func(serve func() (listened bool, err error)) error
}

// openCounts opens the configured store.
func openCounts(ctx context.Context, cfg *config.Config, log *slog.Logger) (*counts, error) {
	if cfg.Store.Kind == config.InRedis {
		return openRedis(ctx, cfg, log)
	}
	return openMemory(cfg, log)
}

// openMemory counts in memory and, if a snapshot file is configured, saves to it.
func openMemory(cfg *config.Config, log *slog.Logger) (*counts, error) {
	c := &counts{run: func(serve func() (bool, error)) error {
		_, err := serve()
		return err
	}}
	var table *memstore.Table
	var err error
	if cfg.Store.Snapshot.File != "" {
		s := newSnapshots(cfg.Store.Snapshot, log)
		table, err = s.open(cfg.Store.Memory)
		c.run = func(serve func() (bool, error)) error { return s.run(table, serve) }
		c.collectors = append(c.collectors, s.fails)
	} else {
		table, err = memstore.New(cfg.Store.Memory)
	}
	if err != nil {
		return nil, err
	}
	c.limiter, c.exclusive = table, true
	c.collectors = append(c.collectors, weirprom.NewMemstore(table.Stats))
	c.stats = func() map[string]any { return map[string]any{"kind": "memory", "memory": table.Stats()} }
	return c, nil
}

// connectTimeout is how long the daemon tries to reach Redis when it starts.
const connectTimeout = 10 * time.Second

// inRedis is the store in Redis with its tier, its bus and its connections.
type inRedis struct {
	store     *redisstore.Store
	bus       bus
	overrides *overrides.Redis
	tier      *tiered.Limiter
	log       *slog.Logger
	dial      func(ctx context.Context, network, addr string) (net.Conn, error) // of all connections
	logged    map[string]time.Time                                              // replaced's: the last change that was logged, by policy
}

// newInRedis returns what has no connections yet. It will make them as [socket.Dial] does.
func newInRedis(log *slog.Logger) *inRedis {
	return &inRedis{log: log, dial: socket.Dial, logged: map[string]time.Time{}}
}

// openRedis counts in Redis, with a tier in front of it.
func openRedis(ctx context.Context, cfg *config.Config, log *slog.Logger) (*counts, error) {
	r := newInRedis(log)
	if err := r.connect(ctx, cfg); err != nil {
		r.close()
		return nil, fmt.Errorf("redis: %w", err)
	}
	if err := r.newTier(ctx, cfg); err != nil {
		r.close()
		return nil, err
	}
	log.Info("counts are in Redis", "addresses", cfg.Store.Redis.Redis.Addrs,
		"consistency", cfg.Store.Tier.Mode, "on_error", cfg.Store.Tier.OnError)
	warnOfEviction(log, r.store)
	return &counts{
		limiter: &fleetLimits{r.tier, r.store, log}, overrides: r.overrides,
		collectors: []prometheus.Collector{weirprom.NewTier(r.tier.Stats), evictsGauge(r.store)},
		stats:      func() map[string]any { return map[string]any{"kind": "redis", "tier": r.tier.Stats()} },
		run: func(serve func() (bool, error)) error {
			defer r.close()
			_, err := serve()
			return err
		},
	}, nil
}

// warnOfEviction logs which servers evict keys when their memory is full.
func warnOfEviction(log *slog.Logger, store *redisstore.Store) {
	for _, e := range store.Evictors() {
		log.Warn("Redis discards keys when its memory is full, and what was used with them: set maxmemory-policy noeviction",
			"address", e.Addr, "maxmemory_policy", e.Policy)
	}
}

// evictsGauge is 1 if a server was found to evict keys.
func evictsGauge(store *redisstore.Store) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_store_evicts_keys",
		Help: "1 if Redis, as found at the start, discards keys when its memory is full, and usage with them.",
	}, func() float64 {
		if store.Stats().Evicts {
			return 1
		}
		return 0
	})
}

// connect opens all connections.
func (r *inRedis) connect(ctx context.Context, cfg *config.Config) (err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	c := cfg.Store.Redis
	c.Redis.Dial = r.dial
	c.OnReplaced = r.replaced
	if r.store, err = redisstore.New(ctx, c); err != nil {
		return err
	}
	list, err := compiled(cfg)
	if err != nil {
		return err
	}
	if err := warm(ctx, r.store, list); err != nil {
		return err
	}
	if r.bus.Bus, err = redistier.New(ctx, redistier.Config{Redis: c.Redis, Prefix: c.Prefix}); err != nil {
		return err
	}
	r.overrides, err = overrides.NewRedis(ctx, redisconn.Config(c.Redis), strings.TrimSuffix(c.Prefix, ":"))
	return err
}

// newTier makes the local tier in front of Redis.
func (r *inRedis) newTier(ctx context.Context, cfg *config.Config) error {
	local, err := memstore.New(memstore.Config{MaxKeys: tiered.DefaultMaxKeys})
	if err != nil {
		return err
	}
	c := cfg.Store.Tier
	c.Store, c.Local, c.Bus = r.store, local, &r.bus
	c.OnUnreadable = func(policy, keyHash string, err error) {
		r.log.Error("cannot read the state of a key in Redis", "policy", policy, "key_hash", keyHash, "error", err, "on_error", c.OnError)
	}
	c.OnBreaker = func(part int, open bool, why error) {
		if open {
			r.log.Warn("store unavailable: circuit breaker opened", "part", part, "error", why, "on_error", c.OnError)
		} else {
			r.log.Info("store available again: circuit breaker closed", "part", part)
		}
	}
	if r.tier, err = tiered.New(c); err != nil {
		return err
	}
	list, err := compiled(cfg)
	if err != nil {
		return err
	}
	r.tellTier(ctx, list)
	return nil
}

// close ends what was opened, the last first.
func (r *inRedis) close() {
	if r.tier != nil {
		r.tier.Close()
		logTier(r.log, r.tier.Stats())
	}
	if r.overrides != nil {
		r.overrides.Close()
	}
	if r.bus.Bus != nil {
		r.bus.Close()
	}
	if r.store != nil {
		r.store.Close()
	}
}

// compiled returns the policies that limiters are called with.
func compiled(cfg *config.Config) ([]*weir.Policy, error) {
	list := cfg.Policies()
	if len(list) == 0 {
		list = []ruleset.Policy{server.DefaultPolicy()}
	}
	rules, err := ruleset.Compile(list, nil)
	if err != nil {
		return nil, err
	}
	return rules.Policies(), nil
}

// warm loads the scripts, opens the connections and reads the histories of the policies before
// the first call, whose timeout is too short for that.
func warm(ctx context.Context, store *redisstore.Store, list []*weir.Policy) error {
	for _, p := range list {
		for {
			_, err := store.Take(ctx, p, "", 0) // which changes nothing
			if err == nil {
				_, err = weir.Peek(ctx, store, p, "", 0)
			}
			if err == nil || errors.Is(err, weir.ErrReserveOnly) {
				break
			}
			select {
			case <-ctx.Done():
				return err
			case <-time.After(warmEvery):
			}
		}
	}
	return nil
}

// warmEvery is how long warm waits before it tries again.
const warmEvery = 20 * time.Millisecond

// withPassword puts a password into a URL that has a user and none, such as
// redis://user@host. It says whether it did.
func withPassword(address, password string) (string, bool) {
	scheme, rest, _ := strings.Cut(address, "://")
	at := strings.LastIndex(rest, "@")
	if password == "" || at < 1 || strings.Contains(rest[:at], ":") {
		return address, false
	}
	return scheme + "://" + rest[:at] + ":" + url.PathEscape(password) + rest[at:], true
}

// logTier logs the statistics of the tier.
func logTier(log *slog.Logger, s tiered.Stats) {
	log.Info("tier",
		slog.Group("decisions", "deny_cache", s.DenyCache, "lease", s.Lease, "store", s.Store, "async", s.Async, "fallback", s.Fallback),
		"store_calls", s.StoreCalls, "failures", s.Failures, "unknown", s.Unknown, "busy", s.Busy, "opened", s.Opened, "closed", s.Closed,
		"forfeited", s.Forfeited, "unsynced", s.Unsynced, "lost", s.Lost, "forgiven", s.Forgiven, "nodes", s.Nodes)
}
