package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/server"
	"github.com/weirlimit/weir/store/memstore"
)

// maxKeys is how many keys the memory store tells apart.
const maxKeys = 10_000

// serveFlags are the flags of weir serve.
type serveFlags struct {
	http      string
	logFormat logFormat
}

func newServe() *cobra.Command {
	flags := serveFlags{http: server.DefaultHTTP, logFormat: logText}
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Start the daemon",
		Long: `Start the daemon, and serve until SIGINT or SIGTERM. Then requests that are being
answered have 10 seconds to finish; a second signal ends the daemon at once.

Without a configuration there is one policy, 'default': 100 per second with a burst
of 100, for each key, counted in memory. Logs go to stderr.`,
		Example: `  weir serve
  weir serve --http 127.0.0.1:0       take a free port, and print it
  weir serve --log-format json 2>weir.log`,
		Args:                  noArgs,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return flags.run(cmd) },
		DisableFlagsInUseLine: true,
	}
	cmd.Flags().StringVar(&flags.http, "http", flags.http, "`address` to listen on; loopback only")
	cmd.Flags().Var(&flags.logFormat, "log-format", "text or json")
	completeWith(cmd, "http", server.DefaultHTTP, "localhost:8080")
	completeWith(cmd, "log-format", string(logText), string(logJSON))
	return cmd
}

// completeWith lets shells offer values for a flag.
func completeWith(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil { // the flag is there: it was defined just before
		panic(err)
	}
}

func (f *serveFlags) run(cmd *cobra.Command) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)   // a second signal has its usual effect
	signal.Ignore(syscall.SIGPIPE) // a reader that leaves stdout or stderr must not end the daemon
	table, err := memstore.New(memstore.Config{MaxKeys: maxKeys})
	if err != nil {
		return err
	}
	version := readVersion().Version
	srv, err := server.New(server.Config{
		HTTP:     f.http,
		Limiter:  table,
		Log:      f.logFormat.logger(cmd.ErrOrStderr()),
		Version:  version,
		OnListen: func(addr net.Addr) { greet(cmd.OutOrStdout(), version, addr) },
	})
	if err != nil {
		return err
	}
	return srv.Run(ctx)
}

// greet tells where to look. Its first line is meant for scripts, too.
func greet(w io.Writer, version string, addr net.Addr) {
	fmt.Fprintf(w, `weir %s is listening on http://%[2]v

  look   http://%[2]v/
  ask    curl -s http://%[2]v/v1/check -d '{"policy":"default","key":"alice"}'
  stop   Ctrl-C

`, version, addr) // in one write, so that a reader of the first line may leave
}
