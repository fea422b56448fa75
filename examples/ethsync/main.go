// Ethsync keeps up with the head of a chain and reads its history, in two processes that share the
// compute units of one account over Redis:
//
//	go run ./examples/ethsync demo      # a provider and both workers for 30s, then a summary
//	go run ./examples/ethsync tables    # what per-block and batched mode cost in a month
//
// The provider is local. It enforces the limit of an account at Alchemy and answers 429 beyond it.
// The commands provider, sync and backfill run one of the three. Begin reading with budget.go, sync.go
// and backfill.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"slices"
	"time"
)

type options struct {
	args                           []string // all flags
	address, redis, account        string
	lasts, blockTime, poll, jitter time.Duration
	batched, lend                  bool
	seed                           uint64
	parallel                       int
	behind                         int64
}

var commands = map[string]func(context.Context, options) error{
	"demo": demonstrate, "provider": serve, "sync": runSync, "backfill": runBackfill, "tables": writeTables,
}

const usage = `usage: ethsync COMMAND [flags]

  demo      run a provider and both workers, each worker in a process of its own, and write a summary; it needs Redis
  provider  serve JSON-RPC with the limit of an account, until interrupted; /stats says what it has counted
  sync      follow the head of the chain; real-time work, which has 60% of the budget for itself
  backfill  read the history as fast as the budget allows; it has 40%, and what sync does not use
  tables    write what each mode costs per block, per poll and in a month

The workers charge the account that ALCHEMY_CU_PER_SECOND and its kin describe, and that of the free plan if
none is set. The flags are the same for all commands.
`

func main() {
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		log.Fatal(misused(os.Args[1:]) + usage + "ethsync demo -h lists the flags")
	}
	o, err := readFlags(os.Args[1], os.Args[2:])
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := commands[os.Args[1]](ctx, o); err != nil {
		stop()
		log.Fatal(err)
	}
}

// misused returns what is wrong with arguments that begin with no command, as a line of its own. Asking for help is not.
func misused(args []string) string {
	switch {
	case len(args) == 0:
		return "a command is missing\n"
	case slices.Contains([]string{"-h", "-help", "--help", "help"}, args[0]):
		return ""
	}
	return fmt.Sprintf("there is no command %q\n", args[0])
}

func readFlags(command string, args []string) (options, error) {
	o := options{args: args}
	flags := flag.NewFlagSet(command, flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&o.address, "address", "127.0.0.1:8545", "the `address` of the provider")
	flags.StringVar(&o.redis, "redis", "127.0.0.1:6379", "the `address` of Redis; with off, each process has a budget of its own")
	flags.StringVar(&o.account, "account", "alchemy", "the `name` of the account; workers with the same one share its budget")
	flags.BoolVar(&o.lend, "lend", true, "let workers borrow what the other does not use; false is a hard partition")
	flags.DurationVar(&o.lasts, "for", 30*time.Second, "how long the workers run")
	flags.DurationVar(&o.blockTime, "block-time", 450*time.Millisecond, "the time between two blocks, as of BNB")
	flags.Int64Var(&o.behind, "behind", 10, "how many `blocks` sync begins behind the head, as after a restart")
	flags.BoolVar(&o.batched, "batched", false, "sync in batched mode")
	flags.DurationVar(&o.poll, "poll", 17*time.Second, "the time between two polls of batched mode")
	flags.IntVar(&o.parallel, "parallel", 4, "how many `ranges` backfill reads at a time")
	flags.DurationVar(&o.jitter, "jitter", 50*time.Millisecond, "the longest delay of the network; the budget allows for 100ms")
	flags.Uint64Var(&o.seed, "seed", 1, "the seed of the delays")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unknown argument %q: flags begin with -", flags.Arg(0))
	case min(o.lasts, o.blockTime, o.poll) <= 0 || o.parallel < 1:
		return o, fmt.Errorf("-for, -block-time, -poll and -parallel must be positive")
	case o.jitter < 0 || o.behind < 0 || o.behind >= firstHead:
		return o, fmt.Errorf("-jitter must not be negative, and -behind must be from 0 to %d", firstHead-1)
	}
	return o, nil
}
