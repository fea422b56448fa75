package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/config"
	"github.com/weirlimit/weir/internal/mono"
	"github.com/weirlimit/weir/internal/tracing"
	"github.com/weirlimit/weir/server"
)

func newServe() *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Start the daemon",
		Long: `Start the daemon, and serve until SIGINT or SIGTERM. Then requests that are being
answered have 11 seconds to finish; a second signal ends the daemon at once.

Without a configuration there is one policy, 'default': 100 per second with a burst
of 100, for each key, counted in memory. Logs go to stderr.

With --config the daemon is configured by a file; 'weir config print' shows all
settings. The environment wins over the file (WEIR__STORE__KIND=redis), and flags
win over both. When the file changes, or on SIGHUP, it is read again: policies,
clients, operators and certificates take effect at once, and counters are kept.
A file with an error changes nothing, and the log says why.

With --redis the counts are kept in Redis 6.2 or later, and all daemons on it share
them. The newest change of a limit is in force on all of them: a start is not a change,
and a file that is read again is one. ADDRESS is host:port, several of them for a
cluster or, with --sentinel, of the Sentinels, a redis:// or rediss:// URL, or the path
of a Unix socket. A password is better not in it: set WEIR_REDIS_PASSWORD, which
is for the store.redis of a file without a password, too.

--consistency says when Redis is called: for each decision (exact), for blocks of
units that the daemon then spends by itself without ever exceeding a limit (leased), or
after decisions (async), which may admit too much, within a bound. --on-error says what
happens while Redis does not answer within 10 ms: each daemon admits its share of the
limits (local), everything is admitted (open) or refused (closed). That holds from the start:
a daemon that cannot use Redis when it starts says so, and connects later. With
--require-store it ends with an error instead.

With --snapshot the counts survive a restart: they are loaded from a file at the
start, and saved to it every minute and once more at the end. Only its owner can
read it. A file that cannot be used is kept as FILE.bad, and the daemon starts empty.`,
		Example: `  weir serve
  weir serve --config weir.yaml
  weir serve --http 127.0.0.1:0       take a free port, and print it
  weir serve --log-format json 2>weir.log
  weir serve --max-keys 10000000 --snapshot weir.snap --snapshot-every 10s
  weir serve --redis 127.0.0.1:6379
  weir serve --redis 127.0.0.1:6379 --consistency leased --on-error closed
  weir serve --redis 10.0.0.1:26379,10.0.0.2:26379 --sentinel mymaster
  WEIR_REDIS_PASSWORD=… weir serve --redis rediss://weir@redis.example:6380`,
		Args:                  noArgs,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return serve(cmd, &flags) },
		DisableFlagsInUseLine: true,
	}
	flags.register(cmd)
	return cmd
}

// completeWith lets shells offer values for a flag.
func completeWith(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil { // the flag is there: it was defined just before
		panic(err)
	}
}

// serve runs the daemon until a signal.
func serve(cmd *cobra.Command, flags *configFlags) error {
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP) // from here on, as a supervisor may send one at once
	defer signal.Stop(again)
	cfg, err := flags.load(cmd)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)   // a second signal has its usual effect
	signal.Ignore(syscall.SIGPIPE) // a reader that leaves stdout or stderr must not end the daemon
	log := newLog(cmd.ErrOrStderr(), cfg)
	defer redirectStandardLog(log)()
	for _, w := range cfg.Warnings {
		log.Warn(w.Text, "at", w.Where(), "field", w.Path)
	}
	counts, err := openCounts(ctx, cfg, log)
	if err != nil {
		return err
	}
	d := &follower{cmd: cmd, flags: flags, again: again, config: cfg, start: cfg, log: log}
	return counts.run(func() (bool, error) { return d.run(ctx, counts) })
}

