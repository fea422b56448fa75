package redistier

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/tiered"
)

var long = os.Getenv("WEIR_TEST") == "all"

// short returns n, or more if tests may take long.
func short[T any](n, all T) T {
	if long {
		return all
	}
	return n
}

const fleetSize = 4

// A process is a node of a fleet, seen from the test.
type process struct {
	t      testing.TB
	place  int
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *os.File
	lines  *bufio.Reader
	stderr strings.Builder
	log    *grantLog
}

// startFleet starts processes and waits until they have counted each other. The first of
// them find the server elsewhere, if that is said.
func startFleet(t testing.TB, o nodeOrders, elsewhere ...string) []*process {
	t.Helper()
	if o.Every == 0 {
		o.Every = 100 * time.Millisecond
	}
	var fleet []*process
	for i := range fleetSize {
		here := o
		if i < len(elsewhere) {
			here.Addr = elsewhere[i]
		}
		fleet = append(fleet, startProcess(t, i, here))
	}
	for _, p := range fleet {
		p.read() // it is ready
	}
	for _, p := range fleet {
		p.await("all nodes to be counted", func(r reply) bool { return r.Stats.Nodes == fleetSize })
	}
	return fleet
}

func startProcess(t testing.TB, place int, o nodeOrders) *process {
	t.Helper()
	p := &process{t: t, place: place, cmd: exec.Command(os.Args[0])} //nolint:gosec // it is this program
	o.Log = filepath.Join(t.TempDir(), "grants")
	p.must(func() (err error) { p.log, err = openGrantLog(o.Log); return })
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Env = append(os.Environ(), nodeVariable+"="+string(text), "GORACE=atexit_sleep_ms=0") // which is 1 s
	p.cmd.Stderr = &p.stderr
	p.must(func() (err error) { p.stdin, err = p.cmd.StdinPipe(); return })
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdout = stdout.(*os.File)
	p.lines = bufio.NewReader(stdout)
	p.must(p.cmd.Start)
	t.Cleanup(func() { // where the test has not come to its end
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	return p
}

func (p *process) must(do func() error) {
	p.t.Helper()
	if err := do(); err != nil {
		p.t.Fatal(err)
	}
}

// send asks for something, read returns the answer to what was asked first.
func (p *process) send(q request) {
	p.t.Helper()
	text, err := json.Marshal(q)
	if err == nil {
		_, err = fmt.Fprintf(p.stdin, "%s\n", text)
	}
	if err != nil {
		p.t.Fatalf("node %d: %v, and on its standard error: %s", p.place, err, p.stderr.String())
	}
}

func (p *process) read() (r reply) {
	p.t.Helper()
	p.must(func() error { return p.stdout.SetReadDeadline(time.Now().Add(60 * time.Second)) })
	line, err := p.lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &r)
	}
	if err != nil || r.Error != "" {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		p.t.Fatalf("node %d said %q and %v, and on its standard error: %s", p.place, line, err, p.stderr.String())
	}
	return r
}

func (p *process) ask(q request) reply {
	p.t.Helper()
	p.send(q)
	return p.read()
}

func (p *process) stats() tiered.Stats {
	p.t.Helper()
	return p.ask(request{Do: "stats"}).Stats
}

// await waits until what a node says of itself is so.
func (p *process) await(what string, is func(reply) bool) (last reply) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("node %d: %s", p.place, what), func() bool {
		last = p.ask(request{Do: "stats"})
		return is(last)
	})
	return last
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	p.must(func() error { return p.cmd.Process.Signal(s) })
}

// quit has nodes end as they should.
func quit(fleet []*process) {
	for _, p := range fleet {
		_ = p.stdin.Close()
	}
	for _, p := range fleet {
		p.t.Helper()
		if err := p.cmd.Wait(); err != nil {
			p.t.Errorf("node %d ended with %v, and on its standard error: %s", p.place, err, p.stderr.String())
		}
	}
}

// askAll asks all nodes at once.
func askAll(fleet []*process, q request) (list []reply) {
	for _, p := range fleet {
		p.t.Helper()
		p.send(q)
	}
	for _, p := range fleet {
		list = append(list, p.read())
	}
	return list
}

