package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/weirlimit/weir/budget"
)

// summary is what a worker has done. It writes it at its end.
type summary struct {
	Worker    string `json:"worker"`
	Calls     int64  `json:"calls"`
	Refused   int64  `json:"refused"` // by the provider
	Waited    int64  `json:"waited"`  // calls that waited for the budget
	LongestMS int64  `json:"longest_wait_ms"`
	Units     int64  `json:"cu"` // charged, refused calls included

	Batched bool  `json:"batched,omitempty"`
	Polls   int64 `json:"polls,omitempty"`
	Blocks  int64 `json:"blocks,omitempty"`
	Matches int64 `json:"matches,omitempty"`
	Behind  int64 `json:"behind,omitempty"`
	Delayed int64 `json:"delayed_blocks,omitempty"`

	Ranges int64 `json:"ranges,omitempty"`
	Pauses int64 `json:"pauses,omitempty"`
}

func runSync(ctx context.Context, o options) error {
	return o.work(ctx, "sync", "realtime", func(ctx context.Context, _ *budget.Account, c *client) (summary, error) {
		s := &syncer{client: c, delays: c.delays, batched: o.batched, back: o.behind}
		err := s.run(ctx, o.every())
		return summary{Batched: s.batched, Polls: s.polls, Blocks: s.blocks, Matches: s.matches, Behind: s.behind, Delayed: s.delayed}, err
	})
}

// every returns the time between two polls of sync.
func (o options) every() time.Duration {
	if o.batched {
		return o.poll
	}
	return o.blockTime
}

func runBackfill(ctx context.Context, o options) error {
	return o.work(ctx, "backfill", "backfill", func(ctx context.Context, a *budget.Account, c *client) (summary, error) {
		controller, err := a.Controller("backfill")
		if err != nil {
			return summary{}, err
		}
		b := newBackfiller(c, controller, firstHead-1)
		err = b.run(ctx, o.parallel)
		return summary{Ranges: b.ranges.Load(), Pauses: b.pauses}, err
	})
}

// work runs a worker of a class for a while and writes its summary. Its calls are charged by the transport
// of its client.
func (o options) work(ctx context.Context, name, class string, run func(context.Context, *budget.Account, *client) (summary, error)) error {
	slog.SetDefault(slog.With("worker", name))
	account, stop, err := o.openAccount(ctx)
	if err != nil {
		return err
	}
	defer stop()
	c := &client{http: &http.Client{Transport: &budget.Transport{Account: account, Class: class}}, url: "http://" + o.address}

	limited, cancel := context.WithCancel(ctx) // a deadline would end it early, when a wait exceeds the rest
	defer cancel()
	defer time.AfterFunc(o.lasts, cancel).Stop()
	s, err := run(limited, account, c)
	if err != nil && limited.Err() == nil {
		return err
	}
	s.Worker, s.Calls, s.Refused, s.Waited = name, c.calls.Load(), c.refused.Load(), c.waited.Load()
	s.LongestMS = time.Duration(c.longest.Load()).Milliseconds()
	u, err := account.Usage(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	s.Units = u.Ledgers["throughput"].Used
	return json.NewEncoder(os.Stdout).Encode(s)
}