// newLog returns the configured logger.
func newLog(w io.Writer, cfg *config.Config) *slog.Logger {
	options := &slog.HandlerOptions{Level: cfg.File.Log.Level.Level}
	if cfg.File.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// follower is a server with the configuration that it follows.
type follower struct {
	cmd    *cobra.Command // set once, like everything up to start
	flags  *configFlags
	again  <-chan os.Signal // SIGHUP
	log    *slog.Logger
	server *server.Server
	start  *config.Config // the configuration of the start, which decides what needs a restart

	pending   atomic.Bool // the configuration of the files could not be applied yet
	reloading sync.Mutex  // guards the field below, but for its first value
	config    *config.Config
}

// run serves until ctx ends. It reports whether the server has listened.
func (d *follower) run(ctx context.Context, counts *counts) (listened bool, err error) {
	c := d.config.Server()
	c.Exclusive = counts.exclusive
	c.Limiter, c.Overrides, c.Collectors, c.Stats, c.Degraded = counts.limiter, counts.overrides, counts.collectors, counts.stats, counts.degraded
	c.Log, c.Version = d.log, readVersion().Version
	if c.Tracing == nil && tracing.InEnvironment() {
		c.Tracing = &server.Tracing{}
	}
	c.OnListen = func(b server.Bound) {
		listened = true
		fmt.Fprint(d.cmd.OutOrStdout(), newGreeting(c, b)) // in one write, so that a reader of the first line may leave
	}
	var background tasks
	defer background.end()
	if d.server, err = server.New(c); err != nil {
		return false, err
	}
	background.run(d.follow)
	background.run(func(ctx context.Context) { followClock(ctx, d.log, mono.CatchUp) })
	err = d.server.Run(ctx)
	return listened, explainListen(err)
}

// explainListen adds to an error of a listener which one it is and what to do.
func explainListen(err error) error {
	failed, ok := errors.AsType[*server.ListenError](err)
	if !ok {
		return err
	}
	setting := fmt.Sprintf("--%s, or listen.%[1]s of the configuration", failed.Listener)
	switch {
	case !errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w; the address is that of %s", err, setting)
	case failed.Listener == "grpc" || failed.Listener == "resp":
		return fmt.Errorf("%w; set another address, or off, by %s", err, setting)
	}
	return fmt.Errorf("%w; set another address by %s", err, setting)
}

// configFlags are flags that set fields of the configuration.
type configFlags struct{ file string }

// redisPassword names the environment's variable with the password for --redis, and for the store.redis of a
// configuration that has none.
const redisPassword = "WEIR_REDIS_PASSWORD"

// settable is the flags that set one field each.
var settable = []struct {
	name, path, usage string
	examples          []string
}{
	{"http", "listen.http", "`address` to listen on (default \"127.0.0.1:8080\"); unix:/path for a socket", []string{server.DefaultHTTP, "localhost:8080"}},
	{"grpc", "listen.grpc", "`address` for gRPC (default \"127.0.0.1:8081\"); off for none", []string{server.DefaultGRPC, "off"}},
	{"resp", "listen.resp", "`address` for the Redis protocol (default \"127.0.0.1:6380\"); off for none", []string{server.DefaultRESP, "off"}},
	{"admin", "listen.admin", "`address` for operators (default is on --http, as long as that is loopback)", []string{"127.0.0.1:9090"}},
	{"log-format", "log.format", "`format` of the log: text or json (default text)", []string{"text", "json"}},
	{"log-level", "log.level", "least `level` that is logged: debug, info, warn or error (default info)", []string{"debug", "info", "warn", "error"}},
	{"max-keys", "store.max_keys", "most `keys` in memory, at about 21 bytes each; beyond, those with the least usage are evicted (default 1000000)", []string{"100000", "1000000", "10000000"}},
	{"snapshot", "store.snapshot.file", "`file` to keep counts in, so that they outlive the daemon", nil},
	{"snapshot-every", "store.snapshot.every", "`duration` between saves; a crash loses the usage since the last save (default 1m)", []string{"10s", "1m", "10m"}},
	{"redis", "store.redis.addrs", "`address` of Redis, for counts that daemons share", []string{"127.0.0.1:6379"}},
	{"sentinel", "store.redis.sentinel_master", "`name` of the primary, if --redis has the addresses of Sentinels", []string{"mymaster"}},
	{"consistency", "store.redis.consistency", "when Redis is called, as a `mode`: exact, leased or async (default exact)", []string{"exact", "leased", "async"}},
	{"on-error", "store.redis.on_error", "`policy` while Redis does not answer: local, open or closed (default local)", []string{"local", "open", "closed"}},
	{requireStore, "store.redis.required", "do not start without Redis; the default is to decide by --on-error until it is connected", nil},
}

// requireStore is the flag without a value.
const requireStore = "require-store"

func (f *configFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.file, "config", "c", "", "configuration `file`")
	for _, s := range settable {
		if s.name == requireStore {
			cmd.Flags().Bool(s.name, false, s.usage)
			continue
		}
		cmd.Flags().String(s.name, "", s.usage)
		if s.examples != nil {
			completeWith(cmd, s.name, s.examples...)
		}
	}
}

