package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// guardFlags are the flags of weir guard and its commands. Each has some of them.
type guardFlags struct {
	adminFlags
	top    int
	plan   string
	method string
	path   string
}

func newGuard() *cobra.Command {
	var flags guardFlags
	cmd := &cobra.Command{
		Use:   "guard [flags]",
		Short: "See whom the guard refuses, and pardon subjects",
		Long: `See what the guard of a daemon does: decisions by endpoint, violations by kind, and the subjects
that were refused most lately. The counts are those of one daemon since its start.` + adminHelp,
		Example: `  weir guard
  weir guard --top 5
  weir guard subject user:alice       what it may do, and its penalty
  weir guard pardon user:alice        end the penalty
  weir guard suggest                  bursts that were needed, for the configuration`,
		Args:                  knownCommand,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return flags.show(cmd) },
		DisableFlagsInUseLine: true,
	}
	cmd.SetUsageTemplate(cmd.UsageTemplate()) // cobra's: the one of weir leaves out how to call it without a command
	flags.register(cmd)
	cmd.Flags().IntVar(&flags.top, "top", 20, "how `many` subjects are listed, at most 100")
	cmd.AddCommand(newGuardSubject(), newGuardPardon(), newGuardSuggest())
	return cmd
}

// guardAnswer is the answer of GET /admin/v1/guard.
type guardAnswer struct {
	InFlight   int64            `json:"in_flight"`
	Subjects   int64            `json:"subjects"`
	Exempted   int64            `json:"exempted"`
	Unsettled  int64            `json:"unsettled"`
	Refused    map[string]int64 `json:"refused"`
	Violations map[string]struct {
		Enforced int64 `json:"enforced"`
		Shadow   int64 `json:"shadow"`
	} `json:"violations"`
	Endpoints []struct {
		Name         string `json:"name"`
		Allowed      int64  `json:"allowed"`
		Denied       int64  `json:"denied"`
		ShadowDenied int64  `json:"shadow_denied"`
		Penalized    int64  `json:"penalized"`
	} `json:"endpoints"`
	Subscriptions struct {
		Open   int64            `json:"open"`
		Items  int64            `json:"items"`
		Denied map[string]int64 `json:"denied"`
	} `json:"subscriptions"`
	Offenders []struct {
		Subject  string `json:"subject"`
		Refusals int64  `json:"refusals"`
	} `json:"offenders"`
}

func (f *guardFlags) show(cmd *cobra.Command) error {
	if f.top < 0 || f.top > 100 {
		return misused(cmd, fmt.Sprintf("--top %d: must be between 0 and 100", f.top))
	}
	daemon, err := f.open(cmd)
	if err != nil {
		return err
	}
	defer daemon.close()
	var a guardAnswer
	text, err := daemon.get(cmd.Context(), "guard", url.Values{"top": {fmt.Sprint(f.top)}}, &a)
	switch {
	case err != nil:
		return err
	case f.json:
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	a.print(cmd.OutOrStdout())
	return nil
}

func (a *guardAnswer) print(w io.Writer) {
	rows := [][]string{{"ENDPOINT", "ALLOWED", "DENIED", "SHADOW DENIED", "PENALIZED"}}
	for _, e := range a.Endpoints {
		rows = append(rows, []string{e.Name, number(e.Allowed), number(e.Denied), number(e.ShadowDenied), number(e.Penalized)})
	}
	table(w, rows)

	rows = [][]string{{"VIOLATION", "ENFORCED", "SHADOW"}}
	for _, kind := range slices.Sorted(maps.Keys(a.Violations)) {
		rows = append(rows, []string{kind, number(a.Violations[kind].Enforced), number(a.Violations[kind].Shadow)})
	}
	fmt.Fprintln(w)
	table(w, rows)

	if len(a.Offenders) > 0 {
		rows = [][]string{{"REFUSED MOST", "REFUSALS"}}
		for _, o := range a.Offenders {
			rows = append(rows, []string{o.Subject, number(o.Refusals)})
		}
		fmt.Fprintln(w)
		table(w, rows)
	}
	fmt.Fprintf(w, "\nrequests: %d in flight, %d exempted, %d unsettled; refused by other causes: %s\n", a.InFlight, a.Exempted, a.Unsettled, counted(a.Refused))
	fmt.Fprintf(w, "subscriptions: %d open with %d items; denied: %s\n", a.Subscriptions.Open, a.Subscriptions.Items, counted(a.Subscriptions.Denied))
}

// counted returns counts by name as text.
func counted(counts map[string]int64) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, visible(name)+" "+number(counts[name]))
	}
	return cmp.Or(strings.Join(list, ", "), "none")
}

// oneSubject requires the argument of a command about a subject.
func oneSubject(cmd *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return misused(cmd, fmt.Sprintf("a subject is needed, such as '%s user:alice'", cmd.CommandPath()))
	}
	return nil
}

// hintKind tells how subjects are written, if one looks as if it lacked its kind.
func hintKind(cmd *cobra.Command, subject string) {
	if !strings.Contains(subject, ":") && subject != "unknown" {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: subjects have a kind, such as user:%s, key:%[1]s or ip:192.0.2.1\n", visible(subject))
	}
}

