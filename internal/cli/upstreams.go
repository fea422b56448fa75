package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/upstream"
)

func newUpstreams() *cobra.Command {
	var flags adminFlags
	cmd := &cobra.Command{
		Use:   "upstreams [ROUTE] [flags]",
		Short: "Show the endpoints of the gateway's routes",
		Long: `Show the endpoints of the gateway's routes: which are in use and which are left alone, why and for how long;
how fast they are, and how often they were at their limits. QPS and QPM are of the last five seconds and of the
last minute. All figures are those of one daemon since its start, but for what is used of budgets, which is that of
all daemons on the same store. With a route, it shows that one and how long its requests wait. It changes nothing.` + adminHelp,
		Example: `  weir upstreams
  weir upstreams ethereum
  weir upstreams resume ethereum alchemy-1    try an endpoint again that is out of use
  weir upstreams --json`,
		Args:                  oneRoute,
		RunE:                  func(cmd *cobra.Command, args []string) error { return flags.upstreams(cmd, args) },
		DisableFlagsInUseLine: true,
	}
	cmd.SetUsageTemplate(cmd.UsageTemplate()) // cobra's: the one of weir leaves out how to call it without a command
	flags.register(cmd)
	cmd.AddCommand(newUpstreamsResume())
	return cmd
}

// oneRoute requires at most one argument, the name of a route.
func oneRoute(cmd *cobra.Command, args []string) error {
	if len(args) > 1 || len(args) == 1 && args[0] == "" {
		return misused(cmd, fmt.Sprintf("at most one name of a route is needed, such as '%s ethereum'", cmd.CommandPath()))
	}
	return nil
}

// upstreamsAnswer is the answer of GET /admin/v1/upstreams.
type upstreamsAnswer struct {
	Routes  []upstream.Stats `json:"routes"`
	Budgets []budgetAnswer   `json:"budgets"`
}

func (f *adminFlags) upstreams(cmd *cobra.Command, args []string) error {
	daemon, err := f.open(cmd)
	if err != nil {
		return err
	}
	defer daemon.close()
	path := "upstreams"
	if len(args) == 1 {
		path += "/" + url.PathEscape(args[0])
	}
	var answer upstreamsAnswer
	text, err := daemon.get(cmd.Context(), path, nil, &answer)
	if err != nil && len(args) == 1 {
		err = daemon.nameRoutes(cmd.Context(), args[0], err)
	}
	switch {
	case err != nil:
		return err
	case f.json:
		_, err = cmd.OutOrStdout().Write(text)
		return err
	case len(answer.Routes) == 0:
		fmt.Fprintln(cmd.OutOrStdout(), "the daemon has no routes; a section routes: of its configuration makes some")
		return nil
	}
	answer.print(cmd.OutOrStdout(), len(args) == 1)
	return nil
}

// nameRoutes adds the routes there are to an error about one that there is not.
func (c *adminClient) nameRoutes(ctx context.Context, name string, err error) error {
	if e, ok := errors.AsType[*adminError](err); !ok || e.status != http.StatusNotFound {
		return err
	}
	var answer upstreamsAnswer
	if _, other := c.get(ctx, "upstreams", nil, &answer); other != nil {
		return err
	}
	var names []string
	for _, r := range answer.Routes {
		names = append(names, visible(r.Pool))
	}
	if len(names) == 0 {
		return fmt.Errorf("no route is called %q; the daemon has none", name)
	}
	return fmt.Errorf("no route is called %q; there are: %s", name, strings.Join(names, ", "))
}

// print prints the endpoints and what was done with requests, and more about a route that was asked for.
func (a *upstreamsAnswer) print(w io.Writer, more bool) {
	rows := [][]string{{"ROUTE", "UPSTREAM", "HEALTH", "LATENCY", "QPS", "QPM", "LIMIT", "SKIPPED", "COOLDOWN", "BUDGET", "USED"}}
	for i := range a.Routes {
		r := &a.Routes[i]
		for j := range r.Endpoints {
			rows = append(rows, append([]string{r.Pool}, a.row(&r.Endpoints[j])...))
		}
	}
	table(w, rows)
	fmt.Fprintln(w)
	for i := range a.Routes {
		r := &a.Routes[i]
		fmt.Fprintf(w, "%s: %s\n", visible(r.Pool), requestsOf(r))
		if more {
			q := &r.QueueTime
			fmt.Fprintf(w, "queue time: mean %s, 50%% %s, 95%% %s, 99%% %s\n\n", ms(q.MeanMs), ms(q.P50Ms), ms(q.P95Ms), ms(q.P99Ms))
			printCalls(w, r.Endpoints)
		}
	}
}

