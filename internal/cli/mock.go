package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/fielderr"
	"github.com/weirlimit/weir/internal/mockrpc"
)

func newMock() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mock",
		Short: "Start a provider with limits, to try clients against",
		Long: `Start a provider on this machine that has the limits of a vendor and refuses calls as that vendor does,
so that a client can be tried without an account, and without using one up.`,
		Example: `  weir mock jsonrpc
  weir mock jsonrpc --preset generic --rate 5`,
		Args:                  knownCommand,
		RunE:                  showHelp,
		DisableFlagsInUseLine: true,
	}
	cmd.AddCommand(newMockJSONRPC())
	return cmd
}

// mockFlags are the flags of weir mock jsonrpc.
type mockFlags struct {
	listen string
	keys   []string
	config mockrpc.Config
}

func newMockJSONRPC() *cobra.Command {
	var f mockFlags
	cmd := &cobra.Command{
		Use:   "jsonrpc [flags]",
		Short: "Start a JSON-RPC provider such as Alchemy",
		Long: `Start a JSON-RPC provider for clients of Ethereum, on this machine only. Ctrl-C ends it, and prints what it has
received, served and refused.

With --preset alchemy each account has --rate throughput units per second, over ten seconds: after a burst of
5,000 units it has nothing for the rest of the ten seconds. Calls beyond that are refused with status 429 and the
vendor's error. With --preset generic, --rate and --per-minute count calls, exactly.

--keys k1,k2 are two accounts with a key each; --keys a=k1,k2 is one account with two keys, which share its limits.

Faults are added while it runs: POST /mock/faults with {"status":503,"retry_after":"2s","count":3,"key":"k1"}.
GET /mock/stats has the counts. docs/mock.md describes both.`,
		Example: `  weir mock jsonrpc
  weir mock jsonrpc --keys k1,k2,k3 --latency 50ms --retry-after
  weir mock jsonrpc --keys a=k1,k2 --keys b=k3 --rate 330
  weir mock jsonrpc --preset generic --rate 5 --per-minute 100 --listen 127.0.0.1:0`,
		Args:                  noArgs,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
		DisableFlagsInUseLine: true,
	}
	f.define(cmd)
	return cmd
}

func (f *mockFlags) define(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.config.Preset, "preset", mockrpc.Alchemy, "whose limits and refusals: "+strings.Join(mockrpc.Presets(), " or "))
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8545", "`address` on this machine; port 0 takes a free one")
	flags.StringArrayVar(&f.keys, "keys", nil, "`k1,k2` are accounts with a key each, a=k1,k2 is one with two; may be repeated (default demo, or none with generic)")
	flags.Int64Var(&f.config.Rate, "rate", 0, "units per second of each account, or calls with generic (default 500, or no limit with generic)")
	flags.Int64Var(&f.config.PerMinute, "per-minute", 0, "calls per minute of each account, with generic only (default no limit)")
	flags.Uint64Var(&f.config.ChainID, "chain-id", mockrpc.DefaultChainID, "what eth_chainId returns")
	flags.DurationVar(&f.config.BlockTime, "block-time", mockrpc.DefaultBlockTime, "time between two blocks")
	flags.DurationVar(&f.config.Latency, "latency", 0, "how long each response takes")
	flags.BoolVar(&f.config.RetryAfter, "retry-after", false, "refusals say when to come back")
	flags.BoolVar(&f.config.PartialBatches, "partial-batches", false, "refuse single calls of a batch, with status 200, instead of the batch")
	completeWith(cmd, "preset", mockrpc.Presets()...)
	completeWith(cmd, "listen", "127.0.0.1:8545", "127.0.0.1:0")
}

func (f *mockFlags) run(cmd *cobra.Command) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	provider, err := mockrpc.New(f.config)
	if err != nil {
		return misused(cmd, flagProblem(err))
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal has its usual effect
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	f.greet(cmd.OutOrStdout(), provider, "http://"+listener.Addr().String())
	if err := serveMock(ctx, listener, provider); err != nil {
		return err
	}
	printMock(cmd.OutOrStdout(), provider.Stats())
	return nil
}

// check reads the flags that are not those of the configuration as they are.
func (f *mockFlags) check(cmd *cobra.Command) (err error) {
	if !isLoopback(f.listen) {
		return misused(cmd, fmt.Sprintf("--listen %s: must be an address of this machine alone, such as 127.0.0.1:8545: whoever reaches a mock can change what it does", f.listen))
	}
	if f.config.PerMinute != 0 && f.config.Preset == mockrpc.Alchemy {
		return misused(cmd, "--per-minute: is for --preset generic; the preset alchemy has --rate")
	}
	for _, flag := range []string{"chain-id", "block-time"} {
		if value := cmd.Flag(flag).Value.String(); value == "0" || value == "0s" {
			return misused(cmd, fmt.Sprintf("--%s %s: must be more than 0", flag, value))
		}
	}
	for _, text := range f.keys {
		f.config.Accounts = append(f.config.Accounts, accountsOf(text)...)
	}
	return nil
}

