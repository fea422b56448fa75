package cli

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

func newKeys() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Look at what a key has used, and reset it",
		Long:  "Look at what a key has used, and reset it." + adminHelp,
		Example: `  weir keys get api alice
  weir keys reset api alice --by ip=192.0.2.1`,
		Args:                  knownCommand,
		RunE:                  showHelp,
		DisableFlagsInUseLine: true,
	}
	cmd.AddCommand(newKeysGet(), newKeysReset())
	return cmd
}

// keyFlags are the flags of commands about a key of a policy.
type keyFlags struct {
	adminFlags
	by    []string
	class string
}

func (f *keyFlags) register(cmd *cobra.Command) {
	f.adminFlags.register(cmd)
	cmd.Flags().StringArrayVar(&f.by, "by", nil, "`attribute` that limits are by, such as ip=192.0.2.1; may be given again")
}

// policyAndKey requires the two arguments of a command about a key.
func policyAndKey(cmd *cobra.Command, args []string) error {
	if len(args) != 2 {
		return misused(cmd, fmt.Sprintf("a policy and a key are needed, such as '%s default alice'", cmd.CommandPath()))
	}
	return nil
}

func newKeysGet() *cobra.Command {
	var flags keyFlags
	cmd := &cobra.Command{
		Use:   "get POLICY KEY [flags]",
		Short: "Show what a key has left, and which override applies to it",
		Long:  "Show what a key has left, and which override applies to it. It charges nothing." + adminHelp,
		Example: `  weir keys get default alice
  weir keys get api alice --by ip=192.0.2.1
  weir keys get jobs nightly --class backfill
  weir keys get api alice --json
  weir keys get api alice --admin https://weir.internal:9090 --ca ca.pem --token-file secrets/ops`,
		Args:                  policyAndKey,
		RunE:                  func(cmd *cobra.Command, args []string) error { return flags.get(cmd, args[0], args[1]) },
		DisableFlagsInUseLine: true,
	}
	flags.register(cmd)
	cmd.Flags().StringVar(&flags.class, "class", "", "`class` of work, under a policy with classes (default the one with the least share)")
	return cmd
}

// keyAnswer is the answer of GET /admin/v1/keys.
type keyAnswer struct {
	Policy   string `json:"policy"`
	Key      string `json:"key"`
	Class    string `json:"class"`
	Rollout  string `json:"rollout"`
	Enforced bool   `json:"enforced"`
	Override *struct {
		Key    string `json:"key"`
		Until  string `json:"until"`
		Source string `json:"source"`
	} `json:"override"`
	Limits []struct {
		Limit        string `json:"limit"`
		Key          string `json:"key"`
		Unit         string `json:"unit"`
		Mode         string `json:"mode"`
		Capacity     int64  `json:"capacity"`
		Remaining    int64  `json:"remaining"`
		ResetAfterMs int64  `json:"reset_after_ms"`
	} `json:"limits"`
	Missing []string `json:"missing"`
}

func (f *keyFlags) get(cmd *cobra.Command, policy, key string) error {
	attributes, err := parseBy(cmd, f.by)
	if err != nil {
		return err
	}
	query := url.Values{"policy": {policy}, "key": {key}}
	for name, value := range attributes {
		query.Set("keys."+name, value)
	}
	if f.class != "" {
		query.Set("class", f.class)
	}
	daemon, err := f.open(cmd)
	if err != nil {
		return err
	}
	defer daemon.close()
	var a keyAnswer
	text, err := daemon.get(cmd.Context(), "keys", query, &a)
	switch {
	case err != nil:
		return daemon.namePolicies(cmd.Context(), policy, err)
	case f.json:
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	a.print(cmd)
	return nil
}

func (a *keyAnswer) print(cmd *cobra.Command) {
	out := cmd.OutOrStdout()
	rows := [][]string{{"LIMIT", "KEY", "REMAINING", "OF", "UNIT", "RESET AFTER", "MODE"}}
	for _, l := range a.Limits {
		rows = append(rows, []string{l.Limit, named(l.Key), number(l.Remaining), number(l.Capacity), l.Unit, millis(l.ResetAfterMs), l.Mode})
	}
	table(out, rows)
	if a.Class != "" {
		fmt.Fprintf(out, "for the class %s\n", visible(a.Class))
	}
	if o := a.Override; o != nil {
		fmt.Fprintf(out, "override of %s, until %s (%s)\n", visible(o.Key), visible(o.Until), visible(o.Source))
	}
	if !a.Enforced && a.Rollout == "100%" {
		fmt.Fprintln(out, "not enforced: all limits are in shadow")
	} else if !a.Enforced {
		fmt.Fprintf(out, "not enforced for this key: the rollout is %s\n", visible(a.Rollout))
	}
	for _, name := range a.Missing {
		fmt.Fprintf(out, "limits by %s are left out; add --by %s=VALUE\n", visible(name), visible(name))
	}
}

func newKeysReset() *cobra.Command {
	var flags keyFlags
	cmd := &cobra.Command{
		Use:   "reset POLICY KEY [flags]",
		Short: "Forget what a key has used",
		Long: `Forget what a key has used. Open reservations stay. If the policy has limits by attributes, --by
must give them: they are reset as well. The daemon's log says who did it.` + adminHelp,
		Example: `  weir keys reset default alice
  weir keys reset api alice --by ip=192.0.2.1`,
		Args:                  policyAndKey,
		RunE:                  func(cmd *cobra.Command, args []string) error { return flags.reset(cmd, args[0], args[1]) },
		DisableFlagsInUseLine: true,
	}
	flags.register(cmd)
	return cmd
}

func (f *keyFlags) reset(cmd *cobra.Command, policy, key string) error {
	attributes, err := parseBy(cmd, f.by)
	if err != nil {
		return err
	}
	daemon, err := f.open(cmd)
	if err != nil {
		return err
	}
	defer daemon.close()
	body := struct {
		Policy string            `json:"policy"`
		Key    string            `json:"key"`
		Keys   map[string]string `json:"keys,omitempty"`
	}{policy, key, attributes}
	text, err := daemon.call(cmd.Context(), http.MethodPost, "keys/reset", nil, body)
	switch {
	case err != nil:
		return daemon.namePolicies(cmd.Context(), policy, err)
	case f.json:
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	var a struct {
		Reset []string `json:"reset"`
	}
	if err := daemon.decode(text, &a); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "reset %s: %s\n", named(key), visible(strings.Join(a.Reset, ", ")))
	return nil
}
