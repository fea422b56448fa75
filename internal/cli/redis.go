package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/secret"
	"github.com/weirlimit/weir/store/redisstore"
)

// connectTimeout is how long the daemon tries to reach Redis when it starts.
const connectTimeout = 10 * time.Second

// redisPassword names the environment's variable with the password for --redis.
const redisPassword = "WEIR_REDIS_PASSWORD"

// redisTimeout is how long a decision may take; 0 means the store's default. Tests,
// which are not about slow machines, have more patience.
var redisTimeout time.Duration

// serveRedis serves with the counts in Redis.
func (f *serveFlags) serveRedis(ctx context.Context, cmd *cobra.Command, log *slog.Logger) error {
	config, err := redisstore.ParseServer(f.redis)
	if err != nil {
		return misused(cmd, fmt.Sprintf("--redis: %v", err))
	}
	if password := os.Getenv(redisPassword); password != "" {
		if !config.Password.IsZero() {
			return misused(cmd, fmt.Sprintf("--redis: a password is in it, and in %s; say it once", redisPassword))
		}
		config.Password = secret.New(password)
	}
	connecting, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	store, err := redisstore.New(connecting, redisstore.Config{Redis: config, Timeout: redisTimeout})
	if err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	defer store.Close()
	log.Info("counts are in Redis", "addresses", config.Addrs)
	_, err = f.serve(ctx, cmd, store, log)
	return err
}
