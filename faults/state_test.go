package faults

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir/faults/internal/rig"
	"github.com/weirlimit/weir/internal/redistest"
)

// F24: some rows in Redis are none of ours. That is the trouble of their keys alone.
func TestForeignState(t *testing.T) {
	for _, mode := range []string{"exact", "async"} {
		t.Run(mode, func(t *testing.T) { foreignState(t, mode) })
	}
}

func foreignState(t *testing.T, mode string) {
	tr := try(t, map[string]string{"exact": "F24", "async": "F24b"}[mode],
		"a list, random bytes and a value of a later format where Redis should have the rows of three keys (two daemons, 100 per hour, `on_error: closed`), consistency "+mode,
		"these keys are decided by their `on_error`, all others by Redis to the unit; the breaker stays closed; each is logged once by each daemon, without the key; once the row is deleted its key is exact again")
	f := newForeign(tr, mode)
	f.spoil()
	f.shareOthers()
	f.spendOthers()
	tr.none("decisions of the spoiled keys that are not by their on_error", f.stray())
	open, opened := f.fleet.Total("weir_store_open"), f.fleet.Total("weir_store_opened_total")
	f.checkLog()
	f.mend()
	f.fleet.Stop()

	tr.none("without a decision", f.failed)
	tr.none("other keys refused because of the store", f.storeDown)
	tr.none("partitions with an open breaker", int(open))
	tr.none("times that one was", int(opened))
}

// The limit of every key.
const hourly = 100

// unsynced is how much both daemons together may admit too much in Async mode: each a
// tenth of its half of the limit.
const unsynced = 2 * hourly / (10 * 2)

const foreignConfig = `policies:
  default: {limits: [{rate: 100, per: 1s, burst: 100}]}
  hourly: {limits: [{rate: 100, per: 1h, on_error: closed}]}
store: {redis: {timeout: 1s}}
`

// foreign is two daemons and a Redis some of whose rows are spoiled.
type foreign struct {
	*trial
	server *redistest.Server
	fleet  *rig.Fleet
	mode   string
	logged []int // warnings in each daemon's log before rows were spoiled

	mu                sync.Mutex // guards the fields below
	failed, storeDown int
}

// spoiled is what is put in place of the rows, by key.
var spoiled = map[string][]string{
	"customer-foreign": {"RPUSH", "not", "ours"},
	"customer-random":  {"SET", "\x8f\x1d\xa4\x52\x03\xee\x71\x00\x9b\x36\xc8\x5d\xf0\x4c\x27\xb1\x6a\x92\xe5\x18"},
	"customer-newer":   {"SET", "\xff\x96\x63\x01\x02\x90\x90\xa3new"}, // MessagePack: [99, 1, 2, [], [], "new"]
}

func newForeign(tr *trial, mode string) *foreign {
	tr.Helper()
	f := &foreign{trial: tr, server: redistest.Start(tr), mode: mode}
	f.fleet = tr.fleet(2, "-c", config(tr, foreignConfig), "--redis", f.server.Addr(), "--consistency", mode)
	f.fleet.AwaitShared(patience)
	return f
}

// spoil replaces rows that both daemons have used, and has one of them grant units that
// it cannot tell Redis of, if its mode lets it.
func (f *foreign) spoil() {
	f.Helper()
	for key := range spoiled {
		f.askEach(key)
	}
	for _, d := range f.fleet.Daemons {
		f.logged = append(f.logged, len(d.Warnings()))
	}
	for key, command := range spoiled {
		f.server.MustDo("DEL", row(key))
		f.server.MustDo(append([]string{command[0], row(key)}, command[1:]...)...)
		f.askEach(key)
	}
}

func row(key string) string { return "weir:{hourly:" + key + "}" }

func (f *foreign) askEach(key string) {
	f.Helper()
	for node := range f.fleet.Daemons {
		f.ask(node, key, 1)
	}
}

// ask calls a daemon, and counts what is no decision.
func (f *foreign) ask(node int, key string, cost int64) rig.Answer {
	f.Helper()
	answer, err := f.fleet.AskFor(node, "hourly", key, cost)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || answer.Status != http.StatusOK {
		f.failed++
		f.Logf("no decision about %s: %+v, %v", key, answer, err)
	}
	if spoiled[key] == nil && answer.Reason == "store_down" {
		f.storeDown++
	}
	return answer
}