func newGuardSubject() *cobra.Command {
	var flags guardFlags
	cmd := &cobra.Command{
		Use:   "subject SUBJECT [flags]",
		Short: "Show what a subject has left at each endpoint, and its penalty",
		Long: `Show what a subject has left at each endpoint, and its penalty. It charges nothing. A subject has a
kind and a name: user:alice, key:mobile-app, cert:spiffe://example.org/billing or ip:192.0.2.1.` + adminHelp,
		Example: `  weir guard subject user:alice
  weir guard subject user:alice --plan pro
  weir guard subject ip:192.0.2.1 --method POST --path /v1/users`,
		Args:                  oneSubject,
		RunE:                  func(cmd *cobra.Command, args []string) error { return flags.subject(cmd, args[0]) },
		DisableFlagsInUseLine: true,
	}
	flags.register(cmd)
	cmd.Flags().StringVar(&flags.plan, "plan", "", "the subject's `plan`, which its name does not say")
	cmd.Flags().StringVar(&flags.path, "path", "", "only the endpoint of this `path` or procedure")
	cmd.Flags().StringVar(&flags.method, "method", "", "the HTTP `method` of --path")
	return cmd
}

func (f *guardFlags) subject(cmd *cobra.Command, subject string) error {
	if f.method != "" && f.path == "" {
		return misused(cmd, "--method is about --path, which is missing")
	}
	query := url.Values{"subject": {subject}}
	for name, value := range map[string]string{"plan": f.plan, "method": f.method, "path": f.path} {
		if value != "" {
			query.Set(name, value)
		}
	}
	daemon, err := f.open(cmd)
	if err != nil {
		return err
	}
	defer daemon.close()
	var a struct {
		PenaltyUntil string `json:"penalty_until"`
		Quotas       []struct {
			Endpoint     string `json:"endpoint"`
			Limit        string `json:"limit"`
			Capacity     int64  `json:"capacity"`
			Remaining    int64  `json:"remaining"`
			ResetAfterMs int64  `json:"reset_after_ms"`
			Hidden       bool   `json:"hidden"`
			Shadow       bool   `json:"shadow"`
		} `json:"quotas"`
	}
	text, err := daemon.get(cmd.Context(), "guard/subject", query, &a)
	switch {
	case err != nil:
		return err
	case f.json:
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	hintKind(cmd, subject)
	out := cmd.OutOrStdout()
	if a.PenaltyUntil == "" {
		fmt.Fprintf(out, "%s has no penalty\n", visible(subject))
	} else {
		fmt.Fprintf(out, "%s has a penalty until %s\n", visible(subject), visible(a.PenaltyUntil))
	}
	if len(a.Quotas) == 0 {
		fmt.Fprintln(out, "no limit of the subject applies")
		return nil
	}
	rows := [][]string{{"ENDPOINT", "LIMIT", "REMAINING", "OF", "RESET AFTER", "MODE", "CLIENTS SEE IT"}}
	for _, q := range a.Quotas {
		mode, shown := "enforce", "yes"
		if q.Shadow {
			mode = "shadow"
		}
		if q.Hidden {
			shown = "no"
		}
		rows = append(rows, []string{q.Endpoint, q.Limit, number(q.Remaining), number(q.Capacity), millis(q.ResetAfterMs), mode, shown})
	}
	table(out, rows)
	note := "limits by other attributes, such as ip, are left out"
	if f.plan == "" {
		note += "; these are the limits without a plan, see --plan"
	}
	fmt.Fprintln(out, "("+note+")")
	return nil
}

func newGuardPardon() *cobra.Command {
	var flags adminFlags
	cmd := &cobra.Command{
		Use:   "pardon SUBJECT [flags]",
		Short: "End the penalty of a subject",
		Long: `End the penalty of a subject, and forget the violations that led to it. What it has used is not
reset. Other daemons on the same store follow within a second. The daemon's log says who did it.` + adminHelp,
		Example:               `  weir guard pardon user:alice`,
		Args:                  oneSubject,
		RunE:                  func(cmd *cobra.Command, args []string) error { return flags.pardon(cmd, args[0]) },
		DisableFlagsInUseLine: true,
	}
	flags.register(cmd)
	return cmd
}

func (f *adminFlags) pardon(cmd *cobra.Command, subject string) error {
	daemon, err := f.open(cmd)
	if err != nil {
		return err
	}
	defer daemon.close()
	text, err := daemon.call(cmd.Context(), http.MethodPost, "guard/pardon", nil, map[string]string{"subject": subject})
	switch {
	case err != nil:
		return err
	case f.json:
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	var a struct {
		PenaltyUntil string `json:"penalty_until"`
	}
	if err := daemon.decode(text, &a); err != nil {
		return err
	}
	hintKind(cmd, subject)
	if a.PenaltyUntil == "" {
		fmt.Fprintf(cmd.OutOrStdout(), "%s had no penalty; its violations are forgotten\n", visible(subject))
		return nil
	}
	fmt.Fprintf(cmd.OutOrStdout(), "pardoned %s, whose penalty would have ended at %s\n", visible(subject), visible(a.PenaltyUntil))
	return nil
}

func newGuardSuggest() *cobra.Command {
	var flags adminFlags
	cmd := &cobra.Command{
		Use:   "suggest [flags]",
		Short: "Suggest bursts from what was measured",
		Long: `Suggest bursts from what was measured, and print them as lines for the configuration, after a comment
that says which bursts were needed. A daemon measures with 'measure: true' in its section guard:.
Measure in shadow mode, over a time with all the usual bursts, such as starts of applications: callers
who are refused behave differently. Counts are those of one daemon.

The suggestion is the burst that 99 % of the requests needed, but at most ten times what the limit
allows now.` + adminHelp,
		Example: `  weir guard suggest
  weir guard suggest --json`,
		Args:                  noArgs,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return flags.suggest(cmd) },
		DisableFlagsInUseLine: true,
	}
	flags.register(cmd)
	return cmd
}

// suggestion is the burst that an endpoint's callers needed.
type suggestion struct {
	Endpoint  string `json:"endpoint"`
	Pattern   string `json:"pattern"`
	Limit     string `json:"limit"`
	Rate      int64  `json:"rate"`
	Per       string `json:"per"`
	Burst     int64  `json:"burst"`
	Requests  int64  `json:"requests"`
	Refused   int64  `json:"refused"`
	Needed50  int64  `json:"needed_50"`
	Needed99  int64  `json:"needed_99"`
	NeededMax int64  `json:"needed_max"`
	Beyond    int64  `json:"beyond"`
	Suggested int64  `json:"suggested"`
}

func (f *adminFlags) suggest(cmd *cobra.Command) error {
	daemon, err := f.open(cmd)
	if err != nil {
		return err
	}
	defer daemon.close()
	var raw struct {
		Suggestions json.RawMessage `json:"suggestions"`
	}
	if _, err := daemon.get(cmd.Context(), "guard", url.Values{"top": {"0"}}, &raw); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if f.json {
		fmt.Fprintf(out, "{\"suggestions\":%s}\n", raw.Suggestions)
		return nil
	}
	var list []suggestion
	if err := daemon.decode(raw.Suggestions, &list); err != nil {
		return err
	}
	if len(list) == 0 {
		fmt.Fprintln(out, "# Nothing is measured; set 'measure: true' in the section guard: of the configuration.")
		return nil
	}
	printSuggestions(out, list)
	return nil
}

// printSuggestions prints a table, as a comment, and lines for a configuration. All of it is YAML.
func printSuggestions(w io.Writer, list []suggestion) {
	rows := [][]string{{"ENDPOINT", "LIMIT", "RATE", "BURST", "REQUESTS", "REFUSED", "50% NEEDED", "99% NEEDED", "ALL NEEDED", "SUGGESTED"}}
	for _, s := range list {
		all := number(s.NeededMax)
		if s.Beyond > 0 {
			all = "more than " + all
		}
		rows = append(rows, []string{
			s.Endpoint, s.Limit, number(s.Rate) + "/" + period(s.Per), number(s.Burst), number(s.Requests), number(s.Refused),
			number(s.Needed50), number(s.Needed99), all, number(s.Suggested),
		})
	}
	var text strings.Builder
	table(&text, rows)
	for line := range strings.Lines(text.String()) {
		fmt.Fprint(w, "# ", line)
	}
	changed := slices.DeleteFunc(slices.Clone(list), func(s suggestion) bool { return s.Requests == 0 || s.Suggested == s.Burst })
	if len(changed) == 0 {
		fmt.Fprintln(w, "#\n# The bursts are right for the requests so far.")
		return
	}
	fmt.Fprintln(w, "#\n# Bursts for the configuration. Keep what else these endpoints have.\nguard:")
	isDefault := func(s suggestion) bool { return s.Pattern == "" }
	for _, s := range changed {
		if isDefault(s) {
			fmt.Fprintf(w, "  default: %s\n", s.yaml())
		}
	}
	changed = slices.DeleteFunc(changed, isDefault)
	if len(changed) > 0 {
		fmt.Fprintln(w, "  endpoints:")
	}
	for _, s := range changed {
		fmt.Fprintf(w, "    %s: %s\n", quoted(s.Pattern), s.yaml())
	}
}

// yaml returns the endpoint's value in a configuration.
func (s *suggestion) yaml() string {
	name, note := "", ""
	if s.Limit != "main" {
		name = "name: " + quoted(s.Limit) + ", "
	}
	if now := max(s.Rate, s.Burst); s.Needed50/10 >= now {
		note = " # half of the requests needed ten times what is allowed now: raise the rate instead"
	}
	return fmt.Sprintf("{limits: [{%srate: %d, per: %s, burst: %d}]}%s", name, s.Rate, visible(period(s.Per)), s.Suggested, note)
}

// quoted returns a text as YAML and JSON have it in quotes.
func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil { // strings always marshal
		panic(err)
	}
	return string(b)
}

// period returns a duration without zeros at its end: 1m for 1m0s.
func period(text string) string {
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
