package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/load"
	"github.com/weirlimit/weir/internal/load/measure"
	"github.com/weirlimit/weir/internal/load/target"
)

// loadFlags are the flags of weir load.
type loadFlags struct {
	rates       []string
	duration    time.Duration
	connections int
	arrivals    string
	smooth      bool
	seed        uint64
	iOwnThis    bool

	protocol    string
	method      string
	headers     []string
	body        string
	descriptors string
	timeout     time.Duration
	insecure    bool

	json  bool
	svg   string
	quiet bool

	maxP50, maxP90, maxP99, maxP999 time.Duration
	maxErrors, minRate              string
}

// The defaults of weir load.
const (
	defaultLoadFor     = 10 * time.Second
	defaultConnections = 16
	mostConnections    = 10_000
	defaultCallTimeout = 10 * time.Second
)

func newLoad() *cobra.Command {
	f := loadFlags{duration: defaultLoadFor, connections: defaultConnections, arrivals: "constant", protocol: "auto", timeout: defaultCallTimeout}
	cmd := &cobra.Command{
		Use:   "load [flags] URL [REDIS COMMAND...]",
		Short: "Call a server at a rate, and measure what its users would see",
		Long: `Call a server at a given rate, whether it keeps up or not, and measure.

What is due while all connections are busy starts late, and the time until then counts:
'response' is from when an operation was due, 'service' from when it was sent. A tool that
waits for each answer before it sends the next request shows the service time only, and
misses most of what a stall does to users.

URLs begin with http, https, grpc, grpcs, redis or rediss. Path, query, headers, body and
command may contain variables: {{seq}} the operation's number, {{cycle N}} that modulo N,
{{rand N}} and {{zipf N}} a random number below N, evenly or skewed, {{worker}}, {{uuid}}, {{time}}.

Rates are per second: 5000 or 5k; 500/10s for ten seconds, with another --rate after it;
100..5000/30s for a ramp. With 5000,1.1 late operations are caught up at 110 % of
the rate; otherwise they are sent at once.

Nothing is sent if the server does not answer, or if it is on another machine and
--i-own-this is not set. Ctrl-C ends the run and prints the report so far.`,
		Example: `  weir load --rate 5000,1.1 --for 30s --connections 64 http://127.0.0.1:8080/healthz
  weir load --rate 100..5000/30s -d '{"policy":"default","key":"user{{zipf 1000}}"}' http://127.0.0.1:8080/v1/check
  weir load --rate 2k --arrivals poisson --max-p99 50ms --max-errors 0.1% --svg load.svg http://127.0.0.1:8080/
  weir load --rate 1k --method grpc.health.v1.Health/Check grpc://127.0.0.1:8081
  weir load --rate 100 --protocol jsonrpc --method eth_blockNumber -d '[]' http://127.0.0.1:8545
  weir load --rate 10k redis://127.0.0.1:6379 -- INCR counter:{{rand 100}}`,
		Args:                  cobra.ArbitraryArgs,
		RunE:                  func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
		DisableFlagsInUseLine: true,
	}
	f.define(cmd)
	return cmd
}

func (f *loadFlags) define(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.rates, "rate", nil, "operations per second: 5000, 5k,1.1, 500/10s or 100..5000/30s; several are done one after the other")
	flags.DurationVar(&f.duration, "for", f.duration, "how long; the default is 10s, or what the rates say")
	flags.IntVar(&f.connections, "connections", f.connections, "how many operations may be under way at once")
	flags.StringVar(&f.arrivals, "arrivals", f.arrivals, "constant: evenly spaced; poisson: as random as many users")
	flags.BoolVar(&f.smooth, "smooth", false, "send on time; otherwise up to a millisecond late, which counts as waiting; takes up to half a core")
	flags.Uint64Var(&f.seed, "seed", 0, "where random variables and intervals begin")
	flags.BoolVar(&f.iOwnThis, "i-own-this", false, "the server may be on another machine, and it is yours to load")
	flags.StringVar(&f.protocol, "protocol", f.protocol, "auto, http1, http2, grpc, jsonrpc or resp")
	flags.StringVar(&f.method, "method", "", "of HTTP (GET, or POST with a body), JSON-RPC or gRPC (package.Service/Method)")
	flags.StringArrayVarP(&f.headers, "header", "H", nil, "'Name: value', in gRPC metadata; may be repeated")
	flags.StringVarP(&f.body, "body", "d", "", "body, or JSON of the gRPC request or the JSON-RPC params; @file reads it from a file")
	flags.StringVar(&f.descriptors, "descriptors", "", "`file` that describes the gRPC method (a FileDescriptorSet); the default is server reflection, and for weir and health checks none is needed")
	flags.DurationVar(&f.timeout, "timeout", f.timeout, "of one operation")
	flags.BoolVar(&f.insecure, "insecure", false, "accept any TLS certificate")
	flags.BoolVar(&f.json, "json", false, "print the report as JSON")
	flags.StringVar(&f.svg, "svg", "", "draw rate and latency over time into this `file`")
	flags.BoolVar(&f.quiet, "quiet", false, "no progress line")
	flags.DurationVar(&f.maxP50, "max-p50", 0, "exit with 1 if the response time's median is above")
	flags.DurationVar(&f.maxP90, "max-p90", 0, "the same for its 90th percentile")
	flags.DurationVar(&f.maxP99, "max-p99", 0, "for the 99th")
	flags.DurationVar(&f.maxP999, "max-p999", 0, "for the 99.9th")
	flags.StringVar(&f.maxErrors, "max-errors", "", "exit with 1 if a larger share of operations fails: 1% or 0.01")
	flags.StringVar(&f.minRate, "min-rate", "", "exit with 1 if a smaller share of the rate is achieved: 99% or 0.99")
	completeWith(cmd, "arrivals", "constant", "poisson")
	completeWith(cmd, "protocol", "auto", "http1", "http2", "grpc", "jsonrpc", "resp")
	completeWith(cmd, "rate", "100", "1k", "10k", "100..1000/30s")
}

