package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/config"
)

// The exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	exitDenied  = 3 // of weir check
)

// Main runs weir with args, which do not include the program's name, and returns
// the exit code. It returns soon after ctx ends.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := helpOfUnknown(root, args)
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errDenied):
		return exitDenied
	case errors.Is(err, errPrinted):
		return exitFailure
	}
	if bad := configError(err); bad != nil { // with the lines that are wrong
		fmt.Fprintf(stderr, "weir: the configuration is wrong\n%v\n", bad)
	} else {
		fmt.Fprintf(stderr, "weir: %s\n", oneLine(err))
	}
	if e, ok := errors.AsType[*notWritten](err); ok {
		fmt.Fprintf(stderr, "weir: nothing was written%s\n", e.state)
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	return exitFailure
}

// Errors after which there is nothing left to print.
var (
	errDenied  = errors.New("denied")
	errPrinted = errors.New("printed already")
)

// configError returns what is wrong with a configuration, nil if err is about something
// else.
func configError(err error) *config.Error {
	bad, _ := errors.AsType[*config.Error](err)
	return bad
}

// oneLine joins the lines that errors.Join makes.
func oneLine(err error) string {
	return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
}

// A usageError reports arguments that make no sense, and says what would.
type usageError struct{ problem string }

func (e *usageError) Error() string { return e.problem }

// misused returns a usageError that points to the help of cmd.
func misused(cmd *cobra.Command, problem string) error {
	return &usageError{fmt.Sprintf("%s; see '%s --help'", problem, cmd.CommandPath())}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "Limit rates: what comes in, what goes out, how much at once",
		Long: `weir limits rates: what comes in, what goes out, how much at once.

'weir serve' starts a daemon that other programs call before they do something.
It needs no configuration. 'weir check' makes one such call, 'weir config' checks
and prints configurations. 'weir keys', 'weir override', 'weir guard', 'weir budgets'
and 'weir upstreams' are for operators of a daemon. 'weir load' calls a server at a
rate, and measures the latencies that its users would see. 'weir mock' is a provider
with limits, to try clients against.`,
		Example: `  weir serve                          start the daemon on 127.0.0.1:8080
  weir serve --config weir.yaml       start it with policies of your own
  weir check default alice            call it
  weir keys get default alice         see what is left
  weir load --rate 500 http://127.0.0.1:8080/healthz
  weir version --json                 print the version, for a script

  curl -s http://127.0.0.1:8080/v1/check -d '{"policy":"default","key":"alice"}'`,
		Version:               readVersion().Version,
		Args:                  knownCommand,
		RunE:                  showHelp,
		SilenceErrors:         true,
		SilenceUsage:          true,
		DisableFlagsInUseLine: true,
	}
	root.SetVersionTemplate("weir {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return misused(cmd, err.Error()) })
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}", "{{if not .HasAvailableSubCommands}}", 1))
	root.AddCommand(newServe(), newCheck(), newKeys(), newOverride(), newGuard(), newBudgets(), newUpstreams(), newConfig(), newLoad(), newMock(), newVersion())
	addCompletion(root)
	return root
}

func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// addCompletion adds cobra's command that writes completion scripts, and lets it
// refuse shells that it does not know.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Args, cmd.RunE = knownCommand, showHelp
		}
	}
}

// knownCommand refuses what cobra took for an argument because no command has
// that name.
func knownCommand(parent *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	parent.SuggestionsMinimumDistance = 2 // two letters wrong, or two exchanged
	if near := parent.SuggestionsFor(args[0]); len(near) > 0 {
		return &usageError{fmt.Sprintf("unknown command %q; did you mean '%s %s'?", args[0], parent.CommandPath(), near[0])}
	}
	return misused(parent, fmt.Sprintf("unknown command %q", args[0]))
}

// helpOfUnknown refuses a request for the help of a command that does not exist, for which cobra
// would print that of its parent.
func helpOfUnknown(root *cobra.Command, args []string) error {
	parent, rest, err := root.Find(args)
	asked := slices.Contains(rest, "--help") || slices.Contains(rest, "-h")
	if parent == root && len(rest) > 0 && rest[0] == "help" { // cobra's command, which has not been added yet
		parent, rest, err = root.Find(rest[1:])
		asked = true
	}
	if err != nil || !asked || !parent.HasSubCommands() || len(rest) == 0 || strings.HasPrefix(rest[0], "-") || strings.HasPrefix(rest[0], "__") {
		return nil // cobra's own commands for completion begin with __
	}
	return knownCommand(parent, rest[:1])
}

// noArgs refuses arguments that are not flags.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return misused(cmd, fmt.Sprintf("'%s' takes no arguments, but there is %q", cmd.CommandPath(), args[0]))
}
