package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/weirlimit/weir/budget"
)

// serve runs the provider until ctx ends.
func serve(ctx context.Context, o options) error {
	server, err := o.listen(o.address)
	if err != nil {
		return err
	}
	fmt.Printf("http://%s serves JSON-RPC, and /stats\n", server.Addr)
	<-ctx.Done()
	return server.Close()
}

// listen runs the provider in the background. The server's Addr is where it listens.
func (o options) listen(address string) (*http.Server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	p := newProvider(chain{o.blockTime}, throughputCosts(), o.jitter, o.seed)
	server := &http.Server{Addr: listener.Addr().String(), Handler: p, ReadHeaderTimeout: 5 * time.Second}
	go server.Serve(listener)
	return server, nil
}

// demonstrate runs the provider here and both workers in processes of their own, and writes a summary.
func demonstrate(ctx context.Context, o options) error {
	c, err := o.accountConfig(os.Environ())
	if err != nil {
		return err
	}
	_, stop, err := openLimiter(ctx, o.redis)
	if err != nil {
		return err
	}
	stop() // it was to see that Redis replies
	o.announce(os.Stdout, &c)
	workers, p, err := o.runBoth(ctx)
	if err != nil {
		return err
	}
	report(os.Stdout, workers, p)
	if err := tables(os.Stdout, o.poll); err != nil {
		return err
	}
	p.verdict(os.Stdout)
	return nil
}

// allowance is how much longer calls may be on their way than others without exceeding the limit of the provider.
const allowance = 100 * time.Millisecond

// announce writes what is about to happen.
func (o options) announce(out io.Writer, c *budget.Config) {
	quota := int64(capacity / span.Seconds())
	over, expected := "over Redis at "+o.redis, "no call is refused"
	if isOff(o.redis) {
		over = "without Redis, so that each has a budget of its own"
	}
	if isOff(o.redis) || o.jitter > allowance || c.Limits[0].Rate > quota {
		expected = "the provider refuses calls"
	}
	fmt.Fprintf(out, "For %v: a provider with %d units per second, a sync worker (urgent, %s) and a backfill worker (%s), %s. Expected: %s.\n",
		o.lasts, quota, guarantee(c, "realtime"), guarantee(c, "backfill"), over, expected)
}

// guarantee returns the guaranteed share of a class.
func guarantee(c *budget.Config, class string) string {
	for _, k := range c.Classes {
		switch {
		case k.Name == class && k.Share > 0:
			return fmt.Sprintf("%g %%", k.Share)
		case k.Name == class:
			return fmt.Sprintf("%d units per second", k.Guaranteed)
		}
	}
	return "nothing guaranteed"
}

// verdict writes whether calls were refused.
func (s stats) verdict(out io.Writer) {
	switch {
	case s.Refused > 0:
		fmt.Fprintf(out, "\nThe provider refused calls with 429: %d.\n", s.Refused)
	case s.Granted == 0:
		fmt.Fprintln(out, "\nThe provider got no calls.")
	default:
		fmt.Fprintln(out, "\nOK: no call was refused.")
	}
}

// runBoth runs a provider and both workers.
func (o options) runBoth(ctx context.Context) (workers []summary, p stats, err error) {
	server, err := o.listen("127.0.0.1:0")
	if err != nil {
		return nil, p, err
	}
	defer server.Close()
	// The new provider knows nothing of what earlier runs have used.
	account := fmt.Sprintf("demo-%x", time.Now().UnixNano())
	args := slices.Concat(o.args, []string{"-address", server.Addr, "-account", account})

	both, end := context.WithCancelCause(ctx)
	defer end(nil)
	workers = make([]summary, 2)
	var all sync.WaitGroup
	for i, command := range []string{"sync", "backfill"} {
		all.Go(func() {
			if err := runWorker(both, command, args, &workers[i]); err != nil {
				end(err) // the other one, too
			}
		})
	}
	all.Wait()
	if err := context.Cause(both); err != nil && ctx.Err() == nil {
		return nil, p, err
	}
	return workers, server.Handler.(*provider).snapshot(), nil
}

// runWorker runs a command in a process of its own and reads the summary that it writes.
func runWorker(ctx context.Context, command string, args []string, s *summary) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, slices.Concat([]string{command}, args)...)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // then it writes its summary
	text, err := cmd.Output()
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	return json.Unmarshal(text, s)
}

// report writes what the workers and the provider have counted.
func report(out io.Writer, workers []summary, p stats) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintln(w, "\nWORKER\tCALLS\tREFUSED\tWAITED\tLONGEST WAIT\tCU\tDONE")
	for _, s := range workers {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d ms\t%d\t%s\n", s.Worker, s.Calls, s.Refused, s.Waited, s.LongestMS, s.Units, s.done())
	}
	fmt.Fprintf(w, "\nPROVIDER\tCU\nadmitted\t%d\t%.1f%% of 500 per second\n", p.Granted, p.share()*100)
	fmt.Fprintf(w, "most in 10 s\t%d\tof %d\n", p.Peak, capacity)
	for _, method := range slices.Sorted(maps.Keys(p.Units)) {
		fmt.Fprintf(w, "%s\t%d\n", method, p.Units[method])
	}
	fmt.Fprintln(w)
}

// done describes the work.
func (s summary) done() string {
	if s.Worker == "backfill" {
		return fmt.Sprintf("%d ranges of %d blocks; %d pauses", s.Ranges, maxRange, s.Pauses)
	}
	count, what := s.Blocks, "block"
	if s.Batched {
		count, what = s.Polls, "poll"
	}
	each := float64(s.Units-s.Matches*perMatch(billed)) / float64(max(1, count))
	return fmt.Sprintf("%d blocks, at most %d behind the newest, %d delayed; %.1f CU per %s and %d per match (%d)",
		s.Blocks, s.Behind, s.Delayed, each, what, perMatch(billed), s.Matches)
}

// share returns which part of the quota was used between the first call and the last.
func (s stats) share() float64 {
	return float64(s.Granted) * float64(span.Milliseconds()) / float64(max(1, s.ElapsedMS)) / capacity
}
