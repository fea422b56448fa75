// Ethsync keeps up with the head of a chain and reads its history, in two processes that share the
// compute units of one account over Redis:
//
//	go run ./examples/ethsync demo      # a provider and both workers for 30s, then a summary
//	go run ./examples/ethsync tables    # what per-block and batched mode cost in a month
//
// The provider is local. It enforces the limit of an account at Alchemy and answers 429 beyond it.
// The commands provider, sync and backfill run one of the three. Begin reading with sync.go and
// backfill.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"time"
)

type options struct {
	args                           []string // all flags
	address, redis                 string
	lasts, blockTime, poll, jitter time.Duration
	batched                        bool
	seed                           uint64
	parallel                       int
}

var commands = map[string]func(context.Context, options) error{
	"demo": demonstrate, "provider": serve, "sync": runSync, "backfill": runBackfill, "tables": writeTables,
}

func main() {
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		log.Fatal("usage: ethsync demo|provider|sync|backfill|tables [flags]; ethsync demo -h lists the flags")
	}
	o := options{args: os.Args[2:]}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	flags.StringVar(&o.address, "address", "127.0.0.1:8545", "the `address` of the provider")
	flags.StringVar(&o.redis, "redis", "127.0.0.1:6379", "the `address` of Redis")
	flags.DurationVar(&o.lasts, "for", 30*time.Second, "how long the workers run")
	flags.DurationVar(&o.blockTime, "block-time", 450*time.Millisecond, "the time between two blocks, as of BNB")
	flags.BoolVar(&o.batched, "batched", false, "sync in batched mode")
	flags.DurationVar(&o.poll, "poll", 17*time.Second, "the time between two polls of batched mode")
	flags.IntVar(&o.parallel, "parallel", 4, "ranges that backfill reads at a time")
	flags.DurationVar(&o.jitter, "jitter", 80*time.Millisecond, "the longest delay of the network")
	flags.Uint64Var(&o.seed, "seed", 1, "the seed of the delays")
	_ = flags.Parse(o.args) // exits on errors
	if min(o.blockTime, o.poll) <= 0 || o.jitter < 0 || o.parallel < 1 {
		log.Fatal("-block-time, -poll and -parallel must be positive, and -jitter must not be negative")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := commands[os.Args[1]](ctx, o); err != nil {
		log.Fatal(err)
	}
}

func runSync(ctx context.Context, o options) error {
	every := o.blockTime
	if o.batched {
		every = o.poll
	}
	return o.work(ctx, "sync", func(ctx context.Context, c *client) (string, error) {
		s := &syncer{client: c, delays: c.delays, batched: o.batched}
		err := s.run(ctx, every)
		return fmt.Sprintf("%d blocks, at most %d behind the head, %d delayed", s.blocks, s.behind, s.delayed), err
	})
}

func runBackfill(ctx context.Context, o options) error {
	return o.work(ctx, "backfill", func(ctx context.Context, c *client) (string, error) {
		b := &backfiller{client: c, awaitBudget: func(ctx context.Context, _ func()) error { return ctx.Err() }}
		b.next.Store(firstHead - 1)
		err := b.run(ctx, o.parallel)
		return fmt.Sprintf("%d ranges of %d blocks", b.ranges.Load(), maxRange), err
	})
}

// work runs a worker for a while and writes its row of the summary.
func (o options) work(ctx context.Context, name string, run func(context.Context, *client) (done string, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, o.lasts)
	defer cancel()
	c := &client{http: &http.Client{}, url: "http://" + o.address}
	done, err := run(ctx, c)
	if err != nil && ctx.Err() == nil {
		return err
	}
	fmt.Printf("%s\t%d\t%d\t%d\t%s\n", name, c.calls.Load(), c.refused.Load(), c.waited.Load(), done)
	return nil
}
