package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/secret"
	"github.com/weirlimit/weir/server"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/store/redisstore"
	"github.com/weirlimit/weir/tiered"
	"github.com/weirlimit/weir/tiered/redistier"
)

// connectTimeout is how long the daemon tries to reach Redis when it starts.
const connectTimeout = 10 * time.Second

// redisPassword names the environment's variable with the password for --redis.
const redisPassword = "WEIR_REDIS_PASSWORD"

// redisTimeout is how long a decision may take; 0 means the tier's default. Tests,
// which are not about slow machines, have more patience.
var redisTimeout time.Duration

// tierFlags are the flags of weir serve about how Redis is used.
type tierFlags struct {
	sentinel    string
	consistency tiered.Mode
	onError     weir.OnError
}

func (f *tierFlags) register(cmd *cobra.Command) {
	f.onError = weir.FailLocal
	cmd.Flags().StringVar(&f.sentinel, "sentinel", "", "`name` of the primary, if --redis tells where Sentinels are")
	cmd.Flags().TextVar(&f.consistency, "consistency", f.consistency, "how often Redis is asked, as a `mode`: exact, leased or async")
	cmd.Flags().TextVar(&f.onError, "on-error", f.onError, "what `happens` while Redis does not answer: local, open or closed")
	completeWith(cmd, "sentinel", "mymaster")
	completeWith(cmd, "consistency", tiered.Exact.String(), tiered.Leased.String(), tiered.Async.String())
	completeWith(cmd, "on-error", weir.FailLocal.String(), weir.FailOpen.String(), weir.FailClosed.String())
}

// serveRedis serves with the counts in Redis, and a tier in front of it.
func (f *serveFlags) serveRedis(ctx context.Context, cmd *cobra.Command, log *slog.Logger) error {
	redis, err := f.redisServer(cmd)
	if err != nil {
		return err
	}
	timeout := redisTimeout
	if timeout == 0 {
		timeout = tiered.DefaultTimeout
	}
	connecting, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	store, err := redisstore.New(connecting, redisstore.Config{Redis: redis, Timeout: timeout})
	if err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	defer store.Close()
	if err := warm(connecting, store); err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	bus, err := redistier.New(connecting, redistier.Config{Redis: redis})
	if err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	defer bus.Close()
	local, err := memstore.New(memstore.Config{MaxKeys: tiered.DefaultMaxKeys})
	if err != nil {
		return err
	}
	tier, err := tiered.New(tiered.Config{
		Store: store, Local: local, Bus: bus, Mode: f.tier.consistency, OnError: f.tier.onError, Timeout: timeout,
		OnBreaker: func(part int, open bool, why error) {
			if open {
				log.Warn("store given up", "part", part, "error", why, "on_error", f.tier.onError)
			} else {
				log.Info("store is back", "part", part)
			}
		},
	})
	if err != nil {
		return err
	}
	defer func() {
		tier.Close()
		logTier(log, tier.Stats())
	}()
	log.Info("counts are in Redis", "addresses", redis.Addrs, "consistency", f.tier.consistency, "on_error", f.tier.onError)
	_, err = f.serve(ctx, cmd, tier, log)
	return err
}

// warm has the store and Redis get to know each other before the first caller comes, who
// would not wait for that: scripts, connections, and what was set for the policies.
func warm(ctx context.Context, store *redisstore.Store) error {
	list := policies
	if len(list) == 0 {
		list = []*weir.Policy{server.DefaultPolicy()}
	}
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

// redisServer returns what --redis and --sentinel and the environment say.
func (f *serveFlags) redisServer(cmd *cobra.Command) (redisstore.Server, error) {
	password := os.Getenv(redisPassword)
	address, put := withPassword(f.redis, password)
	server, err := redisstore.ParseServer(address)
	if err != nil {
		return server, misused(cmd, fmt.Sprintf("--redis: %v", err))
	}
	server.Sentinel = f.tier.sentinel
	if password != "" && !put {
		if !server.Password.IsZero() {
			return server, misused(cmd, fmt.Sprintf("--redis: a password is in it, and in %s; say it once", redisPassword))
		}
		server.Password = secret.New(password)
	}
	if err := server.Validate(); err != nil {
		return server, misused(cmd, fmt.Sprintf("--redis: %v", err))
	}
	return server, nil
}

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

// logTier tells what the tier has done.
func logTier(log *slog.Logger, s tiered.Stats) {
	log.Info("tier",
		slog.Group("decisions", "deny_cache", s.DenyCache, "lease", s.Lease, "store", s.Store, "async", s.Async, "fallback", s.Fallback),
		"store_calls", s.StoreCalls, "failures", s.Failures, "unknown", s.Unknown, "busy", s.Busy, "opened", s.Opened, "closed", s.Closed,
		"forfeited", s.Forfeited, "owed", s.Owed, "lost", s.Lost, "forgiven", s.Forgiven, "nodes", s.Nodes)
}
