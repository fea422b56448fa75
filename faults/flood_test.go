package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/faults/internal/history"
	"github.com/weirlimit/weir/faults/internal/rig"
)

// F15: somebody makes keys up, more than the daemon is to remember.
func TestFlood(t *testing.T) {
	tr := try(t, "F15", "1 million made-up keys, then 9 million more, 100,000 each second in pipelines of 100 of the Redis protocol; one daemon with `max_keys` 1 million",
		"memory ≤ 64 MiB + 10 % above that under load; p99 of a hot key ≤ 2 × before; keys that were refused stay so; ≤ 2,000 series; ≤ 100 in the list of who is refused most")
	fleet := tr.fleet(1, "-c", withLogin(tr), "--resp", "127.0.0.1:0")
	idle := fleet.Usage().RSS
	load := fleet.StartLoad(mix())
	f := newFlood(tr, fleet)
	f.exhaust()
	load.For(pick(10*time.Second, time.Second))
	control, base := load.Now(), fleet.Usage().RSS
	for range pick(50, 5) { // as many checks of keys that are known, for a tenth of a second each time
		f.send(0, 100*floodBatch, 0)
	}
	began := load.Now()

	first := pick(1_000_000, 100_000)
	f.send(0, first, 1)
	after, grown := fleet.Usage().RSS, load.Now()
	still := f.stillDenied()
	most := pick(10_000_000, 120_000)
	f.send(first, most, 1)
	f.send(0, first/10, loginBurst+1) // each of these is refused
	end, last := load.Now(), fleet.Usage().RSS
	list := load.Stop()
	stillAfter := f.stillDenied()
	series, top := f.series(), f.top()
	evicted := fleet.Metric(0, "weir_evictions_total")
	fleet.Stop()

	tr.judge(list, 0, "0")
	const mib = 1 << 20
	tr.note("memory when idle, and under load", "%d and %d MiB", idle/mib, base/mib)
	tr.atMost(fmt.Sprintf("MiB more with %d keys", first), float64(after-base)/mib, mostMemory, "64 + 10 %")
	tr.atMost(fmt.Sprintf("MiB more with %d keys", most), float64(last-base)/mib, mostMemory, "64 + 10 %")
	tr.note("keys forgotten", "%.0f", evicted)
	tr.none(fmt.Sprintf("of %d refused keys, admitted after %d keys", exhausted, first), exhausted-still)
	tr.none(fmt.Sprintf("of %d refused keys, admitted after %d keys", exhausted, most), exhausted-stillAfter)
	tr.atMost("series", float64(series), 2000, "")
	tr.atMost("in the list of who is refused most", float64(top), 100, "")
	var hot []history.Decision
	for _, d := range list {
		if strings.HasPrefix(d.Key, "hot") {
			hot = append(hot, d)
		}
	}
	before := history.Percentile(history.Between(hot, 0, control), 0.99)
	tr.stalled(list)
	tr.note("p99 of hot keys before", "%s", brief(before))
	tr.note("p99 of hot keys with as many checks of 10,000 keys", "%s", brief(history.Percentile(history.Between(hot, control, began), 0.99)))
	tr.note("p99 of hot keys while the table grows", "%s", brief(history.Percentile(history.Between(hot, began, grown), 0.99)))
	tr.note("p99 of hot keys while it is full", "%s", brief(history.Percentile(history.Between(hot, grown, end), 0.99)))
	tr.within("p99 of hot keys meanwhile", history.Percentile(history.Between(hot, began, end), 0.99), 2*before)
}

// mostMemory is what a million keys may take, in MiB.
const mostMemory = 64 * 1.1

// loginBurst is what a key of the policy login has for an hour.
const loginBurst = 10

// withLogin writes a configuration: the policy that each daemon has without one, and
// another that no key forgets so soon.
func withLogin(tr *trial) (file string) {
	tr.Helper()
	return config(tr, fmt.Sprintf("policies:\n  default: {limits: [{rate: 100, per: 1s, burst: 100}]}\n  login: {limits: [{rate: %d, per: 1h}]}\n", loginBurst))
}

