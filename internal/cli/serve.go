package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server"
	"github.com/weirlimit/weir/store/memstore"
)

// How many keys the memory store may be told to tell apart: at most those of about
// 20 GB.
const (
	defaultMaxKeys = 1_000_000
	mostMaxKeys    = 1_000_000_000
)

// policies are those of the daemon; none means the server's default. Tests have
// slower ones.
var policies []*weir.Policy

// serveFlags are the flags of weir serve.
type serveFlags struct {
	http          string
	logFormat     logFormat
	maxKeys       int
	snapshot      string
	snapshotEvery time.Duration
	redis         string
	tier          tierFlags
}

func newServe() *cobra.Command {
	flags := serveFlags{http: server.DefaultHTTP, logFormat: logText, maxKeys: defaultMaxKeys, snapshotEvery: defaultSnapshotEvery}
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Start the daemon",
		Long: `Start the daemon, and serve until SIGINT or SIGTERM. Then requests that are being
answered have 10 seconds to finish; a second signal ends the daemon at once.

Without a configuration there is one policy, 'default': 100 per second with a burst
of 100, for each key, counted in memory. Logs go to stderr.

With --redis the counts are kept in Redis 6.2 or later, and all daemons on it share
them. ADDRESS is host:port, several of them for a cluster or, with --sentinel, of the
Sentinels, a redis:// or rediss:// URL, or the path of a Unix socket. A password is
better not in it: set WEIR_REDIS_PASSWORD.

--consistency says how often Redis is asked: for each decision (exact), for blocks of
units that the daemon then spends by itself without ever exceeding a limit (leased), or
afterwards (async), which is bounded, but may admit too much. --on-error says what
happens while Redis does not answer within 10 ms: each daemon admits its share of the
limits (local), everything is admitted (open) or refused (closed).

With --snapshot a restart does not forgive everyone: counts are loaded from a file
at the start, saved to it every minute and once more at the end. Only its owner can
read it. A file that cannot be used is kept as FILE.bad, and the daemon starts empty.`,
		Example: `  weir serve
  weir serve --http 127.0.0.1:0       take a free port, and print it
  weir serve --log-format json 2>weir.log
  weir serve --max-keys 10000000 --snapshot weir.snap --snapshot-every 10s
  weir serve --redis 127.0.0.1:6379
  weir serve --redis 127.0.0.1:6379 --consistency leased --on-error closed
  weir serve --redis 10.0.0.1:26379,10.0.0.2:26379 --sentinel mymaster
  WEIR_REDIS_PASSWORD=… weir serve --redis rediss://weir@redis.example:6380`,
		Args:                  noArgs,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return flags.run(cmd) },
		DisableFlagsInUseLine: true,
	}
	cmd.Flags().StringVar(&flags.http, "http", flags.http, "`address` to listen on; loopback only")
	cmd.Flags().Var(&flags.logFormat, "log-format", "text or json")
	cmd.Flags().IntVar(&flags.maxKeys, "max-keys", flags.maxKeys, "how many `keys` to tell apart, at about 21 bytes each; beyond, those that use least go")
	cmd.Flags().StringVar(&flags.snapshot, "snapshot", "", "`file` to keep counts in, so that they outlive the daemon")
	cmd.Flags().DurationVar(&flags.snapshotEvery, "snapshot-every", flags.snapshotEvery, "how often to save them; a crash forgives what was used since")
	cmd.Flags().StringVar(&flags.redis, "redis", "", "`address` of the Redis to share counts over, instead of memory")
	flags.tier.register(cmd)
	completeWith(cmd, "redis", "127.0.0.1:6379")
	completeWith(cmd, "http", server.DefaultHTTP, "localhost:8080")
	completeWith(cmd, "log-format", string(logText), string(logJSON))
	completeWith(cmd, "max-keys", "100000", "1000000", "10000000")
	completeWith(cmd, "snapshot-every", "10s", "1m", "10m")
	return cmd
}

// check returns what makes no sense about the flags.
func (f *serveFlags) check(cmd *cobra.Command) error {
	switch given := cmd.Flags().Changed; {
	case given("redis") && f.redis == "":
		return misused(cmd, "--redis: must be an address such as 127.0.0.1:6379; leave it out to count in memory")
	case f.redis == "" && (given("sentinel") || given("consistency") || given("on-error")):
		return misused(cmd, "--sentinel, --consistency and --on-error: are about Redis; add --redis ADDRESS")
	case given("sentinel") && f.tier.sentinel == "":
		return misused(cmd, "--sentinel: must be the name by which Sentinels know the primary, such as mymaster")
	case f.tier.onError == weir.OnErrorDefault:
		return misused(cmd, "--on-error default: must be local, open or closed")
	case given("redis") && (given("snapshot") || given("max-keys")):
		return misused(cmd, "--redis: counts are kept there; --snapshot and --max-keys are for memory")
	case f.maxKeys < 1 || f.maxKeys > mostMaxKeys:
		return misused(cmd, fmt.Sprintf("--max-keys %d: must be between 1 and %d", f.maxKeys, mostMaxKeys))
	case given("snapshot") && f.snapshot == "":
		return misused(cmd, "--snapshot: must be the name of a file; leave it out for none")
	case given("snapshot-every") && f.snapshot == "":
		return misused(cmd, "--snapshot-every: says how often, but nothing says where; add --snapshot FILE")
	case f.snapshotEvery < minSnapshotEvery:
		return misused(cmd, fmt.Sprintf("--snapshot-every %v: must be at least %v", f.snapshotEvery, minSnapshotEvery))
	}
	return nil
}

// completeWith lets shells offer values for a flag.
func completeWith(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil { // the flag is there: it was defined just before
		panic(err)
	}
}

func (f *serveFlags) run(cmd *cobra.Command) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)   // a second signal has its usual effect
	signal.Ignore(syscall.SIGPIPE) // a reader that leaves stdout or stderr must not end the daemon
	log := f.logFormat.logger(cmd.ErrOrStderr())
	if f.redis != "" {
		return f.serveRedis(ctx, cmd, log)
	}
	config := memstore.Config{MaxKeys: f.maxKeys}
	if f.snapshot == "" {
		table, err := memstore.New(config)
		if err != nil {
			return err
		}
		_, err = f.serve(ctx, cmd, table, log)
		return err
	}
	s := &snapshots{file: f.snapshot, every: f.snapshotEvery, log: log}
	table, err := s.open(config)
	if err != nil {
		return err
	}
	return s.during(table, func() (bool, error) { return f.serve(ctx, cmd, table, log) })
}

// serve serves until ctx ends. It says whether it came so far that it listened.
func (f *serveFlags) serve(ctx context.Context, cmd *cobra.Command, limiter weir.Limiter, log *slog.Logger) (listened bool, err error) {
	version := readVersion().Version
	srv, err := server.New(server.Config{
		HTTP:     f.http,
		Limiter:  limiter,
		Policies: policies,
		Log:      log,
		Version:  version,
		OnListen: func(addr net.Addr) {
			listened = true
			greet(cmd.OutOrStdout(), version, addr)
		},
	})
	if err != nil {
		return false, err
	}
	err = srv.Run(ctx)
	return listened, err
}

// greet tells where to look. Its first line is meant for scripts, too.
func greet(w io.Writer, version string, addr net.Addr) {
	fmt.Fprintf(w, `weir %s is listening on http://%[2]v

  look   http://%[2]v/
  ask    curl -s http://%[2]v/v1/check -d '{"policy":"default","key":"alice"}'
  stop   Ctrl-C

`, version, addr) // in one write, so that a reader of the first line may leave
}