// isLoopback reports whether only programs on this machine reach an address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// accountsOf reads accounts: k1,k2 are two, a=k1,k2 is one.
func accountsOf(text string) (accounts []mockrpc.Account) {
	if name, keys, one := strings.Cut(text, "="); one {
		return []mockrpc.Account{{Name: name, Keys: strings.Split(keys, ",")}}
	}
	for key := range strings.SplitSeq(text, ",") {
		accounts = append(accounts, mockrpc.Account{Name: key, Keys: []string{key}})
	}
	return accounts
}

// flagProblem names the flag of the first field that is wrong.
func flagProblem(err error) string {
	field, ok := errors.AsType[*fielderr.Error](err)
	if !ok {
		return oneLine(err)
	}
	flags := map[any]string{"Preset": "preset", "Rate": "rate", "PerMinute": "per-minute", "BlockTime": "block-time", "Latency": "latency", "Accounts": "keys"}
	return fmt.Sprintf("--%s: %s", flags[field.Path[0]], field.Text())
}

// greet prints where the provider is, and calls to try. It is one write, so that a reader of the first line may leave.
func (f *mockFlags) greet(w io.Writer, p *mockrpc.Provider, url string) {
	var b strings.Builder
	fmt.Fprintf(&b, "weir mock is listening on %s\n\n", url)
	stats := p.Stats()
	limits := make(map[string]string)
	for _, a := range stats.Accounts {
		limits[a.Name] = limitsOf(stats, a)
	}
	rows := [][]string{{"URL", "ACCOUNT", "LIMIT"}}
	for _, k := range stats.Keys {
		rows = append(rows, []string{url + mockrpc.Path(k.Key), k.Account, limits[k.Account]})
	}
	table(&b, rows)
	fmt.Fprintf(&b, "\n  curl -s %s -d '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"eth_blockNumber\"}'\n", url+mockrpc.Path(stats.Keys[0].Key))
	fmt.Fprintf(&b, "  curl -s %s/mock/stats\n", url)
	fmt.Fprintf(&b, "  curl -s %s/mock/faults -d '{\"status\":503,\"retry_after\":\"2s\",\"count\":3}'\n\n", url)
	_, _ = io.WriteString(w, b.String())
}

// limitsOf says what an account has.
func limitsOf(s mockrpc.Stats, a mockrpc.AccountStats) string {
	if s.Preset == mockrpc.Alchemy {
		return fmt.Sprintf("%d %s units per second, over ten seconds", a.RatePerSec, s.Unit)
	}
	var list []string
	if a.RatePerSec > 0 {
		list = append(list, number(a.RatePerSec)+" calls per second")
	}
	if a.RatePerMin > 0 {
		list = append(list, number(a.RatePerMin)+" calls per minute")
	}
	return cmp.Or(strings.Join(list, ", "), "none")
}

// mockShutdown is how long responses may take at the end.
const mockShutdown = 2 * time.Second

// serveMock serves until ctx ends.
func serveMock(ctx context.Context, l net.Listener, p *mockrpc.Provider) error {
	server := &http.Server{
		Handler: p, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }, // so that delayed responses end, too
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), mockShutdown)
	defer cancel()
	if server.Shutdown(last) != nil { // a client that reads slowly
		_ = server.Close()
	}
	<-failed
	return nil
}

// printMock prints what a provider has counted.
func printMock(w io.Writer, s mockrpc.Stats) {
	classes := []string{"rate", "quota", "denied", "overloaded"}
	cells := func(c mockrpc.Counts) []string {
		list := []string{number(c.Received), number(c.Served)}
		for _, class := range classes {
			list = append(list, number(c.Refused[class]))
		}
		return append(list, number(c.Failed), number(c.Units))
	}
	head := []string{"CALLS", "SERVED", "RATE", "QUOTA", "DENIED", "OVERLOADED", "FAILED", "UNITS"}
	rows := [][]string{append([]string{"KEY", "ACCOUNT", "REQUESTS", "EARLY"}, head...)}
	for _, k := range s.Keys {
		rows = append(rows, append([]string{named(k.Key), k.Account, number(k.Requests), number(k.Early)}, cells(k.Total)...))
	}
	table(w, rows)
	if len(s.Methods) > 0 {
		rows = [][]string{append([]string{"METHOD"}, head...)}
		for _, name := range slices.Sorted(maps.Keys(s.Methods)) {
			rows = append(rows, append([]string{name}, cells(s.Methods[name])...))
		}
		fmt.Fprintln(w)
		table(w, rows)
	}
	fmt.Fprintln(w)
	for _, a := range s.Accounts {
		fmt.Fprintf(w, "account %s: %d units, at most %d in any ten seconds\n", visible(a.Name), a.Units, a.MaxUnits10s)
	}
	if t := s.Transactions; t.Executed > 0 {
		fmt.Fprintf(w, "transactions: %d executed, %d of them again\n", t.Executed, t.Duplicates)
	}
	if s.Unauthorized+s.Malformed > 0 {
		fmt.Fprintf(w, "requests without calls: %d with an unknown key, %d malformed or too costly\n", s.Unauthorized, s.Malformed)
	}
}