// config writes a configuration.
func config(tr *trial, text string) (file string) {
	tr.Helper()
	file = filepath.Join(tr.TempDir(), "weir.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tr.Fatal(err)
	}
	return file
}

// A flood is calls for many keys of the policy login, over one connection. It costs the
// process that makes it little: that one also times the hot key's calls.
type flood struct {
	*trial
	fleet *rig.Fleet
	conn  net.Conn
	out   []byte
	in    []byte
}

func newFlood(tr *trial, fleet *rig.Fleet) *flood {
	tr.Helper()
	conn, err := net.Dial("tcp", fleet.Daemons[0].Listener("resp"))
	if err != nil {
		tr.Fatal(err)
	}
	tr.Cleanup(func() { conn.Close() })
	return &flood{trial: tr, fleet: fleet, conn: conn, in: make([]byte, 0, 64<<10)}
}

// exhausted is how many keys are refused before it begins.
const exhausted = 100

// exhaust takes all that some keys have.
func (f *flood) exhaust() {
	f.Helper()
	if n := f.ask("denied", 0, exhausted, loginBurst); n != exhausted {
		f.Fatalf("%d of %d new keys are admitted", n, exhausted)
	}
}

// stillDenied returns how many of them are refused.
func (f *flood) stillDenied() int {
	f.Helper()
	return exhausted - f.ask("denied", 0, exhausted, 1)
}

// How fast keys are made up: on two cores, and with a client in the same place, a flood
// without bounds would show how busy the machine is and nothing else.
const (
	floodBatch = 100
	floodEvery = time.Millisecond
)

// send makes a call for each key of a range.
func (f *flood) send(from, to, cost int) {
	f.Helper()
	tick := time.NewTicker(floodEvery)
	defer tick.Stop()
	for ; from < to; from += floodBatch {
		f.ask("made-up-", from, min(from+floodBatch, to), cost)
		<-tick.C
	}
}

// ask makes a call for each key in one pipeline, and returns how many were admitted.
func (f *flood) ask(prefix string, from, to, cost int) (admitted int) {
	f.Helper()
	f.out = f.out[:0]
	for i := from; i < to; i++ {
		f.out = append(append(f.out, "WEIR.CHECK login "...), prefix...)
		f.out = append(strconv.AppendInt(f.out, int64(i), 10), ' ')
		f.out = append(strconv.AppendInt(f.out, int64(cost), 10), "\r\n"...)
	}
	_ = f.conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, err := f.conn.Write(f.out)
	for f.in = f.in[:0]; err == nil && bytes.Count(f.in, newLine) < (to-from)*linesOfDecision; {
		var n int
		n, err = f.conn.Read(f.in[len(f.in):cap(f.in)])
		f.in = f.in[:len(f.in)+n]
	}
	if err != nil || bytes.Count(f.in, []byte("*5\r\n")) != to-from {
		f.Fatalf("a pipeline: %.200q %v", f.in, err)
	}
	return bytes.Count(f.in, []byte("*5\r\n:1\r\n"))
}

// linesOfDecision is how many lines the reply to WEIR.CHECK has: five numbers, and how many they are.
const linesOfDecision = 6

var newLine = []byte{'\n'}

// series returns how many lines of /metrics have a value.
func (f *flood) series() (n int) {
	f.Helper()
	text, err := f.fleet.Get(0, "/metrics")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			n++
		}
	}
	return n
}

// top returns how many are listed of who is refused most.
func (f *flood) top() int {
	f.Helper()
	text, err := f.fleet.Get(0, "/admin/v1/stats?top=100")
	var stats struct{ Top []any }
	if err == nil {
		err = json.Unmarshal([]byte(text), &stats)
	}
	if err != nil {
		f.Fatal(err)
	}
	return len(stats.Top)
}
