package cli

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newOverride() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "override",
		Short: "Give a key other limits for a while",
		Long: `Give a key other limits for a while. Overrides are kept in the store that all daemons share, and
survive their restarts.` + adminHelp,
		Example: `  weir override set api alice --rate 1000 --per 1s --for 2h
  weir override list
  weir override remove api alice`,
		Args:                  knownCommand,
		RunE:                  showHelp,
		DisableFlagsInUseLine: true,
	}
	cmd.AddCommand(newOverrideSet(), newOverrideList(), newOverrideRemove())
	return cmd
}

// overrideFlags are the flags of weir override set.
type overrideFlags struct {
	adminFlags
	limit string
	rate  int64
	per   string
	burst int64
	lasts time.Duration
	until string
}

func newOverrideSet() *cobra.Command {
	var flags overrideFlags
	cmd := &cobra.Command{
		Use:   "set POLICY KEY --rate N --per PERIOD (--for DURATION | --until TIME) [flags]",
		Short: "Give a key other limits",
		Long: `Give a key other limits. KEY may be all keys with a prefix: 'partner-*'. What the key has used is
kept. It replaces an override for the same policy and key; limits that it does not name are those
of the policy.` + adminHelp,
		Example: `  weir override set api alice --rate 1000 --per 1s --for 2h
  weir override set api 'partner-*' --rate 500 --per 1s --burst 100 --until 2027-01-31T00:00:00Z
  weir override set api alice --limit daily --rate 50000 --per day --until never`,
		Args:                  policyAndKey,
		RunE:                  func(cmd *cobra.Command, args []string) error { return flags.set(cmd, args[0], args[1]) },
		DisableFlagsInUseLine: true,
	}
	flags.register(cmd)
	cmd.Flags().StringVar(&flags.limit, "limit", "", "`name` of the limit that it replaces, as in the configuration (default main, which is a limit without a name)")
	cmd.Flags().Int64Var(&flags.rate, "rate", 0, "how many `units` per period")
	cmd.Flags().StringVar(&flags.per, "per", "", "the `period`: 1s, 1m30s, day, \"month in Europe/Berlin\" …; none for concurrency")
	cmd.Flags().Int64Var(&flags.burst, "burst", 0, "how many `units` at once (default the rate)")
	cmd.Flags().DurationVar(&flags.lasts, "for", 0, "`duration` for which it holds, such as 2h")
	cmd.Flags().StringVar(&flags.until, "until", "", "or until `when`, such as 2027-01-31T00:00:00Z; \"never\" if it does not end")
	return cmd
}

// overrideBody is the body of PUT /admin/v1/keys/override.
type overrideBody struct {
	Policy string         `json:"policy"`
	Key    string         `json:"key"`
	Limits []overrideRate `json:"limits"`
	TTL    int64          `json:"ttl_s,omitempty"`
	Until  string         `json:"until,omitempty"`
}

type overrideRate struct {
	Name  string `json:"name,omitempty"`
	Rate  int64  `json:"rate"`
	Per   string `json:"per,omitempty"`
	Burst int64  `json:"burst,omitempty"`
}

func (r overrideRate) String() string {
	text := r.Name + " " + number(r.Rate)
	if r.Per != "" {
		text += " per " + r.Per
	}
	if r.Burst > 0 {
		text += ", burst " + number(r.Burst)
	}
	return text
}

// overrideAnswer is an override in an answer.
type overrideAnswer struct {
	Policy  string         `json:"policy"`
	Key     string         `json:"key"`
	Limits  []overrideRate `json:"limits"`
	Until   string         `json:"until"`
	InForce bool           `json:"in_force"`
}

func (a *overrideAnswer) limits() string {
	var list []string
	for _, l := range a.Limits {
		list = append(list, l.String())
	}
	return visible(strings.Join(list, "; "))
}

// body returns what is sent.
func (f *overrideFlags) body(cmd *cobra.Command, policy, key string) (b overrideBody, err error) {
	given := cmd.Flags().Changed
	switch {
	case !given("rate"):
		return b, misused(cmd, "--rate is missing: how many units per period, such as --rate 1000 --per 1s")
	case f.rate < 1:
		return b, misused(cmd, fmt.Sprintf("--rate %d: must be at least 1", f.rate))
	case given("burst") && f.burst < 1:
		return b, misused(cmd, fmt.Sprintf("--burst %d: must be at least 1", f.burst))
	case given("for") == given("until"):
		return b, misused(cmd, "one of --for and --until is needed: an override ends, unless it says --until never")
	case given("for") && f.lasts < time.Second:
		return b, misused(cmd, fmt.Sprintf("--for %v: must be at least 1s", f.lasts))
	case given("until") && f.until != "never":
		if _, err := time.Parse(time.RFC3339, f.until); err != nil {
			return b, misused(cmd, fmt.Sprintf("--until %q: must be a time such as 2027-01-31T00:00:00Z, or never", f.until))
		}
	}
	return overrideBody{
		Policy: policy, Key: key, Limits: []overrideRate{{f.limit, f.rate, f.per, f.burst}},
		TTL: int64((f.lasts + time.Second - 1) / time.Second), Until: f.until,
	}, nil
}