// waitLoad waits for the end of a load on all nodes, and sums it up.
func waitLoad(fleet []*process) (sum reply) {
	for i, r := range askAll(fleet, request{Do: "wait"}) {
		sum.Calls, sum.Granted, sum.Slowest, sum.Lag = sum.Calls+r.Calls, sum.Granted+r.Granted, max(sum.Slowest, r.Slowest), max(sum.Lag, r.Lag)
		if r.Failed != "" {
			fleet[i].t.Errorf("node %d: a call returned an error: %s", fleet[i].place, r.Failed)
		}
	}
	return sum
}

// sumStats adds what nodes have decided on what.
func sumStats(fleet []*process) (sum tiered.Stats) {
	for _, r := range askAll(fleet, request{Do: "stats"}) {
		s := r.Stats
		sum.DenyCache, sum.Lease, sum.Store, sum.Async = sum.DenyCache+s.DenyCache, sum.Lease+s.Lease, sum.Store+s.Store, sum.Async+s.Async
		sum.Fallback, sum.StoreCalls = sum.Fallback+s.Fallback, sum.StoreCalls+s.StoreCalls
		sum.Unknown, sum.Lost, sum.Forfeited = sum.Unknown+s.Unknown, sum.Lost+s.Lost, sum.Forfeited+s.Forfeited
	}
	return sum
}

func decidedOn(s tiered.Stats) string {
	return fmt.Sprintf("decided by the deny cache %d, leases %d, the store %d, allowances %d, fallback %d; store calls %d, unknown %d, forfeited leases %d",
		s.DenyCache, s.Lease, s.Store, s.Async, s.Fallback, s.StoreCalls, s.Unknown, s.Forfeited)
}

// grants returns those of a key by all nodes, also by dead ones.
func grants(fleet []*process, key string) (list []grant) {
	for _, p := range fleet {
		for _, g := range p.log.all() {
			if g.key == keyOf(key) {
				list = append(list, g)
			}
		}
	}
	return list
}

func total(list []grant) (units int64) {
	for _, g := range list {
		units += g.cost
	}
	return units
}

// span returns how long it took from the first call to the last answer.
func span(list []grant) time.Duration {
	if len(list) == 0 {
		return 0
	}
	first, last := list[0].before, list[0].after
	for _, g := range list {
		first, last = min(first, g.before), max(last, g.after)
	}
	return time.Duration(last - first)
}

// excess returns by how many units the bound burst + rate × (Δ + 1 ns) is broken for
// certain: the most, over all intervals, of what was granted in calls that began and
// ended within it. Wherever between its call and its return each unit was granted, there
// were that many. It is negative if the bound was not even reached.
func excess(l nodeLimit, list []grant) float64 {
	byEnd := slices.Clone(list)
	slices.SortFunc(byEnd, func(a, b grant) int { return int(a.after - b.after) })
	worst := float64(-l.Burst)
	for _, first := range list {
		units := int64(0)
		for _, g := range byEnd {
			if g.before < first.before {
				continue
			}
			units += g.cost
			worst = max(worst, float64(units-l.Burst)-l.perNano()*float64(g.after-first.before+1))
		}
	}
	return worst
}

// rounding is what the server may grant too early: its clock counts microseconds.
func rounding(l nodeLimit) float64 { return 0.001 + l.perNano()*2000 }

func TestExcess(t *testing.T) {
	t.Parallel()
	const ms = int64(time.Millisecond)
	limit := nodeLimit{Rate: 1, Burst: 10, Per: time.Millisecond}
	for _, tt := range []struct {
		name string
		list []grant
		want float64
	}{
		{"nothing", nil, -10},
		{"a burst", []grant{{0, 0, 0, 4}, {0, 0, 0, 6}}, 0},
		{"more", []grant{{0, 0, 0, 4}, {0, 0, 0, 9}}, 3},
		{"in time", []grant{{0, 0, 0, 10}, {3 * ms, 3 * ms, 0, 3}}, 0},
		{"too early", []grant{{0, 0, 0, 10}, {3 * ms, 3 * ms, 0, 5}}, 2},
		{"perhaps not", []grant{{0, 0, 0, 10}, {0, 5 * ms, 0, 5}}, 0},
		{"later, after a pause", []grant{{0, 0, 0, 1}, {50 * ms, 50 * ms, 0, 11}, {90 * ms, 90 * ms, 0, 1}}, 1},
	} {
		if got := excess(limit, tt.list); got > tt.want || got < tt.want-0.001 {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