// shareOthers has one daemon take of other keys, and waits until the other one knows it to
// the unit: the unsynced usage of the first is flushed although some of it cannot be.
func (f *foreign) shareOthers() {
	f.Helper()
	for i := range 4 {
		key, units := fmt.Sprint("partly", i), int64(0)
		for range 60 {
			if f.ask(0, key, 1).Allowed {
				units++
			}
			for bad := range spoiled {
				f.ask(0, bad, 1)
			}
		}
		if units != 60 {
			f.Errorf("%d of 60 units of %s were admitted", units, key)
		}
		rig.Await(f, "a daemon to know what the other has taken of "+key, patience, func() error {
			if left := f.ask(1, key, 0).Remaining; left != hourly-units {
				return fmt.Errorf("it says that %d are left, want %d", left, hourly-units)
			}
			return nil
		})
	}
}

// spendOthers calls both daemons for more units of some keys than there are, while others call for
// the spoiled ones.
func (f *foreign) spendOthers() {
	f.Helper()
	var calling, spoiling sync.WaitGroup
	done := make(chan struct{})
	for key := range spoiled {
		spoiling.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					f.askEach(key)
				}
			}
		})
	}
	worst := hourly
	var mu sync.Mutex // guards worst
	for i := range 4 {
		calling.Go(func() {
			n := f.spend(fmt.Sprint("wholly", i))
			mu.Lock()
			defer mu.Unlock()
			if n > hourly || n < worst {
				worst = n
			}
		})
	}
	calling.Wait()
	close(done)
	spoiling.Wait()
	f.judgeSpent("admitted of another key", worst)
}

// spend calls both daemons for one and a half times the units of a key.
func (f *foreign) spend(key string) (admitted int) {
	f.Helper()
	for i := range hourly * 3 / 2 {
		if f.ask(i%2, key, 1).Allowed {
			admitted++
		}
	}
	return admitted
}

func (f *foreign) judgeSpent(name string, n int) {
	f.Helper()
	if f.mode == "async" {
		f.atMost(name, float64(n), hourly+unsynced, "100 + 2b")
		f.atLeast(name, float64(n), hourly-unsynced, "100 − 2b")
		return
	}
	f.none(name+", apart from its 100", n-hourly)
}

// stray counts answers about spoiled keys that do not come from their on_error.
func (f *foreign) stray() (n int) {
	f.Helper()
	for key := range spoiled {
		for node := range f.fleet.Daemons {
			if a := f.ask(node, key, 1); a.Allowed || a.Reason != "store_down" {
				f.Logf("%s on daemon %d: %+v", key, node, a)
				n++
			}
		}
	}
	return n
}

var hexHash = regexp.MustCompile(`"[0-9a-f]{8,64}"`)

// checkLog looks at what the daemons have warned of since rows were spoiled: a line for each
// of them, identified by a hash.
func (f *foreign) checkLog() {
	f.Helper()
	problems, lines := 0, 0
	for i, d := range f.fleet.Daemons {
		hashes := map[string]bool{}
		for _, line := range d.Warnings()[f.logged[i]:] {
			lines++
			hash := hexHash.FindString(line)
			if hash == "" || hashes[hash] || strings.Contains(line, "customer") {
				f.Logf("daemon %d: %s", i, line)
				problems++
			}
			hashes[hash] = true
		}
	}
	f.none("warnings without a hash, twice, or with the key", problems)
	f.none("warnings, apart from one per key and daemon", lines-len(spoiled)*len(f.fleet.Daemons))
}

// mend deletes the rows, and looks at whether their keys are as new.
func (f *foreign) mend() {
	f.Helper()
	for key := range spoiled {
		f.server.MustDo("DEL", row(key))
		rig.Await(f, "both daemons to decide about "+key+" again", patience, func() error {
			for node := range f.fleet.Daemons {
				if a := f.ask(node, key, 0); a.Reason == "store_down" {
					return errors.New("one refuses because of the store")
				}
			}
			return nil
		})
		f.judgeSpent("admitted of a key whose row was deleted", f.spend(key))
	}
}