func (f *loadFlags) run(cmd *cobra.Command, args []string) error {
	config, thresholds, err := f.config(cmd, args)
	if err != nil {
		return err
	}
	if err := f.mayLoad(cmd, config.Target); err != nil {
		return err
	}
	picture, err := f.openPicture()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal has its usual effect
	line := newProgress(cmd.ErrOrStderr(), config.For, f.quiet)
	config.Progress, config.ProgressEvery = line.show, line.every
	report, err := load.Run(ctx, config)
	line.end()
	if err != nil {
		return err
	}
	if err := f.write(cmd.OutOrStdout(), picture, report); err != nil {
		return err
	}
	if problems := thresholds.Check(report); len(problems) > 0 {
		return errors.New(strings.Join(problems, " "))
	}
	return nil
}

// config turns flags and arguments into a load, or returns what is wrong with them.
func (f *loadFlags) config(cmd *cobra.Command, args []string) (load.Config, measure.Thresholds, error) {
	refuse := func(problem string) (load.Config, measure.Thresholds, error) {
		return load.Config{}, measure.Thresholds{}, misused(cmd, problem)
	}
	if len(args) == 0 {
		return refuse("there is no URL")
	}
	if len(f.rates) == 0 {
		return refuse("there is no --rate")
	}
	schedule, err := load.ParseSchedule(f.rates)
	if err != nil {
		return refuse("--rate: " + strings.TrimPrefix(err.Error(), "rate "))
	}
	if total := schedule.For(); total > 0 && !cmd.Flags().Changed("for") {
		f.duration = total
	}
	if f.connections < 1 || f.connections > mostConnections {
		return refuse(fmt.Sprintf("--connections %d: must be between 1 and %d", f.connections, mostConnections))
	}
	if f.arrivals != "constant" && f.arrivals != "poisson" {
		return refuse(fmt.Sprintf("--arrivals %s: must be constant or poisson", f.arrivals))
	}
	thresholds, err := f.thresholds()
	if err != nil {
		return refuse(err.Error())
	}
	t, err := f.target(args)
	if err != nil {
		return refuse(err.Error())
	}
	c := load.Config{Target: t, Schedule: schedule, For: f.duration, Poisson: f.arrivals == "poisson", Smooth: f.smooth, Name: t.Place()}
	if err := c.Validate(); err != nil {
		return refuse(oneLine(err))
	}
	return c, thresholds, nil
}

func (f *loadFlags) target(args []string) (target.Config, error) {
	protocol, err := target.ParseProtocol(f.protocol)
	if err != nil {
		return target.Config{}, fmt.Errorf("--protocol: %w", err)
	}
	body := f.body
	if file, ok := strings.CutPrefix(body, "@"); ok {
		content, err := os.ReadFile(file)
		if err != nil {
			return target.Config{}, fmt.Errorf("--body: %w", err)
		}
		body = string(content)
	}
	return target.Config{
		Protocol: protocol, URL: args[0], Method: f.method, Headers: f.headers, Body: body, Command: args[1:],
		Descriptors: f.descriptors, Connections: f.connections, Timeout: f.timeout, Insecure: f.insecure, Seed: f.seed,
	}, nil
}

func (f *loadFlags) thresholds() (measure.Thresholds, error) {
	t := measure.Thresholds{MaxP50: f.maxP50, MaxP90: f.maxP90, MaxP99: f.maxP99, MaxP999: f.maxP999, MaxErrors: -1}
	var err error
	if f.maxErrors != "" {
		if t.MaxErrors, err = parseShare(f.maxErrors); err != nil {
			return t, fmt.Errorf("--max-errors %s: %w", f.maxErrors, err)
		}
	}
	if f.minRate != "" {
		if t.MinRate, err = parseShare(f.minRate); err != nil {
			return t, fmt.Errorf("--min-rate %s: %w", f.minRate, err)
		}
	}
	return t, nil
}

// parseShare reads 1% or 0.01.
func parseShare(s string) (float64, error) {
	number, percent := strings.CutSuffix(s, "%")
	share, err := strconv.ParseFloat(number, 64)
	if percent {
		share /= 100
	}
	if err != nil || !(share >= 0 && share <= 1) {
		return 0, errors.New("must be a share such as 1% or 0.01")
	}
	return share, nil
}

// mayLoad refuses to load other machines by mistake.
func (f *loadFlags) mayLoad(cmd *cobra.Command, t target.Config) error {
	loopback, err := t.Loopback()
	if err != nil {
		return err
	}
	if !loopback && !f.iOwnThis {
		return misused(cmd, fmt.Sprintf("%s is not on this machine; add --i-own-this if it is yours to load", t.Place()))
	}
	return nil
}

// openPicture creates the file of the picture before anything is sent. It returns nil if
// no picture was requested.
func (f *loadFlags) openPicture() (*os.File, error) {
	if f.svg == "" {
		return nil, nil
	}
	return os.Create(f.svg)
}

func (f *loadFlags) write(out io.Writer, picture *os.File, r measure.Report) error {
	if picture != nil {
		_, err := picture.Write(r.SVG())
		if err := errors.Join(err, picture.Close()); err != nil {
			return err
		}
	}
	if !f.json {
		return r.WriteText(out)
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
