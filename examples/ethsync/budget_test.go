package main

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/budget"
	"github.com/weirlimit/weir/store/memstore"
)

// A simulation runs both workers against the provider, on the clock of a bubble.
type simulation struct {
	options
	seed  uint64
	apart bool // each worker has a budget of its own, as with -redis off
	alone bool // there is no backfill
}

// simulated is what a simulation has done.
type simulated struct {
	stats
	sync     *syncer
	backfill *backfiller
	clients  map[string]*client // by class
}

func (s simulation) run(t *testing.T) (out simulated) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(chain{s.blockTime}, throughputCosts(), s.jitter, s.seed)
		out.clients = map[string]*client{}
		table := weir.Must(memstore.New(memstore.Config{}))
		open := func(class string) (*budget.Controller, *client) {
			if s.apart {
				table = weir.Must(memstore.New(memstore.Config{}))
			}
			c, err := s.accountConfig(nil)
			if err != nil {
				t.Fatal(err)
			}
			account, err := budget.New(table, c)
			if err != nil {
				t.Fatal(err)
			}
			controller, err := account.Controller(class)
			if err != nil {
				t.Fatal(err)
			}
			charged := &budget.Transport{Account: account, Class: class, Base: direct{p}}
			out.clients[class] = &client{http: &http.Client{Transport: charged}, url: "http://provider"}
			return controller, out.clients[class]
		}
		_, c := open("realtime")
		out.sync = &syncer{client: c, delays: c.delays, batched: s.batched, back: s.behind}
		go out.sync.run(t.Context(), s.every())
		if !s.alone {
			controller, c := open("backfill")
			out.backfill = newBackfiller(c, controller, firstHead-1)
			go out.backfill.run(t.Context(), s.parallel)
		}
		time.Sleep(s.lasts)
		out.stats = p.snapshot()
	})
	return out
}

// bnb are options of a simulation.
func bnb() options {
	return options{
		account: "main", lend: true, blockTime: 450 * time.Millisecond, poll: 17 * time.Second, parallel: 4,
		jitter: 100 * time.Millisecond, lasts: time.Minute,
	}
}

// longestWait is what a call of sync may have to wait for its own class: its cost at the guaranteed rate.
const longestWait = 60 * time.Second / 291

// TestBudget: both workers together use 97 % of the quota, neither reading of the provider's rule is violated
// although calls are up to 100 ms on their way, and greedy backfill does not disturb sync (S1.1, S1.36, F1.1, F1.2).
func TestBudget(t *testing.T) {
	for seed := range uint64(3) {
		out := simulation{options: bnb(), seed: seed}.run(t)
		if out.Refused != 0 || out.Peak > capacity || out.share() < 0.97 {
			t.Errorf("seed %d: %d refused, %d in 10 s, %.1f%% of the quota", seed, out.Refused, out.Peak, out.share()*100)
		}
		longest := time.Duration(out.clients["realtime"].longest.Load())
		if out.sync.blocks < 133 || out.sync.behind > 0 || longest > longestWait {
			t.Errorf("seed %d: %d blocks, at most %d behind, a call has waited %v", seed, out.sync.blocks, out.sync.behind, longest)
		}
		if out.backfill.ranges.Load() < 50 {
			t.Errorf("seed %d: only %d ranges", seed, out.backfill.ranges.Load())
		}
	}
}

// TestPartition: without lending sync is no better off, and a sixth of the quota is lost (F1.2).
func TestPartition(t *testing.T) {
	o := bnb()
	o.lend = false
	out := simulation{options: o}.run(t)
	if out.Refused != 0 || out.sync.behind > 0 || out.share() > 0.85 || out.backfill.ranges.Load() > (194*60+280)/300 {
		t.Errorf("%d refused, %d behind, %.1f%% of the quota, %d ranges", out.Refused, out.sync.behind, out.share()*100, out.backfill.ranges.Load())
	}
}

// TestApart: workers that do not share the budget exceed it together, and then all have to wait.
func TestApart(t *testing.T) {
	out := simulation{options: bnb(), apart: true}.run(t)
	if out.Refused == 0 || out.sync.delayed == 0 || out.Peak > capacity {
		t.Errorf("%d refused, %d blocks delayed, %d in 10 s", out.Refused, out.sync.delayed, out.Peak)
	}
}

// TestPauses: while sync catches up, the utilisation exceeds 90 %, and backfill pauses (S1.20, S1.21, S1.26, F1.14).
func TestPauses(t *testing.T) {
	o := bnb()
	o.behind = 20
	out := simulation{options: o}.run(t)
	if out.Refused != 0 || out.backfill.pauses == 0 || !out.sync.caughtUp || out.sync.behind > 0 || out.share() < 0.97 {
		t.Errorf("%d refused, %d pauses, caught up: %v, %d behind, %.1f%% of the quota",
			out.Refused, out.backfill.pauses, out.sync.caughtUp, out.sync.behind, out.share()*100)
	}
}

// TestMeasuredCosts: what the provider counts for each mode and chain is what the tables say, for each block, poll and
// match, and in a month (S1.28, S1.29, S1.30, F1.4, F1.18).
func TestMeasuredCosts(t *testing.T) {
	for _, c := range chains {
		for _, batched := range []bool{false, true} {
			o := bnb()
			o.blockTime, o.batched, o.jitter = c.blockTime, batched, 0
			const polls = 100
			o.lasts = polls*o.every() - 1
			out := simulation{options: o, alone: true}.run(t)
			each := perBlock(billed)
			month, inBatches := c.perMonth(billed, o.poll)
			if batched {
				each, month = perPoll(billed, 1), inBatches
			}
			if want := polls*each + out.sync.matches*perMatch(billed); out.Granted != want || out.sync.matches == 0 {
				t.Errorf("%s, batched %v: %d units and %d matches, want %d", c.name, batched, out.Granted, out.sync.matches, want)
			}
			if blocks := int64((o.lasts-1)/c.blockTime) + 1; out.sync.blocks < blocks-38 || out.sync.blocks > blocks { // the last poll was up to 17 s ago
				t.Errorf("%s, batched %v: %d of %d blocks", c.name, batched, out.sync.blocks, blocks)
			}
			without := out.Granted - out.sync.matches*perMatch(billed)
			if got := without * int64(30*24*time.Hour/time.Millisecond) / (o.lasts + 1).Milliseconds(); got != month {
				t.Errorf("%s, batched %v: %d units in a month, the table has %d", c.name, batched, got, month)
			}
		}
	}
}

func TestAccountConfig(t *testing.T) {
	for _, tt := range []struct {
		environ string
		rate    int64 // of the first limit, 0 for an error
	}{
		{"PATH=/bin ALCHEMY_API_KEY=x", 485},
		{"ALCHEMY_CU_PER_SECOND=500", 485},
		{"PATH=/bin ALCHEMY_CU_PER_SECOND=1000", 970},
		{"ALCHEMY_WINDOW_SIZE_MS=2000", 485},
		{"ALCHEMY_CU_PER_SEC=1000", 0},
		{"ALCHEMY_CU_PER_SECOND=-1", 0},
	} {
		c, err := options{account: "x"}.accountConfig(strings.Fields(tt.environ))
		if (err != nil) != (tt.rate == 0) || err == nil && (c.Limits[0].Rate != tt.rate || c.Name != "x" || !c.Classes[0].NoBorrow) {
			t.Errorf("%s: %+v, %v", tt.environ, c, err)
		}
	}
	if freePlan.Classes[0].NoBorrow {
		t.Error("the flag -lend=false of one account has changed the plan")
	}
}
