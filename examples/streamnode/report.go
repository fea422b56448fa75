package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/weirlimit/weir/guard"
)

// report writes what happened.
func (s *scenario) report(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintln(w, "WHO\tCALLS\tREFUSED\tFLAGGED\tPENALISED\tADDRESS")
	for _, c := range s.clients {
		total := c.total()
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\n", c.name, total.ok+total.refused+total.failed, total.refused,
			s.when(c, guard.RapidFire), s.when(c, guard.Penalized), c.address())
	}
	fmt.Fprintln(w, "\nWHO\tENDPOINT\tOK\tREFUSED\tERROR")
	for _, c := range s.clients {
		for _, e := range endpoints {
			if r := c.results[e.name]; r != nil {
				fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\n", c.name, e.name, r.ok, r.refused, r.failed)
			}
		}
	}
	reportRefusal(w, s.client("collector"))
	reportRefusal(w, s.client("abuser"))
	fmt.Fprintf(w, "\nThe abuser's own event after the penalty was admitted: %v.\n", s.released)

	stats := s.guard.Stats()
	fmt.Fprintln(w, "\nWHAT THE GUARD COUNTED\tALLOWED\tDENIED\tOF THESE PENALISED")
	for _, e := range stats.Endpoints {
		if e.Allowed+e.Denied > 0 {
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\n", e.Name, e.Allowed, e.Denied, e.Penalized)
		}
	}
	fmt.Fprintf(w, "\nexempted: %d\nviolations: %v\nsubscriptions refused: %+v\n", stats.Exempted, stats.Violations, stats.Subscriptions.Refused)
	for _, o := range s.guard.Offenders(3) {
		fmt.Fprintf(w, "offender: %s, %d refusals\n", o.Subject, o.Refusals)
	}
}

// reportRefusal writes what a client gets with a refusal: the error, header fields and details.
func reportRefusal(out io.Writer, c *client) {
	if c.refusal == nil {
		return
	}
	fmt.Fprintf(out, "\nThe last refusal of the %s:\n  %v\n", c.name, c.refusal)
	for _, name := range []string{"RateLimit-Policy", "RateLimit", "Retry-After"} {
		if value := c.refusal.Meta().Get(name); value != "" {
			fmt.Fprintf(out, "  %s: %s\n", name, value)
		}
	}
	for _, detail := range c.refusal.Details() {
		if m, err := detail.Value(); err == nil {
			fmt.Fprintf(out, "  %s: %v\n", detail.Type(), m)
		}
	}
}

// when returns when violations of a kind were reported.
func (s *scenario) when(c *client, kind guard.Kind) string {
	list := s.reported(c, kind)
	if len(list) == 0 {
		return "-"
	}
	since := func(t time.Time) time.Duration { return t.Sub(s.begin).Round(100 * time.Millisecond) }
	if kind == guard.Penalized {
		return fmt.Sprintf("%d×, %v to %v", len(list), since(list[0].At), since(list[0].Until))
	}
	return fmt.Sprintf("%d×, first at %v", len(list), since(list[0].At))
}

// total returns the counts of all endpoints.
func (c *client) total() (sum result) {
	for _, r := range c.results {
		sum.ok, sum.refused, sum.failed = sum.ok+r.ok, sum.refused+r.refused, sum.failed+r.failed
	}
	return sum
}