// valueOf returns the value of a flag as text.
func valueOf(cmd *cobra.Command, name string) string { return cmd.Flags().Lookup(name).Value.String() }

// load reads the configuration, and lets flags win.
func (f *configFlags) load(cmd *cobra.Command) (*config.Config, error) {
	list, err := f.list(cmd)
	if err != nil {
		return nil, err
	}
	cfg, err := config.Load(f.file, os.Environ(), list...)
	if password := os.Getenv(redisPassword); password != "" && err == nil && lacksPassword(cfg) {
		list = append(list, config.Flag{Name: redisPassword, Path: "store.redis.password", Value: password})
		cfg, err = config.Load(f.file, os.Environ(), list...)
	}
	if bad, ok := errors.AsType[*config.Error](err); ok && onlyFlags(bad) {
		return nil, misused(cmd, oneLine(err))
	}
	return cfg, err
}

// lacksPassword reports whether a configuration is for Redis, and has no password for it.
func lacksPassword(cfg *config.Config) bool {
	return cfg.File.Store.Kind == config.InRedis && cfg.Store.Redis.Redis.Password.IsZero()
}

// onlyFlags says whether all problems are those of flags.
func onlyFlags(e *config.Error) bool {
	for _, p := range e.Problems {
		if !strings.HasPrefix(p.File, "--") {
			return false
		}
	}
	return true
}

// list returns the flags that were given, as fields of the configuration.
func (f *configFlags) list(cmd *cobra.Command) ([]config.Flag, error) {
	if err := f.check(cmd); err != nil {
		return nil, err
	}
	var list []config.Flag
	for _, s := range settable {
		if cmd.Flags().Changed(s.name) && s.name != "redis" {
			list = append(list, config.Flag{Name: "--" + s.name, Path: s.path, Value: valueOf(cmd, s.name)})
		}
	}
	return append(f.redis(cmd), list...), nil
}

// redis returns the fields that --redis and the password in the environment set.
func (f *configFlags) redis(cmd *cobra.Command) (list []config.Flag) {
	password, put := os.Getenv(redisPassword), false
	if cmd.Flags().Changed("redis") {
		var addrs string
		addrs, put = withPassword(valueOf(cmd, "redis"), password)
		quoted := strings.ReplaceAll(strings.ReplaceAll(addrs, "'", "''"), ",", "','")
		list = append(list,
			config.Flag{Name: "--redis", Path: "store.kind", Value: "redis"},
			config.Flag{Name: "--redis", Path: "store.redis.addrs", Value: "['" + quoted + "']"})
	}
	if password != "" && !put && len(list) > 0 {
		list = append(list, config.Flag{Name: redisPassword, Path: "store.redis.password", Value: password})
	}
	return list
}

// check returns an error if the flags contradict each other.
func (f *configFlags) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	for _, s := range settable {
		if given(s.name) && valueOf(cmd, s.name) == "" {
			return misused(cmd, fmt.Sprintf("--%s: must not be empty; leave it out for the default", s.name))
		}
	}
	switch {
	case f.file == "" && given("config"):
		return misused(cmd, "--config: must be the name of a file; leave it out for the defaults")
	case given("redis") && (given("snapshot") || given("max-keys")):
		return misused(cmd, "--redis: counts are kept there; --snapshot and --max-keys are for memory")
	case f.file != "" || f.hasRedis(cmd):
	case given("sentinel") || given("consistency") || given("on-error") || given(requireStore):
		return misused(cmd, "--sentinel, --consistency, --on-error and --require-store: are about Redis; add --redis ADDRESS")
	}
	if given("snapshot-every") && !given("snapshot") && f.file == "" {
		return misused(cmd, "--snapshot-every: says how often, but nothing says where; add --snapshot FILE")
	}
	return nil
}

// hasRedis says whether a flag or the environment selects Redis.
func (f *configFlags) hasRedis(cmd *cobra.Command) bool {
	return cmd.Flags().Changed("redis") || strings.EqualFold(os.Getenv("WEIR__STORE__KIND"), "redis")
}