// row returns the cells about an endpoint.
func (a *upstreamsAnswer) row(e *upstream.EndpointStats) []string {
	health, cooldown := e.Health, "-"
	if !e.Selectable {
		health += " (not selectable)"
	}
	switch {
	case e.CooldownMs < 0:
		cooldown = "until a probe succeeds: " + e.Reason
	case e.CooldownMs > 0:
		cooldown = millis(e.CooldownMs) + ": " + e.Reason
	case e.Health == "recovering":
		cooldown = "recovering: " + e.Reason
	case e.Reason != "":
		cooldown = e.Reason
	}
	return []string{
		e.Alias, health, ms(e.LatencyMs), strconv.FormatFloat(e.QPS, 'f', 1, 64), upstream.Short(e.QPM), cmp.Or(e.Limit, "-"),
		strconv.FormatFloat(e.SkippedPercent, 'f', 1, 64) + "%", cooldown, cmp.Or(e.Budget, "-"), a.used(e.Budget),
	}
}

// used returns what is used of a budget: of the limit of which the greatest part is used.
func (a *upstreamsAnswer) used(name string) string {
	i := slices.IndexFunc(a.Budgets, func(b budgetAnswer) bool { return b.Account == name })
	if name == "" || i < 0 {
		return "-"
	}
	if a.Budgets[i].Error != "" {
		return "unknown"
	}
	most, limit := -1.0, ""
	for _, h := range a.Budgets[i].Horizons {
		if part := float64(h.Used) / float64(max(1, h.Capacity)); part > most && !h.Soft {
			most, limit = part, h.Limit
		}
	}
	if limit == "" {
		return "-"
	}
	return percent(most) + "% of " + limit
}

// requestsOf returns what became of the requests of a route.
func requestsOf(r *upstream.Stats) string {
	requests := "requests"
	if r.Requests == 1 {
		requests = "request"
	}
	list := []string{fmt.Sprintf("%s, %s %s", visible(r.Strategy), upstream.Short(r.Requests), requests)}
	for _, n := range []struct {
		count int64
		what  string
	}{
		{int64(r.Waiting), "waiting now"},
		{r.Waited, "had to wait"},
		{r.Limited, "refused because of limits"},
		{r.Failed, "failed"},
		{r.Retries, "sent again"},
		{r.Cancelled, "cancelled"},
	} {
		if n.count > 0 {
			list = append(list, upstream.Short(n.count)+" "+n.what)
		}
	}
	return strings.Join(list, ", ")
}

// printCalls prints the calls of each endpoint.
func printCalls(w io.Writer, list []upstream.EndpointStats) {
	rows := [][]string{{"UPSTREAM", "PROVIDER", "PRIORITY", "HEAD", "SENT", "WAITED", "SKIPPED", "UNSENT", "PROBES", "IN FLIGHT", "95%", "99%", "FAILED"}}
	for i := range list {
		e := &list[i]
		head := "-"
		if e.Head > 0 {
			head = strconv.FormatUint(e.Head, 10)
		}
		rows = append(rows, []string{
			e.Alias, e.Provider, strconv.Itoa(e.Priority), head, number(e.Sent), number(e.Waited), number(e.Skipped), number(e.Unsent), number(e.Probes),
			number(e.InFlight), ms(e.Latency.P95Ms), ms(e.Latency.P99Ms), counted(e.Failures),
		})
	}
	table(w, rows)
}

// ms returns milliseconds as text, "-" if there are none.
func ms(n float64) string {
	if n <= 0 {
		return "-"
	}
	return strconv.FormatFloat(n, 'f', 1, 64) + "ms"
}
