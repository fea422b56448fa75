package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"
)

func newBudgetsResume() *cobra.Command {
	var flags adminFlags
	cmd := &cobra.Command{
		Use:   "resume NAME [flags]",
		Short: "End the cooldown of a budget",
		Long: `End the cooldown of a budget: a daemon charges the account again at once, and its routes try it. A provider
that still refuses begins another cooldown. Other daemons have cooldowns of their own. The daemon's log says
who did it.` + adminHelp,
		Example:               `  weir budgets resume alchemy-main`,
		Args:                  exactly(1, "the name of a budget is needed", "alchemy-main"),
		RunE:                  func(cmd *cobra.Command, args []string) error { return flags.resumeBudget(cmd, args[0]) },
		DisableFlagsInUseLine: true,
	}
	flags.register(cmd)
	return cmd
}

func newUpstreamsResume() *cobra.Command {
	var flags adminFlags
	cmd := &cobra.Command{
		Use:   "resume ROUTE ALIAS [flags]",
		Short: "Let an endpoint be tried again that is out of use",
		Long: `Let an endpoint be tried again that is out of use, whatever the reason: the endpoint, its account and its
provider get one call at a time, and one more after each success. If it refuses or fails again, it is out
of use again. One that is on another chain, or behind, is probed first. Other daemons do not follow. The
daemon's log says who did it.` + adminHelp,
		Example:               `  weir upstreams resume ethereum alchemy-1`,
		Args:                  exactly(2, "a route and the alias of an upstream are needed", "ethereum alchemy-1"),
		RunE:                  func(cmd *cobra.Command, args []string) error { return flags.resumeUpstream(cmd, args[0], args[1]) },
		DisableFlagsInUseLine: true,
	}
	flags.register(cmd)
	return cmd
}

// exactly requires n arguments that are not empty.
func exactly(n int, needed, example string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		ok := len(args) == n
		for _, arg := range args {
			ok = ok && arg != ""
		}
		if !ok {
			return misused(cmd, fmt.Sprintf("%s, such as '%s %s'", needed, cmd.CommandPath(), example))
		}
		return nil
	}
}

func (f *adminFlags) resumeBudget(cmd *cobra.Command, name string) error {
	var a struct {
		CooldownMs int64 `json:"cooldown_ms"`
	}
	explain := func(ctx context.Context, c *adminClient, err error) error { return c.nameBudgets(ctx, name, err) }
	if err := f.resume(cmd, "budgets/"+url.PathEscape(name), explain, &a); err != nil || f.json {
		return err
	}
	if a.CooldownMs == 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "%s had no cooldown; the routes of the daemon try it again\n", visible(name))
		return nil
	}
	fmt.Fprintf(cmd.OutOrStdout(), "ended the cooldown of %s, which would have lasted for another %s\n", visible(name), millis(a.CooldownMs))
	return nil
}

func (f *adminFlags) resumeUpstream(cmd *cobra.Command, route, alias string) error {
	var a struct {
		Health     string `json:"health"`
		Reason     string `json:"reason"`
		CooldownMs int64  `json:"cooldown_ms"`
	}
	path := "upstreams/" + url.PathEscape(route) + "/" + url.PathEscape(alias)
	explain := func(_ context.Context, _ *adminClient, err error) error { return err }
	if err := f.resume(cmd, path, explain, &a); err != nil || f.json {
		return err
	}
	out, name := cmd.OutOrStdout(), visible(alias)+" of "+visible(route)
	switch {
	case a.Health == "ok":
		fmt.Fprintf(out, "%s was in use already\n", name)
	case a.CooldownMs > 0:
		fmt.Fprintf(out, "%s is tried again; it would have been %s for another %s: %s\n", name, visible(a.Health), millis(a.CooldownMs), visible(a.Reason))
	default:
		fmt.Fprintf(out, "%s is tried again; it was %s: %s\n", name, visible(a.Health), visible(a.Reason))
	}
	return nil
}

// resume has a daemon resume what a path names, and reads or prints the answer. Explain adds to an error.
func (f *adminFlags) resume(cmd *cobra.Command, path string, explain func(context.Context, *adminClient, error) error, answer any) error {
	daemon, err := f.open(cmd)
	if err != nil {
		return err
	}
	defer daemon.close()
	text, err := daemon.call(cmd.Context(), http.MethodPost, path+"/resume", nil, nil)
	switch {
	case err != nil:
		return explain(cmd.Context(), daemon, err)
	case f.json:
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	return daemon.decode(text, answer)
}
