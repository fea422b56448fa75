package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/budget"
)

func newBudgets() *cobra.Command {
	var flags adminFlags
	cmd := &cobra.Command{
		Use:   "budgets [NAME] [flags]",
		Short: "Show what is used of the budgets of providers",
		Long: `Show what is used of the budgets of accounts with providers: by limit and class, and when a month's
budget will be used up if it goes on like that. What is used is that of all daemons on the same store;
levels, calls and drift are those of one daemon since its start. With a name, it shows more of that
budget. It charges nothing.` + adminHelp,
		Example: `  weir budgets
  weir budgets alchemy-main
  weir budgets resume alchemy-main    end a cooldown
  weir budgets --json`,
		Args:                  oneBudget,
		RunE:                  func(cmd *cobra.Command, args []string) error { return flags.budgets(cmd, args) },
		DisableFlagsInUseLine: true,
	}
	cmd.SetUsageTemplate(cmd.UsageTemplate()) // cobra's: the one of weir leaves out how to call it without a command
	flags.register(cmd)
	cmd.AddCommand(newBudgetsResume())
	return cmd
}

// oneBudget requires at most one argument, the name of a budget.
func oneBudget(cmd *cobra.Command, args []string) error {
	if len(args) > 1 || len(args) == 1 && args[0] == "" {
		return misused(cmd, fmt.Sprintf("at most one name of a budget is needed, such as '%s alchemy-main'", cmd.CommandPath()))
	}
	return nil
}

// budgetAnswer is a budget in the answer of GET /admin/v1/budgets.
type budgetAnswer struct {
	budget.Usage
	Error string `json:"error"`
}

func (f *adminFlags) budgets(cmd *cobra.Command, args []string) error {
	daemon, err := f.open(cmd)
	if err != nil {
		return err
	}
	defer daemon.close()
	var list struct {
		Budgets []budgetAnswer `json:"budgets"`
	}
	var text []byte
	if len(args) == 0 {
		text, err = daemon.get(cmd.Context(), "budgets", nil, &list)
	} else {
		list.Budgets = make([]budgetAnswer, 1)
		text, err = daemon.get(cmd.Context(), "budgets/"+url.PathEscape(args[0]), nil, &list.Budgets[0])
		err = daemon.nameBudgets(cmd.Context(), args[0], err)
	}
	switch {
	case err != nil:
		return err
	case f.json:
		_, err = cmd.OutOrStdout().Write(text)
		return err
	case len(list.Budgets) == 0:
		fmt.Fprintln(cmd.OutOrStdout(), "the daemon has no budgets; a section budgets: of its configuration makes some")
		return nil
	}
	printBudgets(cmd.OutOrStdout(), list.Budgets)
	if len(args) == 1 {
		list.Budgets[0].printCounts(cmd.OutOrStdout())
	}
	return nil
}

// nameBudgets adds the budgets there are to an error about one that there is not.
func (c *adminClient) nameBudgets(ctx context.Context, name string, err error) error {
	if e, ok := errors.AsType[*adminError](err); !ok || e.status != http.StatusNotFound {
		return err
	}
	var list struct {
		Budgets []budgetAnswer `json:"budgets"`
	}
	if _, other := c.get(ctx, "budgets", nil, &list); other != nil {
		return err
	}
	var names []string
	for _, b := range list.Budgets {
		names = append(names, visible(b.Account))
	}
	if len(names) == 0 {
		return fmt.Errorf("no budget is called %q; the daemon has none", name)
	}
	return fmt.Errorf("no budget is called %q; there are: %s", name, strings.Join(names, ", "))
}

