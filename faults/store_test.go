package faults

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/faults/internal/history"
	"github.com/weirlimit/weir/faults/internal/rig"
	"github.com/weirlimit/weir/internal/redistest"
)

// F8: scripts are gone all the time. Seconds with and without flushes take turns, so that
// both meet the same neighbours.
func TestScriptFlush(t *testing.T) {
	tr := try(t, "F8", "`SCRIPT FLUSH` every 100 ms, in every other second", "E ≤ 0; p99 is greater by 1 ms at most")
	server := redistest.Start(t)
	fleet := tr.fleet(3, "--redis", server.Addr())
	load := fleet.StartLoad(mix())
	load.For(pick(2*time.Second, 500*time.Millisecond))
	var quiet, flushed []span
	flushes := 0
	for range pick(10, 1) {
		quiet = append(quiet, during(load, func() { load.For(time.Second) }))
		flushed = append(flushed, during(load, func() {
			for range 10 {
				server.MustDo("SCRIPT", "FLUSH")
				flushes++
				load.For(100 * time.Millisecond)
			}
		}))
	}
	list := load.Stop()
	fleet.AwaitShared(patience)
	tier := fleet.Stop()

	tr.note("flushes", "%d", flushes)
	bound, formula := healthy(tier, 0, "0")
	tr.judge(list, bound, formula)
	without := history.Percentile(in(list, quiet), 0.99)
	tr.stalled(list)
	tr.note("p99 without flushes", "%s", brief(without))
	tr.within("p99 with them", history.Percentile(in(list, flushed), 0.99), without+time.Millisecond)
	tr.note("decided alone", "%d", tier.Decisions.Fallback)
}

// A span is a part of a load's time.
type span struct{ begin, end time.Duration }

func during(load *rig.Load, f func()) span {
	begin := load.Now()
	f()
	return span{begin, load.Now()}
}

// in returns the decisions whose calls were sent in some of a load's time.
func in(list []history.Decision, spans []span) (all []history.Decision) {
	for _, s := range spans {
		all = append(all, history.Between(list, s.begin, s.end)...)
	}
	return all
}

// F10: Redis forgets everything, so each key has its burst once more.
func TestFlushAll(t *testing.T) {
	tr := try(t, "F10", "`FLUSHALL`", "E ≤ B: every key may have its burst once more")
	server := redistest.Start(t)
	fleet := tr.fleet(3, "--redis", server.Addr())
	load := fleet.StartLoad(mix())
	load.For(pick(5*time.Second, 1500*time.Millisecond)) // the hot keys have no burst left
	server.MustDo("FLUSHALL")
	load.For(pick(5*time.Second, 1500*time.Millisecond))
	list := load.Stop()
	fleet.AwaitShared(patience)
	tier := fleet.Stop()

	bound, formula := healthy(tier, B, "B") // what was taken is forgotten: B per event
	tr.judge(list, bound, formula)
	tr.note("decided alone", "%d", tier.Decisions.Fallback)
}

// F22: all callers start at once, on daemons with few connections to Redis.
func TestBurstStart(t *testing.T) {
	tr := try(t, "F22", "from no load to all of it at once, cold connections", "E ≤ 0; connections to Redis ≤ the pool's size")
	server := redistest.Start(t)
	const daemons = 3
	fleet := tr.fleet(daemons, "--redis", server.Addr())
	var most int
	watching, stop := sync.WaitGroup{}, make(chan struct{})
	watching.Go(func() { most = mostClients(t, server, stop) })
	load := fleet.StartLoad(mix())
	callAtOnce(tr, fleet, pick(300, 100))
	load.For(pick(5*time.Second, time.Second))
	list := load.Stop()
	close(stop)
	watching.Wait()
	fleet.AwaitShared(patience)
	tier := fleet.Stop()

	bound, formula := healthy(tier, 0, "0")
	tr.judge(list, bound, formula)
	tr.atMost("connections at once", float64(most), daemons*poolSize, strconv.Itoa(poolSize)+" per daemon")
	tr.note("p99 of the first second", "%s", brief(history.Percentile(history.Between(list, 0, time.Second), 0.99)))
	tr.note("decided alone", "%d", tier.Decisions.Fallback)
}

// callAtOnce makes n concurrent calls to each daemon, each for a key of its own.
func callAtOnce(tr *trial, fleet *rig.Fleet, n int) {
	tr.Helper()
	var wg sync.WaitGroup
	for i := range n * len(fleet.Daemons) {
		key := fleet.FreshKey()
		wg.Go(func() {
			answer, err := fleet.Ask(i%len(fleet.Daemons), key, 1)
			if err != nil || !answer.Allowed {
				tr.Errorf("one of %d concurrent calls: %+v, %v", n, answer, err)
			}
		})
	}
	wg.Wait()
}

// poolSize is how many connections a daemon may have to one Redis: four that all share,
// four of the senders, one each for the messages of other daemons, for changes of limits and
// for the overrides of operators.
const poolSize = 11

// mostClients looks again and again how many clients Redis has, without this one.
func mostClients(t *testing.T, server *redistest.Server, stop <-chan struct{}) (most int) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return most
		case <-tick.C:
		}
		n, err := clients(server)
		if err != nil {
			t.Error(err)
			return most
		}
		most = max(most, n)
	}
}

// healthy is the bound where nothing lasting is wrong with Redis. A daemon that had no
// answer in time, as happens on a busy machine, decided alone, by its share, and for that
// the bound of an outage comes on top.
func healthy(tier rig.Tier, bound float64, formula string) (float64, string) {
	if tier.Decisions.Fallback == 0 {
		return bound, formula
	}
	return bound + 2*B, strings.TrimPrefix(formula+" + 2B, as a daemon decided alone", "0 + ")
}