func (f *overrideFlags) set(cmd *cobra.Command, policy, key string) error {
	body, err := f.body(cmd, policy, key)
	if err != nil {
		return err
	}
	daemon, err := f.open(cmd)
	if err != nil {
		return err
	}
	defer daemon.close()
	text, err := daemon.call(cmd.Context(), http.MethodPut, "keys/override", nil, body)
	switch {
	case err != nil:
		return daemon.namePolicies(cmd.Context(), policy, inFlags(err))
	case f.json:
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	var a overrideAnswer
	if err := daemon.decode(text, &a); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s of %s: %s; until %s\n", visible(key), visible(policy), a.limits(), visible(a.Until))
	return nil
}

// inFlags makes the daemon's complaint about the body one about flags.
func inFlags(err error) error {
	e, ok := errors.AsType[*adminError](err)
	if !ok || e.status != http.StatusBadRequest {
		return err
	}
	words := strings.NewReplacer(`"limits[0].name"`, "--limit", `"limits[0].rate"`, "--rate", `"limits[0].per"`, "--per", `"limits[0].burst"`, "--burst",
		`"ttl_s"`, "--for", `"until"`, "--until")
	return &adminError{e.status, words.Replace(e.problem)}
}

func newOverrideList() *cobra.Command {
	var flags adminFlags
	cmd := &cobra.Command{
		Use:   "list [flags]",
		Short: "List the overrides that operators have set",
		Long:  "List the overrides that operators have set. Those of the file are in 'weir config print'." + adminHelp,
		Example: `  weir override list
  weir override list --json`,
		Args:                  noArgs,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return flags.listOverrides(cmd) },
		DisableFlagsInUseLine: true,
	}
	flags.register(cmd)
	return cmd
}

func (f *adminFlags) listOverrides(cmd *cobra.Command) error {
	daemon, err := f.open(cmd)
	if err != nil {
		return err
	}
	defer daemon.close()
	var a struct {
		Overrides []overrideAnswer `json:"overrides"`
	}
	text, err := daemon.get(cmd.Context(), "overrides", nil, &a)
	switch {
	case err != nil:
		return err
	case f.json:
		_, err = cmd.OutOrStdout().Write(text)
		return err
	case len(a.Overrides) == 0:
		fmt.Fprintln(cmd.OutOrStdout(), "no operator has set an override")
		return nil
	}
	rows := [][]string{{"POLICY", "KEY", "LIMITS", "UNTIL", "IN FORCE"}}
	for _, o := range a.Overrides {
		inForce := "yes"
		if !o.InForce {
			inForce = "no: it does not fit the policy"
		}
		rows = append(rows, []string{o.Policy, o.Key, o.limits(), o.Until, inForce})
	}
	table(cmd.OutOrStdout(), rows)
	return nil
}

func newOverrideRemove() *cobra.Command {
	var flags adminFlags
	cmd := &cobra.Command{
		Use:   "remove POLICY KEY [flags]",
		Short: "Remove an override that an operator has set",
		Long:  "Remove an override that an operator has set. Those of the file stay." + adminHelp,
		Example: `  weir override remove api alice
  weir override remove api 'partner-*'`,
		Args:                  policyAndKey,
		RunE:                  func(cmd *cobra.Command, args []string) error { return flags.removeOverride(cmd, args[0], args[1]) },
		DisableFlagsInUseLine: true,
	}
	flags.register(cmd)
	return cmd
}

func (f *adminFlags) removeOverride(cmd *cobra.Command, policy, key string) error {
	daemon, err := f.open(cmd)
	if err != nil {
		return err
	}
	defer daemon.close()
	text, err := daemon.call(cmd.Context(), http.MethodDelete, "keys/override", url.Values{"policy": {policy}, "key": {key}}, nil)
	switch {
	case err != nil:
		return daemon.namePolicies(cmd.Context(), policy, err)
	case f.json:
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "removed the override of %s for %s\n", visible(key), visible(policy))
	return nil
}