// printBudgets prints what is used of limits and classes, and what is unusual.
func printBudgets(w io.Writer, list []budgetAnswer) {
	limits := [][]string{{"BUDGET", "LEVEL", "LIMIT", "USED", "OF", "UNIT", "%", "RESET AFTER", "PROJECTED", "USED UP"}}
	classes := [][]string{{"BUDGET", "CLASS", "GUARANTEED", "USED", "AVAILABLE", "OF"}}
	for i := range list {
		u := &list[i]
		for j := range u.Horizons {
			limits = append(limits, append([]string{u.Account, u.Level}, horizonRow(&u.Horizons[j])...))
		}
		for _, c := range u.Classes {
			classes = append(classes, []string{u.Account, c.Class, number(c.Guaranteed), number(c.Used), number(c.Available), number(c.Capacity)})
		}
	}
	table(w, limits)
	if len(classes) > 1 {
		fmt.Fprintln(w)
		table(w, classes)
	}
	fmt.Fprintln(w)
	for i := range list {
		fmt.Fprintf(w, "%s: %s\n", visible(list[i].Account), list[i].notes())
	}
}

// horizonRow returns the cells about a limit.
func horizonRow(h *budget.HorizonUsage) []string {
	name := h.Limit
	if h.Soft {
		name += " (soft)"
	}
	projected, end := "-", "-"
	if h.Burn != nil {
		projected = number(h.Burn.Projected)
	}
	if h.Burn != nil && h.Burn.Exhausted != nil {
		end = h.Burn.Exhausted.UTC().Format(time.RFC3339)
	}
	return []string{name, number(h.Used), number(h.Capacity), h.Unit, percent(float64(h.Used) / float64(max(1, h.Capacity))), millis(h.ResetMs), projected, end}
}

// percent returns a share as text, to a tenth of a percent.
func percent(share float64) string { return strconv.FormatFloat(share*100, 'f', 1, 64) }

// notes returns what else is to be known of a budget.
func (u *budgetAnswer) notes() string {
	if u.Error != "" {
		return "level " + visible(u.Level) + "; " + visible(u.Error)
	}
	list := []string{percent(u.Utilisation) + "% used, averaged over a second"}
	if u.CooldownMs > 0 {
		list = append(list, "the provider wants no calls for "+millis(u.CooldownMs))
	}
	if u.Denied != nil {
		list = append(list, "the provider does not let the account in since "+u.Denied.Since.UTC().Format(time.RFC3339)+": "+visible(u.Denied.Reason))
	}
	if len(u.Refusals) > 0 {
		list = append(list, "refused by the provider: "+counted(u.Refusals))
	}
	if len(u.Drift) > 0 {
		list = append(list, "used by others: "+counted(u.Drift))
	}
	if u.SoftExceeded > 0 {
		list = append(list, "calls beyond soft limits: "+number(u.SoftExceeded))
	}
	if u.UnknownCalls > 0 {
		list = append(list, "calls of unknown methods: "+number(u.UnknownCalls))
	}
	return strings.Join(list, "; ")
}

// shownMethods is how many methods are printed.
const shownMethods = 20

// printCounts prints what the daemon has counted itself.
func (u *budgetAnswer) printCounts(w io.Writer) {
	if len(u.Ledgers) > 0 {
		rows := [][]string{{"UNIT", "GRANTED", "OVERRUN", "USED", "RETURNED", "EXPIRED", "OPEN"}}
		for _, unit := range slices.Sorted(maps.Keys(u.Ledgers)) {
			l := u.Ledgers[unit]
			rows = append(rows, []string{unit, number(l.Granted), number(l.Overrun), number(l.Used), number(l.Returned), number(l.Expired), number(l.Open)})
		}
		fmt.Fprintln(w)
		table(w, rows)
	}
	printMethods(w, "METHOD", u.Methods)
	printMethods(w, "UNKNOWN METHOD", u.UnknownMethods)
}

// printMethods prints the methods with the most calls.
func printMethods(w io.Writer, title string, calls map[string]int64) {
	if len(calls) == 0 {
		return
	}
	names := slices.SortedFunc(maps.Keys(calls), func(a, b string) int { return cmp.Or(cmp.Compare(calls[b], calls[a]), strings.Compare(a, b)) })
	rows := [][]string{{title, "CALLS"}}
	for _, name := range names[:min(shownMethods, len(names))] {
		rows = append(rows, []string{name, number(calls[name])})
	}
	fmt.Fprintln(w)
	table(w, rows)
	if more := len(names) - shownMethods; more > 0 {
		fmt.Fprintf(w, "(and %d more)\n", more)
	}
}
