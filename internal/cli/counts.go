package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
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
	degraded   func() string // why they are not used; "" if they are. nil = they always are

	// run calls serve, and does before and after it what the counts need. serve reports
	// whether the server has listened.
	run func(serve func() (listened bool, err error)) error
}

// openCounts opens the configured store.
func openCounts(ctx context.Context, cfg *config.Config, log *slog.Logger) (*counts, error) {
	if cfg.File.Store.Kind == config.InRedis {
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
	if cfg.File.Store.Snapshot != nil {
		s := newSnapshots(*cfg.File.Store.Snapshot, log)
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

const (
	// connectTimeout bounds an attempt to connect to Redis, and startTimeout the first one of a
	// daemon that starts without Redis if need be.
	connectTimeout = 10 * time.Second
	startTimeout   = connectTimeout / 2

	// reconnectEvery is how long a daemon that has started without Redis waits, on average, before
	// it tries to connect again. It varies by a half, so that a fleet does not connect all at once.
	reconnectEvery = 500 * time.Millisecond

	// warnEvery is the least time between two warnings that it cannot connect.
	warnEvery = 10 * time.Second
)

// inRedis is the store in Redis with its tier, its bus and its connections.
type inRedis struct {
	store      *lateStore
	bus        bus
	overrides  *lateOverrides
	tier       *tiered.Limiter
	policies   []*weir.Policy
	log        *slog.Logger
	dial       func(ctx context.Context, network, addr string) (net.Conn, error) // of all connections
	logged     map[string]time.Time                                              // replaced's: the last change that was logged, by policy
	open       atomic.Int64                                                      // breakers of the tier that are open
	background tasks
}

// newInRedis returns what has no connections yet. It will make them as [socket.Dial] does.
func newInRedis(cfg *config.Config, log *slog.Logger) (*inRedis, error) {
	list, err := compiled(cfg)
	if err != nil {
		return nil, err
	}
	return &inRedis{
		store: newLateStore(cfg.Store.Redis), overrides: newLateOverrides(), policies: list,
		log: log, dial: socket.Dial, logged: map[string]time.Time{},
	}, nil
}

// openRedis counts in Redis, with a tier in front of it. If Redis cannot be used and is not
// required, it is connected later.
func openRedis(ctx context.Context, cfg *config.Config, log *slog.Logger) (*counts, error) {
	r, err := newInRedis(cfg, log)
	if err != nil {
		return nil, err
	}
	unconnected := r.begin(ctx, cfg)
	if unconnected != nil && (cfg.File.Store.Redis.Required || ctx.Err() != nil) {
		r.close()
		return nil, fmt.Errorf("redis: %w", unconnected)
	}
	if err := r.newTier(cfg); err != nil {
		r.close()
		return nil, err
	}
	store := []any{"addresses", cfg.Store.Redis.Redis.Addrs, "consistency", cfg.Store.Tier.Mode, "on_error", cfg.Store.Tier.OnError}
	if unconnected == nil {
		log.Info("counts are in Redis", store...)
		r.isConnected(ctx)
	} else {
		log.Warn("the daemon starts without Redis, and decides by on_error until it is connected", append([]any{"error", oneLine(unconnected)}, store...)...)
		r.background.run(func(ctx context.Context) { r.reconnect(ctx, cfg, unconnected) })
	}
	return &counts{
		limiter: &fleetLimits{r.tier, r.store, log}, overrides: r.overrides, degraded: r.degraded,
		collectors: []prometheus.Collector{
			weirprom.NewTier(r.tier.Stats),
			flagGauge("weir_store_evicts_keys", "1 if Redis, as found when it was connected, discards keys when its memory is full, and usage with them.", r.store.evicts),
			flagGauge("weir_degraded", "1 while Redis, or a partition of it, is unavailable, so that on_error decides.", func() bool { return r.degraded() != "" }),
		},
		stats: func() map[string]any { return map[string]any{"kind": "redis", "tier": r.tier.Stats()} },
		run: func(serve func() (bool, error)) error {
			defer r.close()
			_, err := serve()
			return err
		},
	}, nil
}

// flagGauge is 1 while a condition holds.
func flagGauge(name, help string, holds func() bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
		if holds() {
			return 1
		}
		return 0
	})
}

// degraded says why decisions, or some of them, are made without Redis; "" if none are.
func (r *inRedis) degraded() string {
	if r.store.connected.Load() == nil || r.open.Load() > 0 {
		return "the store is unavailable"
	}
	return ""
}

// begin is the first attempt to connect. A daemon that requires Redis must also be able to read the
// operators' overrides.
func (r *inRedis) begin(ctx context.Context, cfg *config.Config) error {
	if !cfg.File.Store.Redis.Required {
		return r.connect(ctx, cfg, startTimeout)
	}
	if err := r.connect(ctx, cfg, connectTimeout); err != nil {
		return err
	}
	_, err := r.overrides.List(ctx)
	return err
}

// reconnect tries to connect until that succeeds or ctx ends. last is the error of the last attempt.
func (r *inRedis) reconnect(ctx context.Context, cfg *config.Config, last error) {
	began, warned := time.Now(), time.Now()
	for pause(ctx, reconnectEvery/2+rand.N(reconnectEvery)) { //nolint:gosec // it is no secret
		err := r.connect(ctx, cfg, connectTimeout)
		switch {
		case err == nil:
			r.log.Info("connected to Redis, which was unavailable when the daemon started", "after", time.Since(began).Round(time.Millisecond))
			r.isConnected(ctx)
			return
		case ctx.Err() == nil && err.Error() != last.Error() && time.Since(warned) >= warnEvery:
			r.log.Warn("Redis is still unavailable", "error", oneLine(err))
			last, warned = err, time.Now()
		}
	}
}

// pause returns false if ctx ends before d is over.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// isConnected reports what was found in Redis: limits that are not those of the configuration, to
// the tier, and servers that evict keys, to the operator.
func (r *inRedis) isConnected(ctx context.Context) {
	r.tellTier(ctx)
	for _, e := range r.store.connected.Load().Evictors() {
		r.log.Warn("Redis discards keys when its memory is full, and what was used with them: set maxmemory-policy noeviction",
			"address", e.Addr, "maxmemory_policy", e.Policy)
	}
}

// connect opens all connections, or none.
func (r *inRedis) connect(ctx context.Context, cfg *config.Config, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c := cfg.Store.Redis
	c.Redis.Dial = r.dial
	c.OnReplaced = r.replaced
	store, err := redisstore.New(ctx, c)
	if err != nil {
		return err
	}
	if err := r.connectRest(ctx, c, store); err != nil {
		store.Close()
		return err
	}
	r.store.connected.Store(store)
	return nil
}

// connectRest opens the connections besides those of the store.
func (r *inRedis) connectRest(ctx context.Context, c redisstore.Config, store *redisstore.Store) error {
	if err := warm(ctx, store, r.policies); err != nil {
		return err
	}
	messages, err := redistier.New(ctx, redistier.Config{Redis: c.Redis, Prefix: c.Prefix})
	if err != nil {
		return err
	}
	set, err := overrides.NewRedis(ctx, redisconn.Config(c.Redis), strings.TrimSuffix(c.Prefix, ":"))
	if err != nil {
		messages.Close()
		return err
	}
	r.bus.use(messages)
	r.overrides.use(set)
	return nil
}

// newTier makes the local tier in front of Redis.
func (r *inRedis) newTier(cfg *config.Config) error {
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
			r.open.Add(1)
			r.log.Warn("store unavailable: circuit breaker opened", "part", part, "error", why, "on_error", c.OnError)
		} else {
			r.open.Add(-1)
			r.log.Info("store available again: circuit breaker closed", "part", part)
		}
	}
	r.tier, err = tiered.New(c)
	return err
}

// close ends what was opened, the last first.
func (r *inRedis) close() {
	r.background.end()
	if r.tier != nil {
		r.tier.Close()
		logTier(r.log, r.tier.Stats())
	}
	if set := r.overrides.connected(); set != nil {
		set.Close()
	}
	if messages := r.bus.connected.Load(); messages != nil {
		messages.Close()
	}
	if store := r.store.connected.Load(); store != nil {
		store.Close()
	}
}

// compiled returns the policies that limiters are called with.
func compiled(cfg *config.Config) ([]*weir.Policy, error) {
	list := cfg.Live().Policies
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
